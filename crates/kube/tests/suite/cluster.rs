//! Writes to Nodes, and their behaviour when the API server fails.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_apiserver::{Effect, FaultRule};
use bowline_core::initialize::NodeChange;
use bowline_core::{Address, AddressType, Node, NodeName, ProviderId, Taint};
use bowline_kube::{Cluster, WriteError};
use http::StatusCode;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::fixture::{Failure, Fixture, fixture};

impl Fixture {
    /// Changes the Node, so that earlier resource versions are stale.
    async fn touch(&self) -> Result<(), Failure> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
        self.nodes.patch("n", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn fail(&self, verb: &str, effect: Effect, times: u64) {
        let rule = FaultRule {
            verb: Some(verb.into()),
            resource: Some("nodes".into()),
            effect,
            times: Some(times),
            ..FaultRule::default()
        };
        self.server.faults().add(rule);
    }
}

fn status(code: StatusCode, retry_after: Option<u32>) -> Effect {
    Effect::Status { code, message: "not now".into(), retry_after }
}

fn change(node: &Node, taints: Vec<Taint>) -> NodeChange {
    NodeChange {
        node: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        provider_id: ProviderId::new("cloud:///1"),
        labels: [("zone".to_owned(), "z1".to_owned())].into(),
        annotations: Default::default(),
        taints,
        warnings: Vec::new(),
    }
}

fn own_taint() -> Taint {
    Taint { key: "own".into(), value: String::new(), effect: "NoExecute".into(), time_added: None }
}

#[tokio::test]
async fn w1_initialising_is_one_write_and_leaves_the_rest() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    let after = f.cluster.initialize(&change(&before, vec![own_taint()])).await?;
    assert_eq!(after, f.node().await?, "the answer is the Node as it is now, after no further write");
    assert_eq!(after.provider_id, ProviderId::new("cloud:///1"));
    assert_eq!(after.taints, [own_taint()]);
    let labels: Vec<(&str, &str)> = after.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(labels, [("mine", "1"), ("zone", "z1")]);
    Ok(())
}

#[tokio::test]
async fn w1_the_last_taint_can_be_removed() -> Result<(), Failure> {
    let f = fixture().await?;
    let after = f.cluster.initialize(&change(&f.node().await?, Vec::new())).await?;
    assert_eq!((after.taints.len(), f.node().await?.taints.len()), (0, 0));
    Ok(())
}

#[tokio::test]
async fn w1_a_changed_node_is_a_conflict_and_is_not_written() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    f.touch().await?;
    let result = f.cluster.initialize(&change(&before, Vec::new())).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    let after = f.node().await?;
    assert!(after.is_uninitialized() && after.provider_id.is_none());
    Ok(())
}

#[tokio::test]
async fn w1_another_node_of_the_same_name_is_not_initialised() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    f.recreate().await?;
    let result = f.cluster.initialize(&change(&before, Vec::new())).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    assert!(f.node().await?.is_uninitialized());
    Ok(())
}

#[tokio::test]
async fn w2_addresses_are_replaced_in_order_with_several_of_a_type() -> Result<(), Failure> {
    let f = fixture().await?;
    use AddressType::{ExternalIP, Hostname, InternalIP};
    let first =
        [Address::new(InternalIP, "10.0.0.1"), Address::new(Hostname, "n"), Address::new(ExternalIP, "1.2.3.4")];
    f.cluster.set_addresses(&f.name, &first).await?;
    let second = [
        Address::new(Hostname, "n"),
        Address::new(InternalIP, "10.0.0.3"),
        Address::new(InternalIP, "10.0.0.1"),
        Address::new(InternalIP, "10.0.0.2"),
    ];
    let after = f.cluster.set_addresses(&f.name, &second).await?;
    assert_eq!(after.addresses, second);
    assert_eq!(f.node().await?.addresses, second);
    assert_eq!(f.cluster.set_addresses(&f.name, &[]).await?.addresses, []);
    Ok(())
}

#[tokio::test]
async fn w2_the_same_addresses_again_change_nothing() -> Result<(), Failure> {
    let f = fixture().await?;
    let addresses =
        [Address::new(AddressType::InternalIP, "10.0.0.1"), Address::new(AddressType::InternalIP, "10.0.0.2")];
    let first = f.cluster.set_addresses(&f.name, &addresses).await?;
    let second = f.cluster.set_addresses(&f.name, &addresses).await?;
    assert_eq!(first.resource_version, second.resource_version);
    Ok(())
}

#[tokio::test]
async fn w3_labels_are_set_and_others_are_kept() -> Result<(), Failure> {
    let f = fixture().await?;
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let after = f.cluster.set_labels(&f.name, &labels).await?;
    assert_eq!(after.labels.keys().collect::<Vec<_>>(), ["a", "mine"]);
    Ok(())
}

