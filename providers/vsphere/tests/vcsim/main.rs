//! The provider on vcsim, the vCenter simulator of govmomi, which other authors wrote, as `tests/vsphere/up` starts it.
//!
//! These tests run if `BOWLINE_VSPHERE` is the folder that it has filled, and are skipped otherwise. They share the second vCenter, which
//! each of them resets, so they run one after the other; `BOWLINE_CASE` selects cases of the conformance suite by parts of their names.
//! NSX has no simulator by other authors, so this is about instances only.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bench;
mod suite;
#[allow(dead_code, reason = "stories of the manager use the rest")]
mod vcsim;

use std::io::Write as _;
use std::sync::{Arc, LazyLock};

use bowline_cloud::{CloudProvider, Result, SecretData};
use bowline_conformance::{Bench, WantedMachine};
use bowline_core::{Instance, InstanceRef, InstanceState};
use serde_json::json;
use tokio::sync::Mutex;

use bench::VcsimBench;
use vcsim::{Vcsim, text};

/// Lets one test at a time use the vCenter.
static VCENTER: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

/// Reports a skip past the test runner's capture, in the form that the CI counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

/// Opens the second vCenter; `None` and a report if there is none.
fn open() -> Option<Vcsim> {
    let vcsim = Vcsim::open("vcenter-2");
    if vcsim.is_none() {
        skip("no vcsim, BOWLINE_VSPHERE is not set");
    }
    vcsim
}

fn machine(name: &str) -> WantedMachine {
    WantedMachine { name: name.to_owned(), ..WantedMachine::default() }
}

fn reference(instance: &Instance) -> InstanceRef {
    let (node, provider_id) = (instance.name.as_str().into(), instance.provider_id.clone());
    InstanceRef { node, provider_id, system_uuid: None }
}

async fn find(provider: &Arc<dyn CloudProvider>, instance: &Instance) -> Result<InstanceState> {
    provider.instances().unwrap().find(&[reference(instance)]).await.remove(0)
}

/// Delivers a Secret with these keys of the vCenter.
async fn deliver(provider: &Arc<dyn CloudProvider>, vcsim: &Vcsim, values: [(&str, String); 2]) {
    let key = |key| format!("{}.{key}", vcsim.value("host"));
    let data: SecretData = values.into_iter().map(|(name, value)| (key(name), value.into_bytes())).collect();
    for secret in provider.secrets() {
        provider.on_secret(&secret, Some(&data)).await.unwrap();
    }
}

#[tokio::test]
async fn the_bench_shows_machines_as_a_provider_should() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    let bench = VcsimBench::new(vcsim).await;
    let instance = bench.add(&machine("node-1")).await;
    let vm = VcsimBench::vm(&instance);
    let power = async || text(&bench.vcsim.machines().await[&vm]["power"]);
    assert_eq!(power().await, "poweredOn");
    bench.stop(&instance).await;
    assert_eq!(power().await, "poweredOff");
    bench.start(&instance).await;
    assert!(bench.rename(&instance, "node-2").await);
    assert_eq!(text(&bench.vcsim.machines().await[&vm]["hostName"]), "node-2");
    bench.delete(&instance).await;
    assert!(bench.vcsim.machines().await[&vm].is_null());
}

#[tokio::test]
async fn a_reset_restores_the_inventory_and_closes_sessions() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    let bench = VcsimBench::new(vcsim).await;
    let before = bench.vcsim.machines().await;
    bench.add(&machine("node-1")).await;
    bench.vcsim.put_machine("DC0_C0_RP0_VM0", &json!({"power": "suspended"})).await;
    bench.vcsim.reset().await;
    assert_eq!(bench.vcsim.machines().await, before);
    assert_eq!(bench.vcsim.sessions().await, json!({"limit": 0, "logins": 0, "rest": 0, "soap": 0}));
}

#[tokio::test]
async fn many_machines_are_found_with_one_session_and_few_calls() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    let bench = VcsimBench::new(vcsim).await;
    bench.vcsim.limit_pages(0).await;
    let mut references = Vec::new();
    for number in 0..50 {
        let instance = bench.add(&machine(&format!("node-{number}"))).await;
        references.push(reference(&instance));
    }
    let provider = bench.restarted().await;
    for (round, maximum) in [("first", 15), ("second", 5)] {
        bench.vcsim.clear_journal().await;
        let found = provider.instances().unwrap().find(&references).await;
        assert!(found.iter().all(|state| matches!(state, Ok(InstanceState::Running(_)))), "{found:?}");
        let counts = bench.vcsim.counts().await;
        let calls = bench.vcsim.journal().await.len();
        assert!(calls <= maximum, "{round} lookup: {calls} calls: {counts}");
    }
    let sessions = bench.vcsim.sessions().await;
    assert!(sessions["soap"].as_u64() <= Some(2), "one for each of two providers: {sessions}");
}

#[tokio::test]
async fn a_shared_session_serves_soap_and_rest() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    // VS-46
    let bench = VcsimBench::new(vcsim.clone()).await;
    let instance = bench.add(&machine("node-1")).await;
    let provider = bench::build(&vcsim, &[]);
    let url = format!("{}/session-manager", vcsim.value("control"));
    let values = [("vc-session-manager-url", url), ("vc-session-manager-token", vcsim.value("password"))];
    deliver(&provider, &vcsim, values).await;
    vcsim.clear_journal().await;
    let state = find(&provider, &instance).await;
    assert_eq!(state.unwrap().instance().map(|found| found.zone.clone()), Some("zone-f".to_owned()));
    let counts = vcsim.counts().await;
    assert_eq!((&counts["CloneSession"], &counts["POST /rest/com/vmware/cis/session"]), (&json!(1), &json!(null)));
}

#[tokio::test]
async fn a_read_is_repeated_after_a_network_error() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    // VS-47
    let bench = VcsimBench::new(vcsim.clone()).await;
    let instance = bench.add(&machine("node-1")).await;
    vcsim.set_faults(&json!([{"method": "RetrievePropertiesEx", "kind": "drop", "count": 1}])).await;
    assert!(matches!(find(&bench.provider(), &instance).await, Ok(InstanceState::Running(_))));
}

#[tokio::test]
async fn a_missing_machine_is_an_error_if_deletions_are_switched_off() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    // VS-67: any value counts.
    let bench = VcsimBench::new(vcsim.clone()).await;
    let instance = bench.add(&machine("node-1")).await;
    bench.add(&machine("node-2")).await;
    bench.delete(&instance).await;
    assert_eq!(find(&bench.provider(), &instance).await.unwrap(), InstanceState::Gone);
    let provider = bench::build(&vcsim, &[("SKIP_NODE_DELETION", "false")]);
    deliver(&provider, &vcsim, [("username", vcsim.value("user")), ("password", vcsim.value("password"))]).await;
    let error = find(&provider, &instance).await.unwrap_err();
    assert!(error.message().contains("No VM found"), "{error}");
}
