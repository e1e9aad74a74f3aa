//! A provider on two simulated vCenters, `vc-1` and `vc-2`.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::BuildInputs;
use bowline_config::ConfigFile;
use bowline_core::ClusterName;
use bowline_http::Client;
use bowline_vsphere::{Config, Vsphere};
use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD, USER, Vcenter};
use bytes::Bytes;
use http::Request;

pub(crate) const LABELS: &str = "[Labels]\nzone = \"k8s-zone\"\nregion = \"k8s-region\"\n";

pub(crate) struct Pair {
    pub(crate) vcenters: [Vcenter; 2],
    pub(crate) provider: Vsphere,
}

impl Pair {
    /// Each vCenter has one machine; DC0 of both is in a zone and a region. `settings` is added to the configuration.
    pub(crate) fn new(settings: &str) -> Pair {
        Pair::with(Options::default(), USER, PASSWORD, settings)
    }

    pub(crate) fn with(options: Options, user: &str, password: &str, settings: &str) -> Pair {
        let vcenters = [0, 1].map(|number| {
            let instance_uuid = format!("00000000-0000-4000-8000-10000000000{number}");
            let vcenter = Vcenter::new(Options { instance_uuid, ..options.clone() });
            let (name, uuid) = (format!("node-{number}"), format!("42278c9d-79fb-f2af-b060-10000000000{number}"));
            vcenter.add_machine(Machine { uuid, ..Machine::named(&name, &format!("10.10.1.1{number}")) }).unwrap();
            let datacenter = vcenter.find("Datacenter", "DC0").unwrap();
            vcenter.tag("k8s-zone", "zone-a", &datacenter);
            vcenter.tag("k8s-region", "region-1", &datacenter);
            vcenter
        });
        let provider = provider(&vcenters, user, password, settings);
        Pair { vcenters, provider }
    }

    /// Returns how many calls of a method the vCenters received.
    pub(crate) fn count(&self, method: &str) -> [usize; 2] {
        let is_of = |template: &str| template.rsplit('/').next() == Some(method);
        self.vcenters.each_ref().map(|vcenter| vcenter.journal().iter().filter(|entry| is_of(&entry.template)).count())
    }
}

fn provider(vcenters: &[Vcenter; 2], user: &str, password: &str, settings: &str) -> Vsphere {
    let entry = |name: &str| format!("[VirtualCenter \"{name}\"]\n");
    let global = format!("[Global]\nuser = \"{}\"\npassword = \"{}\"\n", quoted(user), quoted(password));
    let text = format!("{global}{}{}{settings}", entry("vc-1"), entry("vc-2"));
    let (cluster, inputs) = (ClusterName::from("kubernetes"), BuildInputs::default());
    let file = ConfigFile::from_text("vsphere.conf", text);
    let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
    Vsphere::over(config, client(vcenters), &cluster).unwrap()
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns a client that finds both vCenters by their names.
fn client(vcenters: &[Vcenter; 2]) -> Client {
    let clients = vcenters.each_ref().map(|vcenter| vcenter.client(Duration::from_secs(30)));
    let handler = move |request: Request<Bytes>| {
        let client = clients[usize::from(request.uri().host() == Some("vc-2"))].clone();
        async move { client.send(request).await }
    };
    Client::in_process(Arc::new(handler), Duration::from_secs(30))
}
