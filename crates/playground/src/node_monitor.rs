//! What the kube-controller-manager does about Nodes that fall silent, simulated.
//!
//! * A kubelet whose Lease has not moved for [`Pace::silence`] makes its Node's conditions `Unknown`.
//! * A Node that is not ready has the taint `node.kubernetes.io/not-ready` or `…/unreachable`, and a ready one neither.
//!   The API server puts the first on every new Node.
//! * A Node whose network is not there yet, by the condition `NetworkUnavailable`, has the taint
//!   `node.kubernetes.io/network-unavailable`. The condition is not this one's to change.
//! * A Pod whose Node is gone is removed.
//!
//! The real one also evicts Pods from Nodes that stay silent, after five minutes; this one does not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bowline_core::well_known::NO_SCHEDULE;
use futures::StreamExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::objects::{Lease, Node, Pod, Taint};
use crate::time::{Pace, now};
use crate::view::View;

const CONCURRENCY: usize = 16;

/// The conditions that only a kubelet can know.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// On every Node until its kubelet says that it is ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// On every Node until Pods elsewhere can be reached from it.
pub(crate) const NO_NETWORK: &str = "node.kubernetes.io/network-unavailable";

/// All taints that are ours to set and to take off.
const OURS: [&str; 3] = [NOT_READY, UNREACHABLE, NO_NETWORK];

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
        futures::stream::iter(&nodes).for_each_concurrent(CONCURRENCY, |node| retaint(&client, node)).await;
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
        let beats: HashMap<String, String> =
            leases.iter().map(|lease| (lease.name_any(), lease.spec.renew_time.clone())).collect();
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

/// Somebody said something of the Node's readiness that is not "unknown", or nobody has said anything yet.
fn readiness_is_claimed(node: &Node) -> bool {
    node.ready_condition().is_none() || node.readiness() != "Unknown"
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

/// The taints that a Node has for what its conditions say.
// upstream: for the pressures there are taints, too; the kubelets here know none.
fn condition_taints(node: &Node) -> impl Iterator<Item = &'static str> {
    let readiness = match node.readiness() {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    };
    readiness.into_iter().chain((node.network_unavailable() == "True").then_some(NO_NETWORK))
}

/// The taints that the Node should have, if those are others; the ones of others stay, in their order.
fn wanted_taints(node: &Node) -> Option<Vec<Taint>> {
    node.ready_condition()?;
    let wanted: Vec<_> = condition_taints(node).collect();
    let is_ours = |taint: &Taint| taint.effect == NO_SCHEDULE && OURS.contains(&&*taint.key);
    let stays = |taint: &&Taint| !is_ours(taint) || wanted.contains(&&*taint.key);
    let mut list: Vec<_> = node.spec.taints.iter().filter(stays).cloned().collect();
    for key in wanted {
        if !list.iter().any(|taint| is_ours(taint) && taint.key == key) {
            list.push(Taint { key: key.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() });
        }
    }
    (list != node.spec.taints).then_some(list)
}

async fn retaint(client: &Client, node: &Node) {
    let Some(taints) = wanted_taints(node) else { return };
    // The version makes it fail if somebody else has changed the taints; the next tick sees theirs, too.
    let metadata = json!({"resourceVersion": node.resource_version()});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": taints}}));
    if let Err(error) = Api::<Node>::all(client.clone()).patch(&node.name_any(), &PatchParams::default(), &patch).await
    {
        tracing::debug!(%error, node = node.name_any(), "the simulated node monitor will try again");
    }
}

/// The Pods of Nodes that are gone.
fn orphans(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Vec<Arc<Pod>> {
    let present: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
    let is_orphan = |pod: &&Arc<Pod>| pod.node().is_some_and(|node| !present.contains(node));
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
    fn a_node_has_the_taints_of_its_conditions_and_keeps_those_of_others() {
        let cases = [
            ("True", "False", vec!["other"], None),
            ("True", "False", vec![NOT_READY, "other"], Some(vec!["other"])),
            ("False", "False", vec!["other"], Some(vec!["other", NOT_READY])),
            ("False", "False", vec![NOT_READY], None),
            ("Unknown", "False", vec![NOT_READY, "other"], Some(vec!["other", UNREACHABLE])),
            ("Unknown", "False", vec![UNREACHABLE], None),
            ("True", "True", vec!["other"], Some(vec!["other", NO_NETWORK])),
            ("True", "True", vec![NO_NETWORK], None),
            ("True", "False", vec![NO_NETWORK, "other"], Some(vec!["other"])),
            ("True", "Unknown", vec![NO_NETWORK], Some(vec![])),
            ("False", "True", vec![], Some(vec![NOT_READY, NO_NETWORK])),
        ];
        for (ready, unavailable, before, after) in cases {
            let mut node = (*with_network(ready, unavailable)).clone();
            let taint =
                |key: &&str| Taint { key: (*key).to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() };
            node.spec.taints = before.iter().map(taint).collect();
            let wanted = wanted_taints(&node);
            let keys = wanted.as_ref().map(|taints| taints.iter().map(|taint| &*taint.key).collect::<Vec<_>>());
            assert_eq!(keys, after, "{ready} and {unavailable} with {before:?}");
        }
        assert_eq!(wanted_taints(&Node::default()), None, "nobody has said anything yet");
    }

    #[test]
    fn a_pod_is_an_orphan_once_its_node_is_gone() {
        let pod = |node: &str| -> Arc<Pod> {
            let value = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": node}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let pods = [pod("a"), pod("gone"), pod("")];
        let found = orphans(&pods, &[node("True")]);
        assert_eq!(found.iter().filter_map(|pod| pod.node()).collect::<Vec<_>>(), ["gone"]);
    }
}
