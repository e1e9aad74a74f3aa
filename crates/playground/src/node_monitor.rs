//! Simulates the node lifecycle controller and the Pod garbage collector of kube-controller-manager.
//!
//! * If a kubelet does not renew its Lease for [`Timing::grace_period`], the conditions of its Node become `Unknown`.
//! * A Node that is not ready has the taint `node.kubernetes.io/not-ready` or `…/unreachable`, and a ready one neither. The API
//!   server sets the first on every new Node.
//! * A Node with the condition `NetworkUnavailable` has the taint `node.kubernetes.io/network-unavailable`. The condition itself is
//!   managed by the route controller.
//! * A Pod whose Node is deleted is deleted.
//!
//! The real controller also evicts Pods from unreachable Nodes after five minutes; this one does not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bowline_core::well_known::NO_SCHEDULE;
use futures::StreamExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::objects::{Lease, Node, Pod, Taint};
use crate::timing::{Timing, now};

const CONCURRENCY: usize = 16;

/// Conditions that the kubelet reports.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Taint of every Node until its kubelet reports it as ready.
pub(crate) const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// Taint of every Node until its network is available.
pub(crate) const NETWORK_UNAVAILABLE_TAINT: &str = "node.kubernetes.io/network-unavailable";

/// Taints that this monitor sets and removes.
const MANAGED_TAINTS: [&str; 3] = [NOT_READY_TAINT, UNREACHABLE_TAINT, NETWORK_UNAVAILABLE_TAINT];

