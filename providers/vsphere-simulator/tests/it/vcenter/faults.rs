//! Faults and the journal.

use bowline_vsphere_simulator::vcenter::{Fault, FaultSpec, Options, soap_fault};
use http::Method;
use serde_json::{Value, json};

use crate::vcenter::client::{Client, fault, texts};

#[tokio::test]
async fn a_fault_is_injected_by_the_name_of_the_method() {
    let client = Client::new(Options::default()).await;
    let uuid = client.vcenter.machine("node-1").unwrap().uuid;
    let no_permission = FaultSpec::always(soap_fault("NoPermission")).on(Method::POST, "FindByUuid").times(1);
    client.vcenter.inject(no_permission);
    let arguments = format!("<uuid>{uuid}</uuid><vmSearch>true</vmSearch>");
    assert_eq!(client.list(&["name"], "").await.0, 200);
    let answer = client.call("FindByUuid", ("SearchIndex", "SearchIndex"), &arguments).await;
    assert_eq!(fault(&answer), "NoPermission");
    assert!(!client.find(&uuid).await.is_empty());
    assert_eq!(client.vcenter.counts()["POST FindByUuid"], 2);
}

#[tokio::test]
async fn the_journal_has_methods_and_rest_paths() {
    let client = Client::new(Options::default()).await;
    client.rest("GET", "tagging/tag/id:urn:x", "none", Value::Null).await;
    client.rest("POST", "tagging/tag-association?~action=list-attached-tags", "none", json!({})).await;
    let names: Vec<_> =
        client.vcenter.journal().iter().map(|entry| format!("{} {}", entry.part, entry.template)).collect();
    let expected = ["soap Login", "rest tagging/tag/{id}", "rest tagging/tag-association/list-attached-tags"];
    assert_eq!(names, expected);
    let headers = client.vcenter.journal().into_iter().flat_map(|entry| entry.headers);
    assert!(headers.into_iter().all(|(name, _)| !["cookie", "vmware-api-session-id"].contains(&name.as_str())));
}

#[tokio::test]
async fn an_empty_view_has_no_machines_and_a_frozen_one_has_those_of_before() {
    let client = Client::new(Options::default()).await;
    let uuid = client.vcenter.machine("node-1").unwrap().uuid;
    client.vcenter.inject(FaultSpec::always(Fault::Empty).on(Method::POST, "FindByUuid").times(1));
    assert!(client.find(&uuid).await.is_empty());
    client.vcenter.freeze_view(true);
    client.vcenter.change_machine("node-1", |machine| machine.name = "renamed".to_owned());
    let (_, body) = client.list(&["name"], "").await;
    assert_eq!(texts(&body, "val"), ["node-1", "node-2"]);
    client.vcenter.freeze_view(false);
    assert_eq!(texts(&client.list(&["name"], "").await.1, "val"), ["node-2", "renamed"]);
}

#[tokio::test]
async fn a_request_that_is_not_understood_is_a_fault() {
    let client = Client::new(Options::default()).await;
    assert_eq!(fault(&client.call("PowerOffVM_Task", ("VirtualMachine", "vm-1"), "").await), "InvalidRequest");
    assert_eq!(fault(&client.call("FindByUuid", ("SearchIndex", "other"), "").await), "ManagedObjectNotFound");
    let broken = http::Request::post("https://vc.test/sdk").body("<a>".into()).unwrap();
    assert_eq!(fault(&client.send(broken).await), "InvalidRequest");
}
