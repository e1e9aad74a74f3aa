//! Runs the conformance suite against a simulator of the cloud, over plain HTTP on the loopback interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod owners;
mod simulator;

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, CloudProvider, ErrorKind};
use bowline_config::{ConfigErrors, ConfigFile};
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, RouteBench, WantedMachine, run};
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

pub(crate) fn provider(cloud: &Simulator) -> Arc<dyn CloudProvider> {
    let config = Config { endpoint: cloud.endpoint.clone(), token: TOKEN.into(), ..Config::default() };
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

    fn routes(&self) -> Option<&dyn RouteBench> {
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
    assert_eq!(errors(Some("endpoint: http://acme.example\ntoken: secret\n")), [""; 0]);
    assert!(errors(None)[0].contains("acme requires a configuration file"));
    let both = errors(Some("endpoint: acme.example\ntoken: ''\n"));
    assert!(
        both[0].contains("is not an http:// or https:// URL") && both[1].contains("token: is required"),
        "{both:?}"
    );
    assert!(errors(Some("endpoint: http://x\ntokn: x\n"))[0].contains("unknown key"));
}

/// Errors of this `--cloud-config`.
fn errors(text: Option<&str>) -> Vec<String> {
    build(text).err().iter().flat_map(ConfigErrors::iter).map(ToString::to_string).collect()
}

fn build(text: Option<&str>) -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
    let file = text.map(|text| ConfigFile::from_text("acme.yaml", text));
    (factory().build)(&BuildInputs::default().context(file.as_ref(), &"kubernetes".into()))
}

#[tokio::test]
async fn the_token_of_a_file_is_used_and_watched() {
    let (cloud, token) = (Simulator::start().await, std::env::temp_dir().join(format!("acme-{}", std::process::id())));
    let config = format!("endpoint: {}\ntokenFile: {}\n", cloud.endpoint, token.display());
    assert!(errors(Some(&config))[0].contains("cannot read"));
    std::fs::write(&token, "expired\n").unwrap();
    let provider = build(Some(&config)).unwrap();
    assert_eq!(provider.files(), std::slice::from_ref(&token));
    let rejected = provider.check().await.unwrap_err();
    assert_eq!(rejected.kind(), ErrorKind::Unauthenticated);
    assert!(!rejected.to_string().contains("expired"), "{rejected}");
    // The framework builds the provider again when a file changes.
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    build(Some(&config)).unwrap().check().await.unwrap();
    let both = errors(Some(&format!("{config}token: secret\n")));
    std::fs::remove_file(&token).unwrap();
    assert!(both[0].contains("token is set as well"), "{both:?}");
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
        include_str!("../src/routes.rs"),
        include_str!("conformance.rs"),
        include_str!("owners/mod.rs"),
        include_str!("bench/load_balancers.rs"),
        include_str!("bench/routes.rs"),
        include_str!("simulator/mod.rs"),
        include_str!("simulator/load_balancers.rs"),
        include_str!("simulator/routes.rs"),
    ];
    let excerpts: Vec<_> =
        guide.split("\n```rust,ignore\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    assert!(excerpts.len() >= 4, "{excerpts:?}");
    for excerpt in excerpts {
        assert!(files.iter().any(|file| file.contains(excerpt)), "not found in any file of the example:\n{excerpt}");
    }
}