#[tokio::test]
async fn w4_taints_are_replaced_unless_the_node_has_changed() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    let after = f.cluster.set_taints(&f.name, &before.resource_version, &[own_taint(), Taint::shutdown()]).await?;
    assert_eq!(after.taints, [own_taint(), Taint::shutdown()]);
    let result = f.cluster.set_taints(&f.name, &before.resource_version, &[]).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    assert_eq!(f.cluster.set_taints(&f.name, &after.resource_version, &[]).await?.taints, []);
    Ok(())
}

#[tokio::test]
async fn w10_deleting_a_node_is_idempotent() -> Result<(), Failure> {
    let f = fixture().await?;
    let uid = f.node().await?.uid;
    f.cluster.delete_node(&f.name, &uid).await?;
    assert_eq!(f.cluster.node(&f.name).await?, None);
    f.cluster.delete_node(&f.name, &uid).await?;
    Ok(())
}

#[tokio::test]
async fn w10_another_node_of_the_same_name_is_not_deleted() -> Result<(), Failure> {
    let f = fixture().await?;
    let uid = f.node().await?.uid;
    f.recreate().await?;
    let result = f.cluster.delete_node(&f.name, &uid).await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    assert_ne!(f.node().await?.uid, uid);
    Ok(())
}

#[tokio::test]
async fn writes_to_a_missing_node_return_not_found() -> Result<(), Failure> {
    let f = fixture().await?;
    let gone = NodeName::from("gone");
    assert!(matches!(f.cluster.set_addresses(&gone, &[]).await, Err(WriteError::NotFound(_))));
    assert!(matches!(f.cluster.set_labels(&gone, &BTreeMap::new()).await, Err(WriteError::NotFound(_))));
    assert!(matches!(f.cluster.set_taints(&gone, "1", &[]).await, Err(WriteError::NotFound(_))));
    assert_eq!(f.cluster.node(&gone).await?, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cl2_a_throttled_request_is_retried_after_retry_after() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("patch", status(StatusCode::TOO_MANY_REQUESTS, Some(7)), 10);
    let begin = Instant::now();
    f.cluster.set_labels(&f.name, &BTreeMap::from([("a".into(), "1".into())])).await?;
    assert_eq!(begin.elapsed().as_secs(), 70);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cl2_a_throttled_request_fails_after_ten_retries() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("delete", status(StatusCode::TOO_MANY_REQUESTS, Some(1)), 11);
    let uid = f.node().await?.uid;
    let result = f.cluster.delete_node(&f.name, &uid).await;
    assert!(matches!(result, Err(WriteError::Unavailable(_))), "{result:?}");
    assert!(f.server.faults().list().is_empty(), "eleven requests were sent");
    f.cluster.delete_node(&f.name, &uid).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn server_errors_and_connection_errors_are_retried() -> Result<(), Failure> {
    for effect in [status(StatusCode::INTERNAL_SERVER_ERROR, None), Effect::Reset] {
        let f = fixture().await?;
        f.fail("patch", effect.clone(), 3);
        let before = f.node().await?;
        let after = f.cluster.initialize(&change(&before, Vec::new())).await?;
        assert!(!after.is_uninitialized());
        f.fail("patch", effect, 4);
        let result = f.cluster.set_addresses(&f.name, &[]).await;
        assert!(matches!(result, Err(WriteError::Unavailable(_))), "{result:?}");
        assert!(f.server.faults().list().is_empty());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_hung_server_times_out() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("patch", Effect::Latency(Duration::from_secs(3600)), 1);
    let begin = Instant::now();
    let result = f.cluster.set_labels(&f.name, &BTreeMap::new()).await;
    assert!(matches!(result, Err(WriteError::Unavailable(_))), "{result:?}");
    assert_eq!(begin.elapsed().as_secs(), 30);
    Ok(())
}

#[tokio::test]
async fn a_rejection_is_not_retried_and_has_the_message_of_the_api_server() -> Result<(), Failure> {
    let f = fixture().await?;
    let result = f.cluster.set_labels(&f.name, &BTreeMap::from([("a b".into(), "1".into())])).await;
    match result {
        Err(WriteError::Rejected { code: 422, message }) => assert!(message.contains("a b"), "{message}"),
        other => return Err(format!("expected a rejection, got {other:?}").into()),
    }
    Ok(())
}

#[tokio::test]
async fn writes_are_counted_by_result() -> Result<(), Failure> {
    let f = fixture().await?;
    let registry = prometheus::Registry::new();
    let cluster = Cluster::with_metrics(f.server.in_process_client(), &registry)?;
    cluster.set_addresses(&f.name, &[]).await?;
    drop(cluster.set_taints(&f.name, "1", &[]).await);
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather())?;
    for line in [
        r#"bowline_api_writes_total{resource="nodes/status",result="success",verb="patch"} 1"#,
        r#"bowline_api_writes_total{resource="nodes",result="conflict",verb="patch"} 1"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    Ok(())
}
