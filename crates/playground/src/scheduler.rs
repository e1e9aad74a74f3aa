//! A simulated scheduler, just able enough to show what a taint does to a Pod.
//!
//! ```text
//!  Pods without a Node, Nodes ──► decide ──► Bind (a Binding) or Explain (the condition PodScheduled=False)
//! ```
//!
//! It knows readiness, cordons, taints with the effects `NoSchedule` and `NoExecute`, and `nodeSelector`, and spreads by
//! count. It does not know resources, affinity, priorities or volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::objects::{Node, Pod, Taint, Toleration};
use crate::time::now;
use crate::view::View;

const TICK: Duration = Duration::from_millis(100);
const CONCURRENCY: usize = 16;

/// What becomes of a Pod that has no Node.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It goes to this Node.
    Bind { pod: PodKey, node: String },
    /// It waits, and this is why.
    Explain { pod: PodKey, message: String },
}

/// A Pod's namespace and name.
#[derive(Debug, PartialEq, Eq, Clone)]
struct PodKey {
    namespace: String,
    name: String,
}

/// Places Pods, for as long as it is polled.
pub(crate) async fn run(client: Client, mut view: View) {
    view.synced().await;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        view.changed(&mut ticks).await;
        let pods = view.pods();
        if !pods.iter().any(|pod| is_waiting(pod)) {
            continue;
        }
        let decisions = decide(&pods, &view.nodes());
        futures::stream::iter(decisions).for_each_concurrent(CONCURRENCY, |decision| apply(&client, decision)).await;
    }
}

fn decide(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Vec<Decision> {
    let mut load: HashMap<String, usize> = HashMap::new();
    for node in pods.iter().filter_map(|pod| pod.node()) {
        *load.entry(node.to_owned()).or_default() += 1;
    }
    let mut decisions = Vec::new();
    for pod in pods.iter().filter(|pod| is_waiting(pod)) {
        let key = PodKey { namespace: pod.namespace().unwrap_or_default(), name: pod.name_any() };
        match choose(pod, nodes, &load) {
            Ok(node) => {
                *load.entry(node.clone()).or_default() += 1;
                decisions.push(Decision::Bind { pod: key, node });
            }
            Err(message) if explained(pod) != Some(&message) => {
                decisions.push(Decision::Explain { pod: key, message });
            }
            Err(_) => {}
        }
    }
    decisions
}

fn is_waiting(pod: &Pod) -> bool {
    let scheduler = &*pod.spec.scheduler_name;
    pod.node().is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && pod.phase() == "Pending"
        && (scheduler.is_empty() || scheduler == "default-scheduler")
}

/// The Node with the fewest Pods among those that will have this one, or why there is none.
fn choose(pod: &Pod, nodes: &[Arc<Node>], load: &HashMap<String, usize>) -> Result<String, String> {
    let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in nodes {
        match obstacle(pod, node) {
            None => fitting.push(node.name_any()),
            Some(reason) => *obstacles.entry(reason).or_default() += 1,
        }
    }
    let least = fitting.into_iter().min_by_key(|name| load.get(name).copied().unwrap_or_default());
    least.ok_or_else(|| complaint(nodes.len(), &obstacles))
}

// upstream: the wording of FailedScheduling, which people know how to read.
fn complaint(nodes: usize, obstacles: &BTreeMap<String, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let reasons: Vec<_> = obstacles.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// What keeps this Pod off this Node.
fn obstacle(pod: &Pod, node: &Node) -> Option<String> {
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

/// The reason that the Pod was given last.
fn explained(pod: &Pod) -> Option<&String> {
    let scheduled = pod.status.conditions.iter().find(|condition| condition.kind == "PodScheduled");
    scheduled.map(|condition| &condition.message)
}

/// A failure needs no more than a line: the next tick decides anew, on what is true then.
async fn apply(client: &Client, decision: Decision) {
    let done = match &decision {
        Decision::Bind { pod, node } => bind(client, pod, node).await,
        Decision::Explain { pod, message } => explain(client, pod, message).await,
    };
    if let Err(error) = done {
        tracing::debug!(%error, ?decision, "the simulated scheduler will try again");
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

async fn explain(client: &Client, pod: &PodKey, message: &str) -> kube::Result<()> {
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
    fn a_pod_waits_while_every_node_has_the_init_taint_and_is_told_why() {
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
    fn a_toleration_opens_exactly_the_taints_it_names() {
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
    fn a_soft_taint_repels_nobody() {
        let soft = [node("a", "True", json!([{"key": "k", "effect": "PreferNoSchedule"}]))];
        assert_eq!(outcome(&web(json!([])), &soft), Ok("a".to_owned()));
    }

    #[test]
    fn a_node_that_is_not_ready_or_not_selected_gets_nothing() {
        let nodes = [node("a", "Unknown", json!([])), node("b", "True", json!([]))];
        let picky = pod("web", json!({"containers": [], "nodeSelector": {"zone": "c"}}));
        assert_eq!(
            outcome(&picky, &nodes).unwrap_err(),
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were not ready."
        );
    }

    #[test]
    fn pods_spread_over_the_nodes() {
        let nodes = [node("a", "True", json!([])), node("b", "True", json!([]))];
        let pods = [pod("p1", json!({"containers": []})), pod("p2", json!({"containers": []}))];
        let chosen: Vec<_> = decide(&pods, &nodes).into_iter().filter_map(bound_to).collect();
        assert_eq!(chosen, ["a", "b"]);
    }

    fn bound_to(decision: Decision) -> Option<String> {
        match decision {
            Decision::Bind { node, .. } => Some(node),
            Decision::Explain { .. } => None,
        }
    }

    #[test]
    fn the_same_reason_is_not_written_twice() {
        let mut waiting = (*web(json!([]))).clone();
        waiting.status = serde_json::from_value(json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "no nodes available to schedule pods"},
        ]}))
        .unwrap();
        assert_eq!(decide(&[Arc::new(waiting)], &[]), []);
        assert_eq!(decide(&[web(json!([]))], &[]).len(), 1);
    }
}
