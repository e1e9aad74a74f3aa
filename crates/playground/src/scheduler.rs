//! A simulated scheduler, sufficient to show the effect of taints on Pods.
//!
//! ```text
//!  unscheduled Pods, Nodes ──► decide ──► Bind (a Binding) or MarkUnschedulable (the condition PodScheduled=False)
//! ```
//!
//! It supports readiness, cordons, taints with the effects `NoSchedule` and `NoExecute`, and `nodeSelector`, and picks the Node
//! with the fewest Pods. It ignores resources, affinity, priorities and volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::objects::{Node, Pod, Taint, Toleration};
use crate::timing::now;

const TICK: Duration = Duration::from_millis(100);
const CONCURRENCY: usize = 16;

/// Decision about an unscheduled Pod.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Binds the Pod to this Node.
    Bind { pod: PodKey, node: String },
    /// Records why no Node is feasible.
    MarkUnschedulable { pod: PodKey, message: String },
}

/// Namespace and name of a Pod.
#[derive(Debug, PartialEq, Eq, Clone)]
struct PodKey {
    namespace: String,
    name: String,
}

/// Runs the scheduler.
pub(crate) async fn run(client: Client, mut cache: Cache) {
    cache.synced().await;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        cache.changed(&mut ticks).await;
        let pods = cache.pods();
        if !pods.iter().any(|pod| is_unscheduled(pod)) {
            continue;
        }
        let decisions = decide(&pods, &cache.nodes());
        futures::stream::iter(decisions).for_each_concurrent(CONCURRENCY, |decision| apply(&client, decision)).await;
    }
}

