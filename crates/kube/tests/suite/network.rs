//! Writes of pod CIDRs and the NetworkUnavailable condition.

use bowline_apiserver::{Effect, FaultRule};
use bowline_core::NetworkCondition;
use bowline_core::routes::NetworkStatus;
use bowline_kube::WriteError;
use http::StatusCode;
use ipnet::IpNet;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixture::{Failure, Fixture, fixture};

impl Fixture {
    /// The complete Node.
    async fn object(&self) -> Result<Value, Failure> {
        Ok(serde_json::to_value(self.nodes.get_status("n").await?)?)
    }

    /// Sets conditions as another client.
    async fn set_conditions(&self, conditions: Value) -> Result<(), Failure> {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        self.nodes.patch_status("n", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn fail_patch(&self, subresource: &str, effect: Effect, times: u64) {
        let rule = FaultRule {
            verb: Some("patch".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.into()),
            effect,
            times: Some(times),
            ..FaultRule::default()
        };
        self.server.faults().add(rule);
    }
}

fn cidrs(texts: &[&str]) -> Result<Vec<IpNet>, Failure> {
    Ok(texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

fn now() -> Result<Timestamp, Failure> {
    Ok("2026-01-02T03:04:05.678Z".parse()?)
}

fn unavailable() -> Effect {
    Effect::Status { code: StatusCode::SERVICE_UNAVAILABLE, message: "not now".into(), retry_after: None }
}

// ---- W-9

#[tokio::test]
async fn w9_both_fields_are_written_in_one_request_and_the_rest_is_kept() -> Result<(), Failure> {
    for texts in [&["10.244.3.0/24"][..], &["10.244.3.0/24", "fd00:10:244:3::/64"], &["fd00:10:244:3::/64"]] {
        let f = fixture().await?;
        let before = f.node().await?;
        let after = f.cluster.set_pod_cidrs(&before, &cidrs(texts)?).await?;
        assert_eq!(after.pod_cidrs, texts);
        assert_eq!(after, f.node().await?, "the answer is the Node as it is now, after no further write");
        assert_eq!((&after.labels, &after.taints), (&before.labels, &before.taints));
        let object = f.object().await?;
        let spec = (&object["spec"]["podCIDR"], &object["spec"]["podCIDRs"]);
        assert_eq!(spec, (&json!(texts.first()), &json!(texts)));
    }
    Ok(())
}

#[tokio::test]
async fn w9_another_node_of_the_same_name_gets_no_pod_cidr() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    f.recreate().await?;
    let result = f.cluster.set_pod_cidrs(&before, &cidrs(&["10.244.3.0/24"])?).await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    assert_eq!(f.node().await?.pod_cidrs, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn w9_a_node_that_is_gone_is_not_found() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    f.nodes.delete("n", &DeleteParams::default()).await?;
    let result = f.cluster.set_pod_cidrs(&before, &cidrs(&["10.244.3.0/24"])?).await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    Ok(())
}

#[tokio::test]
async fn w9_an_unrelated_change_of_the_node_is_no_conflict() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    f.set_conditions(json!([{"type": "Ready", "status": "True"}])).await?;
    assert_eq!(f.cluster.set_pod_cidrs(&before, &cidrs(&["10.244.3.0/24"])?).await?.pod_cidrs, ["10.244.3.0/24"]);
    Ok(())
}

/// Whether a block may be allocated again depends on this difference (IPAM-9).
#[tokio::test(start_paused = true)]
async fn w9_a_rejection_differs_from_an_unavailable_server() -> Result<(), Failure> {
    let f = fixture().await?;
    let node = f.node().await?;
    f.fail_patch("", unavailable(), 100);
    let unavailable = f.cluster.set_pod_cidrs(&node, &cidrs(&["10.244.3.0/24"])?).await;
    assert!(matches!(unavailable, Err(WriteError::Unavailable(_))), "{unavailable:?}");
    f.server.faults().clear();
    let forbidden = Effect::Status { code: StatusCode::FORBIDDEN, message: "no".into(), retry_after: None };
    f.fail_patch("", forbidden, 1);
    let result = f.cluster.set_pod_cidrs(&node, &cidrs(&["10.244.3.0/24"])?).await;
    assert!(matches!(result, Err(WriteError::Rejected { code: 403, .. })), "{result:?}");
    assert_eq!(f.node().await?.pod_cidrs, [""; 0]);
    Ok(())
}

/// The outcome of the first attempt is unknown and the second is rejected: the first may still be executed.
#[tokio::test(start_paused = true)]
async fn w9_a_rejection_after_an_attempt_without_an_answer_is_unavailable() -> Result<(), Failure> {
    let f = fixture().await?;
    let node = f.node().await?;
    f.fail_patch("", unavailable(), 1);
    let forbidden = Effect::Status { code: StatusCode::FORBIDDEN, message: "no".into(), retry_after: None };
    f.fail_patch("", forbidden, 1);
    let unavailable = f.cluster.set_pod_cidrs(&node, &cidrs(&["10.244.3.0/24"])?).await;
    assert!(matches!(unavailable, Err(WriteError::Unavailable(_))), "{unavailable:?}");
    Ok(())
}

// ---- W-5

#[tokio::test]
async fn w5_the_condition_is_set_with_both_times_and_others_are_kept() -> Result<(), Failure> {
    let f = fixture().await?;
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2025-12-31T00:00:00Z",
    });
    let pressure = json!({"type": "MemoryPressure", "status": "False"});
    f.set_conditions(json!([ready, pressure])).await?;
    let cases = [
        (NetworkStatus::NOT_CREATED, "True", "NoRouteCreated", "RouteController failed to create a route"),
        (NetworkStatus::CREATED, "False", "RouteCreated", "RouteController created a route"),
    ];
    for (written, status, reason, message) in cases {
        let after = f.cluster.set_network(&f.node().await?, &written, now()?).await?;
        let expected = NetworkCondition { status: status.to_owned(), reason: reason.to_owned() };
        assert_eq!(after.network, Some(expected));
        assert_eq!(after, f.node().await?, "the answer is the Node as it is now, after no further write");
        let object = f.object().await?;
        let conditions = object["status"]["conditions"].as_array().ok_or("no conditions")?;
        let of = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
        let network = json!({
            "type": "NetworkUnavailable", "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        assert_eq!(of("NetworkUnavailable"), Some(&network));
        assert_eq!(of("Ready"), Some(&ready), "a merge by type leaves other conditions alone");
        assert_eq!(of("MemoryPressure").and_then(|condition| condition["status"].as_str()), Some("False"));
        assert_eq!(conditions.len(), 3, "{conditions:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn w5_r18_the_condition_of_another_network_is_overwritten() -> Result<(), Failure> {
    let f = fixture().await?;
    let calico = json!({"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp", "message": "up"});
    f.set_conditions(json!([calico])).await?;
    let before = f.node().await?;
    assert_eq!(before.network.as_ref().map(|condition| condition.reason.as_str()), Some("CalicoIsUp"));
    let after = f.cluster.set_network(&before, &NetworkStatus::CREATED, now()?).await?;
    assert_eq!(after.network.map(|condition| condition.reason).as_deref(), Some("RouteCreated"));
    let object = f.object().await?;
    assert_eq!(object["status"]["conditions"].as_array().map(Vec::len), Some(1), "{object:#}");
    Ok(())
}

#[tokio::test]
async fn w5_another_node_of_the_same_name_gets_no_condition() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.node().await?;
    f.recreate().await?;
    let result = f.cluster.set_network(&before, &NetworkStatus::CREATED, now()?).await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    assert_eq!(f.node().await?.network, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn w5_a_write_is_retried_when_the_server_is_unavailable() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail_patch("status", unavailable(), 2);
    let after = f.cluster.set_network(&f.node().await?, &NetworkStatus::CREATED, now()?).await?;
    assert_eq!(after.network.map(|condition| condition.status).as_deref(), Some("False"));
    Ok(())
}

// ---- both

#[tokio::test]
async fn a_dry_run_writes_nothing() -> Result<(), Failure> {
    let f = fixture().await?;
    let dry = f.cluster.clone().dry_run(true);
    let before = f.node().await?;
    dry.set_pod_cidrs(&before, &cidrs(&["10.244.3.0/24"])?).await?;
    dry.set_network(&before, &NetworkStatus::CREATED, now()?).await?;
    assert_eq!(f.node().await?, before);
    Ok(())
}
