//! What the cluster adds to a new pod, and why it may refuse it.
//!
//! The steps stand in for upstream's admission plugins of the same names, in the order they run there:
//! ServiceAccount, Priority, DefaultTolerationSeconds, RuntimeClass, PodTopologyLabels.

use serde_json::{Value, json};

use super::service_account;
use crate::resources::WriteCx;
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

pub(super) fn create(cx: &WriteCx<'_>, pod: &mut Value) -> ApiResult<()> {
    service_account::admit(cx, pod)?;
    resolve_priority(&mut pod["spec"]).map_err(|why| refused(cx, pod, &why))?;
    tolerate_node_trouble(&mut pod["spec"]);
    refuse_runtime_class(&pod["spec"]).map_err(|why| refused(cx, pod, &why))?;
    if let Some(node) = cx.state.store.get("nodes", "", pod.text("spec.nodeName")) {
        copy_topology(pod, &node.labels);
    }
    Ok(())
}

pub(super) fn update(new: &mut Value, old: &Value) {
    for field in ["spec.priority", "spec.preemptionPolicy"] {
        if !new.has(field) && old.has(field) {
            new.put(field, old.at(field).clone());
        }
    }
    tolerate_node_trouble(&mut new["spec"]);
}

/// `pods "a" is forbidden: why`.
pub(super) fn refused(cx: &WriteCx<'_>, pod: &Value, why: &str) -> ApiError {
    let name = match (pod.text("metadata.name"), pod.text("metadata.generateName")) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    };
    ApiError::forbidden(cx.resource.named(), name, why)
}

/// The priority classes every cluster has.
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

fn resolve_priority(spec: &mut Value) -> Result<(), String> {
    let class = spec.text("priorityClassName");
    let priority = match SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class) {
        Some((_, priority)) => *priority,
        None if class.is_empty() => 0,
        None => return Err(format!("no PriorityClass with name {class} was found")),
    };
    if let Some(given) = spec.int("priority").filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; \
             priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    const POLICY: &str = "PreemptLowerPriority";
    let policy = spec.text("preemptionPolicy");
    if !matches!(policy, "" | POLICY) {
        return Err(format!(
            "the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; \
             priority admission controller computed {POLICY} from the given PriorityClass name"
        ));
    }
    spec.put("priority", priority);
    spec.put("preemptionPolicy", POLICY);
    Ok(())
}

/// Lets a pod stay for five minutes on a node that is in trouble, unless it says otherwise.
fn tolerate_node_trouble(spec: &mut Value) {
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = spec.list("tolerations").iter().any(|t| {
            (t.text("key") == taint || t.text("key").is_empty()) && matches!(t.text("effect"), "" | "NoExecute")
        });
        if !tolerated {
            let toleration =
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            append(spec, "tolerations", toleration);
        }
    }
}

/// Adds to a list that may not be there yet.
pub(super) fn append(object: &mut Value, field: &str, item: Value) {
    match object.list_mut(field) {
        Some(list) => list.push(item),
        None => object.put(field, vec![item]),
    }
}

/// This server has no runtime classes, so none can be found.
fn refuse_runtime_class(spec: &Value) -> Result<(), String> {
    match spec.at("runtimeClassName") {
        Value::String(name) => Err(format!("pod rejected: RuntimeClass {name:?} not found")),
        _ if spec.map("overhead").is_some_and(|o| !o.is_empty()) => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
        }
        _ => Ok(()),
    }
}

/// The labels of a node that its pods carry too.
pub(crate) const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Gives a pod (or a binding) the topology labels of its node.
pub(crate) fn copy_topology(object: &mut Value, node_labels: &std::collections::BTreeMap<String, String>) {
    let copied: Vec<_> = TOPOLOGY_LABELS.iter().filter_map(|key| Some((*key, node_labels.get(*key)?))).collect();
    if copied.is_empty() {
        return;
    }
    if !object.at("metadata.labels").is_object() {
        object.put("metadata.labels", json!({}));
    }
    if let Some(labels) = object.at_mut("metadata.labels").and_then(Value::as_object_mut) {
        labels.extend(copied.into_iter().map(|(key, value)| (key.to_owned(), value.clone().into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn priority_comes_from_the_class() {
        let table = [
            (json!({}), Ok(0)),
            (json!({"priorityClassName": "system-node-critical"}), Ok(2_000_001_000)),
            (json!({"priority": 0}), Ok(0)),
            (json!({"priorityClassName": "mine"}), Err("no PriorityClass with name mine was found")),
            (
                json!({"priority": 7}),
                Err("the integer value of priority (7) must not be provided in pod spec; priority admission \
                     controller computed 0 from the given PriorityClass name"),
            ),
            (
                json!({"preemptionPolicy": "Never"}),
                Err("the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority \
                     admission controller computed PreemptLowerPriority from the given PriorityClass name"),
            ),
        ];
        for (mut spec, expected) in table {
            let got = resolve_priority(&mut spec).map(|()| spec.int("priority").unwrap_or(-1));
            assert_eq!(got, expected.map_err(str::to_owned), "{spec}");
        }
    }

    #[test]
    fn a_pod_that_tolerates_everything_is_left_alone() {
        let mut spec = json!({"tolerations": [{"operator": "Exists"}]});
        tolerate_node_trouble(&mut spec);
        assert_eq!(spec.list("tolerations").len(), 1);
        let mut spec = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]});
        tolerate_node_trouble(&mut spec);
        let keys: Vec<&str> = spec.list("tolerations").iter().map(|t| t.text("key")).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    }

    #[test]
    fn runtime_classes_do_not_exist() {
        assert_eq!(refuse_runtime_class(&json!({})), Ok(()));
        assert!(refuse_runtime_class(&json!({"runtimeClassName": "kata"})).is_err());
        assert!(refuse_runtime_class(&json!({"overhead": {"cpu": "1"}})).is_err());
    }

    #[test]
    fn topology_labels_overwrite_those_of_the_pod() {
        let node =
            BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "z".to_owned()), ("x".into(), "y".into())]);
        let mut pod = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "other", "a": "b"}}});
        copy_topology(&mut pod, &node);
        assert_eq!(pod.at("metadata.labels"), &json!({"topology.kubernetes.io/zone": "z", "a": "b"}));
        let mut bare = json!({"metadata": {}});
        copy_topology(&mut bare, &BTreeMap::new());
        assert_eq!(bare, json!({"metadata": {}}));
    }
}
