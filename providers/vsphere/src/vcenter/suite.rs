//! Sessions of providers that retry calls and share their failed logins, as those of one process do.

use std::time::Duration;

use bowline_cloud::{BuildInputs, CallPolicy, Calls, CloudProvider as _};
use bowline_config::ConfigFile;
use bowline_core::ClusterName;
use bowline_vsphere_simulator::vcenter::{Options, PASSWORD, USER, Vcenter};
use bowline_vsphere_simulator::{Fault, FaultSpec};
use http::Method;
use tokio::time::{advance, sleep};

use crate::provider::Shared;
use crate::transport::Clients;
use crate::{Config, Vsphere};

/// A provider with the usual retries.
fn provider(vcenter: &Vcenter, password: &str, shared: &Shared) -> Vsphere {
    let labels = "[Labels]\nregion = r\nzone = z\n";
    let text = format!("[VirtualCenter \"vc-1\"]\nuser = {USER}\npassword = \"{password}\"\n{labels}");
    let inputs = BuildInputs { calls: Calls::new(CallPolicy::default()), ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("vsphere.conf", text), ClusterName::from("kubernetes"));
    let context = inputs.context(Some(&file), &cluster);
    let config = Config::read(&context).map_err(|errors| errors.to_string()).unwrap();
    let clients = Clients::Single(vcenter.client(Duration::from_secs(30)));
    Vsphere::new(config, &clients, &context, shared).map_err(|errors| errors.to_string()).unwrap()
}

fn count(vcenter: &Vcenter, call: &str) -> u64 {
    vcenter.counts().get(call).copied().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_login_is_sent_once_while_reads_are_retried() {
    for fault in [Fault::AnswerLost, Fault::Answer(503, "too many sessions".to_owned()), Fault::Hanging] {
        let vcenter = Vcenter::new(Options::default());
        let provider = provider(&vcenter, PASSWORD, &Shared::new());
        vcenter.inject(FaultSpec::always(Fault::Lost).on(Method::POST, "RetrieveServiceContent").times(2));
        vcenter.inject(FaultSpec::always(fault.clone()).on(Method::POST, "Login"));
        assert!(provider.check().await.is_err());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(count(&vcenter, "POST RetrieveServiceContent"), 3, "{fault:?}");
        assert_eq!(count(&vcenter, "POST Login"), 1, "{fault:?}");
        let [one] = &*provider.vcenters else { unreachable!() };
        vcenter.repair_all();
        provider.check().await.unwrap();
        vcenter.inject(FaultSpec::always(fault.clone()).on(Method::POST, "session"));
        assert!(one.tagging.categories().await.is_err());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(count(&vcenter, "POST session"), 1, "{fault:?}");
        vcenter.repair_all();
        vcenter.inject(FaultSpec::always(Fault::Lost).on(Method::POST, "Logout"));
        provider.close().await;
        assert_eq!(count(&vcenter, "POST Logout"), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_does_not_end_the_pause_of_a_rejected_login() {
    let (vcenter, shared) = (Vcenter::new(Options::default()), Shared::new());
    for _ in 0..10 {
        assert!(provider(&vcenter, "wrong", &shared).check().await.is_err());
    }
    assert_eq!(count(&vcenter, "POST Login"), 1);
    provider(&vcenter, PASSWORD, &shared).check().await.unwrap();
    advance(Duration::from_secs(180)).await;
    assert!(provider(&vcenter, "wrong", &shared).check().await.is_err());
    assert_eq!(count(&vcenter, "POST Login"), 3);
}