fn decide(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Vec<Decision> {
    let mut load: HashMap<String, usize> = HashMap::new();
    for node in pods.iter().filter_map(|pod| pod.node()) {
        *load.entry(node.to_owned()).or_default() += 1;
    }
    let mut decisions = Vec::new();
    for pod in pods.iter().filter(|pod| is_unscheduled(pod)) {
        let key = PodKey { namespace: pod.namespace().unwrap_or_default(), name: pod.name_any() };
        match choose(pod, nodes, &load) {
            Ok(node) => {
                *load.entry(node.clone()).or_default() += 1;
                decisions.push(Decision::Bind { pod: key, node });
            }
            Err(message) if last_message(pod) != Some(&message) => {
                decisions.push(Decision::MarkUnschedulable { pod: key, message });
            }
            Err(_) => {}
        }
    }
    decisions
}

fn is_unscheduled(pod: &Pod) -> bool {
    let scheduler = &*pod.spec.scheduler_name;
    pod.node().is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && pod.phase() == "Pending"
        && (scheduler.is_empty() || scheduler == "default-scheduler")
}

/// Returns the feasible Node with the fewest Pods, or the reason why there is none.
fn choose(pod: &Pod, nodes: &[Arc<Node>], load: &HashMap<String, usize>) -> Result<String, String> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut feasible = Vec::new();
    for node in nodes {
        match unschedulable_reason(pod, node) {
            None => feasible.push(node.name_any()),
            Some(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    let least = feasible.into_iter().min_by_key(|name| load.get(name).copied().unwrap_or_default());
    least.ok_or_else(|| unschedulable_message(nodes.len(), &reasons))
}

// upstream: the wording of FailedScheduling.
fn unschedulable_message(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let reasons: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// Returns the reason why this Node is not feasible for this Pod.
fn unschedulable_reason(pod: &Pod, node: &Node) -> Option<String> {
    let repels = |taint: &&Taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !pod.spec.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    };
    if let Some(taint) = node.spec.taints.iter().find(repels) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
    }
    if node.spec.unschedulable {
        return Some("node(s) were unschedulable".to_owned());
    }
    if node.readiness() != "True" {
        return Some("node(s) were not ready".to_owned());
    }
    (!is_selected(pod, node)).then(|| "node(s) didn't match Pod's node affinity/selector".to_owned())
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration { key, operator, value, effect } = toleration;
    let any_value = operator == "Exists";
    (effect.is_empty() || *effect == taint.effect)
        && (*key == taint.key || (key.is_empty() && any_value))
        && (any_value || value == taint.value.as_deref().unwrap_or_default())
}

fn is_selected(pod: &Pod, node: &Node) -> bool {
    pod.spec.node_selector.iter().all(|(key, value)| node.labels().get(key) == Some(value))
}

/// Returns the message of the condition `PodScheduled`.
fn last_message(pod: &Pod) -> Option<&String> {
    let scheduled = pod.status.conditions.iter().find(|condition| condition.kind == "PodScheduled");
    scheduled.map(|condition| &condition.message)
}

/// Applies a decision. A failure is only logged, because the next tick decides again.
async fn apply(client: &Client, decision: Decision) {
    let done = match &decision {
        Decision::Bind { pod, node } => bind(client, pod, node).await,
        Decision::MarkUnschedulable { pod, message } => mark_unschedulable(client, pod, message).await,
    };
    if let Err(error) = done {
        tracing::debug!(%error, ?decision, "the simulated scheduler cannot update a Pod; retrying");
    }
}

async fn bind(client: &Client, pod: &PodKey, node: &str) -> kube::Result<()> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
    let answer: Value = pods.create_subresource("binding", &pod.name, &PostParams::default(), &binding).await?;
    tracing::trace!(%answer, pod = pod.name, node, "bound");
    Ok(())
}

async fn mark_unschedulable(client: &Client, pod: &PodKey, message: &str) -> kube::Result<()> {
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": now(),
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
    pods.patch_status(&pod.name, &PatchParams::default(), &patch).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, ready: &str, taints: Value) -> Arc<Node> {
        let value = json!({
            "metadata": {"name": name, "labels": {"zone": name}}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn pod(name: &str, spec: Value) -> Arc<Pod> {
        let value = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn web(tolerations: Value) -> Arc<Pod> {
        pod("web", json!({"containers": [], "tolerations": tolerations}))
    }

    fn outcome(pod: &Arc<Pod>, nodes: &[Arc<Node>]) -> Result<String, String> {
        choose(pod, nodes, &HashMap::new())
    }

    #[test]
    fn a_pod_is_unschedulable_while_every_node_has_the_uninitialized_taint() {
        let taint =
            json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
        let nodes = [node("a", "True", taint.clone()), node("b", "True", taint)];
        let message = outcome(&web(json!([])), &nodes).unwrap_err();
        assert_eq!(
            message,
            "0/2 nodes are available: 2 node(s) had untolerated taint \
             {node.cloudprovider.kubernetes.io/uninitialized: true}."
        );
    }

    #[test]
    fn a_toleration_matches_by_key_value_and_effect() {
        let tainted = [node("a", "True", json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]))];
        let cases = [
            (json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]), true),
            (json!([{"key": "k", "operator": "Exists"}]), true),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": "k", "value": "other"}]), false),
            (json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]), false),
            (json!([{"key": "other", "operator": "Exists"}]), false),
        ];
        for (tolerations, fits) in cases {
            assert_eq!(outcome(&web(tolerations.clone()), &tainted).is_ok(), fits, "{tolerations}");
        }
    }

    #[test]
    fn a_prefer_no_schedule_taint_is_ignored() {
        let soft = [node("a", "True", json!([{"key": "k", "effect": "PreferNoSchedule"}]))];
        assert_eq!(outcome(&web(json!([])), &soft), Ok("a".to_owned()));
    }

    #[test]
    fn nodes_that_are_not_ready_or_not_selected_are_not_feasible() {
        let nodes = [node("a", "Unknown", json!([])), node("b", "True", json!([]))];
        let picky = pod("web", json!({"containers": [], "nodeSelector": {"zone": "c"}}));
        assert_eq!(
            outcome(&picky, &nodes).unwrap_err(),
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were not ready."
        );
    }

    #[test]
    fn pods_are_spread_over_the_nodes() {
        let nodes = [node("a", "True", json!([])), node("b", "True", json!([]))];
        let pods = [pod("p1", json!({"containers": []})), pod("p2", json!({"containers": []}))];
        let chosen: Vec<_> = decide(&pods, &nodes).into_iter().filter_map(bound_to).collect();
        assert_eq!(chosen, ["a", "b"]);
    }

    fn bound_to(decision: Decision) -> Option<String> {
        match decision {
            Decision::Bind { node, .. } => Some(node),
            Decision::MarkUnschedulable { .. } => None,
        }
    }

    #[test]
    fn an_unchanged_reason_is_not_written_again() {
        let mut waiting = (*web(json!([]))).clone();
        waiting.status = serde_json::from_value(json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "no nodes available to schedule pods"},
        ]}))
        .unwrap();
        assert_eq!(decide(&[Arc::new(waiting)], &[]), []);
        assert_eq!(decide(&[web(json!([]))], &[]).len(), 1);
    }
}