/// Runs the monitor.
pub(crate) async fn run(client: Client, cache: Cache, timing: Timing) {
    cache.synced().await;
    let mut heartbeats = Heartbeats::default();
    let mut ticks = tokio::time::interval((timing.grace_period / 16).max(Duration::from_millis(50)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let nodes = cache.nodes();
        let missed = heartbeats.missed(&nodes, &cache.leases(), timing.grace_period, Instant::now());
        futures::stream::iter(missed).for_each_concurrent(CONCURRENCY, |node| mark_unknown(&client, node)).await;
        futures::stream::iter(&nodes).for_each_concurrent(CONCURRENCY, |node| sync_taints(&client, node)).await;
        let orphans = orphans(&cache.pods(), &nodes);
        futures::stream::iter(orphans).for_each_concurrent(CONCURRENCY, |pod| delete_pod(&client, pod)).await;
    }
}

/// Last Lease renewal of each kubelet, by Node name.
#[derive(Default)]
struct Heartbeats(HashMap<String, Heartbeat>);

struct Heartbeat {
    /// Renew time in the Lease.
    renew_time: String,
    // upstream: the time when the change was observed, not the one in the Lease, because the clocks of machines differ. Here it
    // also tolerates a pause of this process.
    observed: Instant,
}

impl Heartbeats {
    /// Returns the Nodes whose grace period has expired and whose conditions are not `Unknown` yet.
    fn missed(&mut self, nodes: &[Arc<Node>], leases: &[Arc<Lease>], grace: Duration, now: Instant) -> Vec<Arc<Node>> {
        let renew_times: HashMap<String, String> =
            leases.iter().map(|lease| (lease.name_any(), lease.spec.renew_time.clone())).collect();
        let present: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        self.0.retain(|name, _| present.contains(name));
        let is_missed = |node: &&Arc<Node>| {
            let name = node.name_any();
            let renew_time = renew_times.get(&name).cloned().unwrap_or_default();
            let grace_period = self.observe(name, renew_time, now);
            grace_period > grace && is_reported(node)
        };
        nodes.iter().filter(is_missed).cloned().collect()
    }

    /// Records the renew time of a Lease. Returns the time since it last changed.
    fn observe(&mut self, name: String, renew_time: String, now: Instant) -> Duration {
        let heartbeat =
            self.0.entry(name).or_insert_with(|| Heartbeat { renew_time: renew_time.clone(), observed: now });
        if heartbeat.renew_time != renew_time {
            *heartbeat = Heartbeat { renew_time, observed: now };
        }
        now - heartbeat.observed
    }
}

/// Returns whether the condition `Ready` is missing or not `Unknown`.
fn is_reported(node: &Node) -> bool {
    node.ready_condition().is_none() || node.readiness() != "Unknown"
}

async fn mark_unknown(client: &Client, node: Arc<Node>) {
    let patch = Patch::Strategic(json!({"status": {"conditions": unknown_conditions(&node)}}));
    let nodes = Api::<Node>::all(client.clone());
    if let Err(error) = nodes.patch_status(&node.name_any(), &PatchParams::default(), &patch).await {
        tracing::debug!(%error, node = node.name_any(), "the simulated node monitor cannot update a Node; retrying");
    }
}

// upstream: these reasons and messages.
fn unknown_conditions(node: &Node) -> Vec<Value> {
    let is_present = |kind: &str| node.status.conditions.iter().any(|condition| condition.kind == kind);
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

/// Returns the taints for the conditions of a Node.
// upstream: the pressure conditions have taints, too; the simulated kubelets never report pressure.
fn condition_taints(node: &Node) -> impl Iterator<Item = &'static str> {
    let readiness = match node.readiness() {
        "True" => None,
        "False" => Some(NOT_READY_TAINT),
        _ => Some(UNREACHABLE_TAINT),
    };
    readiness.into_iter().chain((node.network_unavailable() == "True").then_some(NETWORK_UNAVAILABLE_TAINT))
}

/// Returns the desired taints if they differ from the current ones. Taints of other controllers stay in their order.
fn desired_taints(node: &Node) -> Option<Vec<Taint>> {
    node.ready_condition()?;
    let desired: Vec<_> = condition_taints(node).collect();
    let is_managed = |taint: &Taint| taint.effect == NO_SCHEDULE && MANAGED_TAINTS.contains(&&*taint.key);
    let is_kept = |taint: &&Taint| !is_managed(taint) || desired.contains(&&*taint.key);
    let mut list: Vec<_> = node.spec.taints.iter().filter(is_kept).cloned().collect();
    for key in desired {
        if !list.iter().any(|taint| is_managed(taint) && taint.key == key) {
            list.push(Taint { key: key.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() });
        }
    }
    (list != node.spec.taints).then_some(list)
}

async fn sync_taints(client: &Client, node: &Node) {
    let Some(taints) = desired_taints(node) else { return };
    // The resourceVersion makes the patch fail with a conflict if the taints have changed; the next tick retries.
    let metadata = json!({"resourceVersion": node.resource_version()});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": taints}}));
    if let Err(error) = Api::<Node>::all(client.clone()).patch(&node.name_any(), &PatchParams::default(), &patch).await
    {
        tracing::debug!(%error, node = node.name_any(), "the simulated node monitor cannot update a Node; retrying");
    }
}

/// Returns the Pods of deleted Nodes.
fn orphans(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Vec<Arc<Pod>> {
    let present: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
    let is_orphan = |pod: &&Arc<Pod>| pod.node().is_some_and(|node| !present.contains(node));
    pods.iter().filter(is_orphan).cloned().collect()
}

async fn delete_pod(client: &Client, pod: Arc<Pod>) {
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    if let Err(error) = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await {
        tracing::debug!(%error, pod = pod.name_any(), "the simulated Pod garbage collector cannot delete a Pod; retrying");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(4);

    fn node(ready: &str) -> Arc<Node> {
        with_network(ready, "False")
    }

    fn with_network(ready: &str, unavailable: &str) -> Arc<Node> {
        let conditions =
            json!([{"type": "Ready", "status": ready}, {"type": "NetworkUnavailable", "status": unavailable}]);
        let value = json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn lease(second: u32) -> Arc<Lease> {
        let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"renewTime": renewed}})).unwrap())
    }

    #[test]
    fn a_node_misses_heartbeats_once_its_lease_was_not_renewed_for_the_grace_period() {
        let (mut heartbeats, start) = (Heartbeats::default(), Instant::now());
        let mut missed = |second, lease_second, ready: &str| {
            let now = start + Duration::from_secs(second);
            !heartbeats.missed(&[node(ready)], &[lease(lease_second)], GRACE, now).is_empty()
        };
        assert!(!missed(0, 0, "True"), "just observed");
        assert!(!missed(4, 0, "True"), "not longer than the grace period");
        assert!(missed(5, 0, "True"), "longer than the grace period");
        assert!(!missed(6, 0, "Unknown"), "reported already");
        assert!(!missed(7, 7, "Unknown"), "renewed");
        assert!(!missed(11, 7, "True"), "the grace period starts again");
        assert!(missed(12, 7, "False"), "a Node that is not ready can miss heartbeats, too");
    }

    #[test]
    fn a_node_without_a_kubelet_never_posted_its_status() {
        let bare: Arc<Node> = Arc::new(serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap());
        let (mut heartbeats, start) = (Heartbeats::default(), Instant::now());
        assert!(heartbeats.missed(std::slice::from_ref(&bare), &[], GRACE, start).is_empty());
        let missed = heartbeats.missed(std::slice::from_ref(&bare), &[], GRACE, start + GRACE * 2);
        assert_eq!(missed.len(), 1);
        assert!(unknown_conditions(&bare).iter().all(|condition| condition["reason"] == "NodeStatusNeverUpdated"));
    }

    #[test]
    fn a_node_has_the_taints_of_its_conditions_and_keeps_other_taints() {
        let cases = [
            ("True", "False", vec!["other"], None),
            ("True", "False", vec![NOT_READY_TAINT, "other"], Some(vec!["other"])),
            ("False", "False", vec!["other"], Some(vec!["other", NOT_READY_TAINT])),
            ("False", "False", vec![NOT_READY_TAINT], None),
            ("Unknown", "False", vec![NOT_READY_TAINT, "other"], Some(vec!["other", UNREACHABLE_TAINT])),
            ("Unknown", "False", vec![UNREACHABLE_TAINT], None),
            ("True", "True", vec!["other"], Some(vec!["other", NETWORK_UNAVAILABLE_TAINT])),
            ("True", "True", vec![NETWORK_UNAVAILABLE_TAINT], None),
            ("True", "False", vec![NETWORK_UNAVAILABLE_TAINT, "other"], Some(vec!["other"])),
            ("True", "Unknown", vec![NETWORK_UNAVAILABLE_TAINT], Some(vec![])),
            ("False", "True", vec![], Some(vec![NOT_READY_TAINT, NETWORK_UNAVAILABLE_TAINT])),
        ];
        for (ready, unavailable, before, after) in cases {
            let mut node = (*with_network(ready, unavailable)).clone();
            let taint =
                |key: &&str| Taint { key: (*key).to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() };
            node.spec.taints = before.iter().map(taint).collect();
            let desired = desired_taints(&node);
            let keys = desired.as_ref().map(|taints| taints.iter().map(|taint| &*taint.key).collect::<Vec<_>>());
            assert_eq!(keys, after, "{ready} and {unavailable} with {before:?}");
        }
        assert_eq!(desired_taints(&Node::default()), None, "no condition yet");
    }

    #[test]
    fn a_pod_is_an_orphan_once_its_node_is_deleted() {
        let pod = |node: &str| -> Arc<Pod> {
            let value = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": node}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let pods = [pod("a"), pod("gone"), pod("")];
        let found = orphans(&pods, &[node("True")]);
        assert_eq!(found.iter().filter_map(|pod| pod.node()).collect::<Vec<_>>(), ["gone"]);
    }
}
