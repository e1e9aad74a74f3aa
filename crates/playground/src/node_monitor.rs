//! What the kube-controller-manager does about Nodes that fall silent, simulated.
//!
//! * A kubelet whose Lease has not moved for [`Pace::silence`] makes its Node's conditions `Unknown`.
//! * A Pod whose Node is gone is removed.
//!
//! The real one also puts on taints (`node.kubernetes.io/unreachable`) and evicts; the playground's scheduler looks at
//! readiness instead.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::time::{Pace, now};
use crate::view::{View, node_of, readiness};

const CONCURRENCY: usize = 16;

/// The conditions that only a kubelet can know.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Watches over the Nodes, for as long as it is polled.
pub(crate) async fn run(client: Client, view: View, pace: Pace) {
    view.synced().await;
    let mut pulses = Pulses::default();
    let mut ticks = tokio::time::interval((pace.silence / 16).max(Duration::from_millis(50)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let nodes = view.nodes();
        let silent = pulses.silent(&nodes, &view.leases(), pace.silence, Instant::now());
        futures::stream::iter(silent).for_each_concurrent(CONCURRENCY, |node| mark_unknown(&client, node)).await;
        let orphans = orphans(&view.pods(), &nodes);
        futures::stream::iter(orphans).for_each_concurrent(CONCURRENCY, |pod| remove(&client, pod)).await;
    }
}

/// When each kubelet was last heard of.
#[derive(Default)]
struct Pulses(HashMap<String, Pulse>);

struct Pulse {
    /// What the Lease said then.
    beat: String,
    // upstream: the time when the change was seen, not the one in the Lease, because the clocks of machines differ.
    // Here it also forgives this process a pause.
    seen: Instant,
}

impl Pulses {
    /// The Nodes that have been silent for too long, and do not say so yet.
    fn silent(&mut self, nodes: &[Arc<Node>], leases: &[Arc<Lease>], grace: Duration, now: Instant) -> Vec<Arc<Node>> {
        let beats: HashMap<String, String> = leases.iter().map(|lease| (lease.name_any(), beat(lease))).collect();
        let present: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        self.0.retain(|name, _| present.contains(name));
        let is_silent = |node: &&Arc<Node>| {
            let name = node.name_any();
            let beat = beats.get(&name).cloned().unwrap_or_default();
            let silence = self.listen(name, beat, now);
            silence > grace && readiness_is_claimed(node)
        };
        nodes.iter().filter(is_silent).cloned().collect()
    }

    /// Takes note of what a Lease says, and tells for how long it has said so.
    fn listen(&mut self, name: String, beat: String, now: Instant) -> Duration {
        let pulse = self.0.entry(name).or_insert_with(|| Pulse { beat: beat.clone(), seen: now });
        if pulse.beat != beat {
            *pulse = Pulse { beat, seen: now };
        }
        now - pulse.seen
    }
}

/// What changes with every renewal.
fn beat(lease: &Lease) -> String {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.map(|time| time.0.to_string()).unwrap_or_default()
}

/// Somebody said something of the Node's readiness that is not "unknown", or nobody has said anything yet.
fn readiness_is_claimed(node: &Node) -> bool {
    crate::view::ready_condition(node).is_none() || readiness(node) != "Unknown"
}

async fn mark_unknown(client: &Client, node: Arc<Node>) {
    let patch = Patch::Strategic(json!({"status": {"conditions": unknown_conditions(&node)}}));
    let nodes = Api::<Node>::all(client.clone());
    if let Err(error) = nodes.patch_status(&node.name_any(), &PatchParams::default(), &patch).await {
        tracing::debug!(%error, node = node.name_any(), "the simulated node monitor will try again");
    }
}

// upstream: these reasons and messages.
fn unknown_conditions(node: &Node) -> Vec<Value> {
    let present = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_present = |kind: &str| present.iter().any(|condition| condition.type_ == kind);
    let unknown = |kind: &str| {
        let (reason, message) = match is_present(kind) {
            true => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            false => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        json!({
            "type": kind, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": now(),
        })
    };
    CONDITIONS.into_iter().map(unknown).collect()
}

/// The Pods of Nodes that are gone.
fn orphans(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Vec<Arc<Pod>> {
    let present: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
    let is_orphan = |pod: &&Arc<Pod>| node_of(pod).is_some_and(|node| !present.contains(node));
    pods.iter().filter(is_orphan).cloned().collect()
}

async fn remove(client: &Client, pod: Arc<Pod>) {
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    if let Err(error) = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await {
        tracing::debug!(%error, pod = pod.name_any(), "the simulated pod collector will try again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(4);

    fn node(ready: &str) -> Arc<Node> {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let value = json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn lease(second: u32) -> Arc<Lease> {
        let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"renewTime": renewed}})).unwrap())
    }

    #[test]
    fn a_node_is_silent_once_its_lease_has_not_moved_for_the_grace_period() {
        let (mut pulses, start) = (Pulses::default(), Instant::now());
        let mut silent = |second, lease_second, ready: &str| {
            let now = start + Duration::from_secs(second);
            !pulses.silent(&[node(ready)], &[lease(lease_second)], GRACE, now).is_empty()
        };
        assert!(!silent(0, 0, "True"), "just seen");
        assert!(!silent(4, 0, "True"), "not longer than the grace period");
        assert!(silent(5, 0, "True"), "longer");
        assert!(!silent(6, 0, "Unknown"), "said already");
        assert!(!silent(7, 7, "Unknown"), "heard of again");
        assert!(!silent(11, 7, "True"), "and the count starts anew");
        assert!(silent(12, 7, "False"), "a node that said it is not ready can fall silent, too");
    }

    #[test]
    fn a_node_without_a_kubelet_was_never_heard_of() {
        let bare: Arc<Node> = Arc::new(serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap());
        let (mut pulses, start) = (Pulses::default(), Instant::now());
        assert!(pulses.silent(std::slice::from_ref(&bare), &[], GRACE, start).is_empty());
        let silent = pulses.silent(std::slice::from_ref(&bare), &[], GRACE, start + GRACE * 2);
        assert_eq!(silent.len(), 1);
        assert!(unknown_conditions(&bare).iter().all(|condition| condition["reason"] == "NodeStatusNeverUpdated"));
    }

    #[test]
    fn a_pod_is_an_orphan_once_its_node_is_gone() {
        let pod = |node: &str| -> Arc<Pod> {
            let value = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": node}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let pods = [pod("a"), pod("gone"), pod("")];
        let found = orphans(&pods, &[node("True")]);
        assert_eq!(found.iter().filter_map(|pod| node_of(pod)).collect::<Vec<_>>(), ["gone"]);
    }
}
