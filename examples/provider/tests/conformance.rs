//! Runs the conformance suite against a simulator of the cloud, over plain HTTP on the loopback interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod load_balancers;
mod simulator;

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::ConfigFile;
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, WantedMachine, run};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use bowline_example::{Acme, Config, factory};
use serde_json::json;
use simulator::{Simulator, TOKEN};

struct AcmeBench {
    cloud: Simulator,
    provider: Arc<dyn CloudProvider>,
}

async fn bench() -> Box<dyn Bench> {
    let cloud = Simulator::start().await;
    let provider = provider(&cloud);
    Box::new(AcmeBench { cloud, provider })
}

fn provider(cloud: &Simulator) -> Arc<dyn CloudProvider> {
    let config = Config { endpoint: cloud.endpoint.clone(), token: TOKEN.into() };
    let (inputs, cluster) = (BuildInputs::default(), "kubernetes".into());
    Arc::new(Acme::new(&config, &inputs.context(None, &cluster)).unwrap())
}

#[tokio::test]
async fn the_provider_conforms() {
    let report = run(bench).await;
    assert_eq!(report.violations(), [], "{report}");
}

#[async_trait]
impl Bench for AcmeBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        provider(&self.cloud)
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        self.cloud.crash_after(calls);
        BenchResult::Done
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let of_kind = |kind| machine.addresses.iter().filter(move |address| address.kind == kind);
        let texts = |kind| of_kind(kind).map(|address| address.address.clone()).collect::<Vec<_>>();
        let (mut private, public) = (texts(AddressType::InternalIP), texts(AddressType::ExternalIP));
        if private.is_empty() {
            private.push("10.0.0.1".to_owned());
        }
        let id = self.cloud.add(json!({
            "name": machine.name, "status": "running", "size": "small", "private_ips": private, "public_ips": public,
        }));
        let internal = private.into_iter().map(|ip| Address::new(AddressType::InternalIP, ip));
        let external = public.into_iter().map(|ip| Address::new(AddressType::ExternalIP, ip));
        Instance {
            provider_id: ProviderId::new(&format!("acme://{id}")),
            id,
            name: machine.name.clone(),
            instance_type: "small".to_owned(),
            addresses: internal.chain(external).collect(),
            ..Instance::default()
        }
    }

    async fn stop(&self, instance: &Instance) {
        self.cloud.set(&instance.id, "status", "off");
    }

    async fn start(&self, instance: &Instance) {
        self.cloud.set(&instance.id, "status", "running");
    }

    async fn delete(&self, instance: &Instance) {
        self.cloud.delete(&instance.id);
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.cloud.set(&instance.id, "name", name);
        true
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.cloud.induce(fault);
        true
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        vec![ProviderId::of("acme", &instance.id.to_uppercase())]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "/", "web-1", "../servers", "1?name=x"].map(|rest| ProviderId::of("acme", rest)).into()
    }
}

#[test]
fn all_configuration_errors_are_reported_at_once() {
    let build = |text: Option<&str>| {
        let file = text.map(|text| ConfigFile::from_text("acme.yaml", text));
        (factory().build)(&BuildInputs::default().context(file.as_ref(), &"kubernetes".into()))
    };
    assert!(build(Some("endpoint: http://acme.example\ntoken: secret\n")).is_ok());
    for (text, errors) in
        [(None, 1), (Some("endpoint: acme.example\ntoken: ''\n"), 2), (Some("endpoint: http://x\ntokn: x\n"), 1)]
    {
        assert!(build(text).is_err_and(|found| found.iter().count() >= errors), "{text:?}");
    }
}

/// Every code block of the guide is an excerpt of this crate, so it is compiled and run.
#[test]
fn excerpts_in_the_guide_match_this_crate() {
    let guide = include_str!("../../../docs/guides/writing-a-provider.md");
    let files = [
        include_str!("../Cargo.toml"),
        include_str!("../src/lib.rs"),
        include_str!("../src/config.rs"),
        include_str!("../src/client.rs"),
        include_str!("../src/instances.rs"),
        include_str!("../src/load_balancers.rs"),
        include_str!("conformance.rs"),
        include_str!("load_balancers/mod.rs"),
        include_str!("simulator/mod.rs"),
    ];
    let excerpts: Vec<_> =
        guide.split("\n```rust,ignore\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    assert!(excerpts.len() >= 4, "{excerpts:?}");
    for excerpt in excerpts {
        assert!(files.iter().any(|file| file.contains(excerpt)), "not found in any file of the example:\n{excerpt}");
    }
}
