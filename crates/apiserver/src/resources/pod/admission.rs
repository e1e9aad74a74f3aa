//! Pod admission.
//!
//! The steps implement upstream's admission plugins of the same names, in upstream's order:
//! ServiceAccount, Priority, DefaultTolerationSeconds, RuntimeClass, PodTopologyLabels.

use serde_json::{Value, json};

use super::service_account;
use crate::resources::WriteCx;
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

pub(super) fn create(cx: &WriteCx<'_>, pod: &mut Value) -> ApiResult<()> {
    service_account::admit(cx, pod)?;
    resolve_priority(&mut pod["spec"]).map_err(|why| forbidden(cx, pod, &why))?;
    default_toleration_seconds(&mut pod["spec"]);
    reject_runtime_class(&pod["spec"]).map_err(|why| forbidden(cx, pod, &why))?;
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
    default_toleration_seconds(&mut new["spec"]);
}

/// Returns the error `pods "a" is forbidden: why`.
pub(super) fn forbidden(cx: &WriteCx<'_>, pod: &Value, why: &str) -> ApiError {
    let name = match (pod.text("metadata.name"), pod.text("metadata.generateName")) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    };
    ApiError::forbidden(cx.resource.named(), name, why)
}

/// Priority classes that exist in every cluster.
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

/// Adds tolerations of 300 seconds for not-ready and unreachable Nodes, unless the Pod has its own.
fn default_toleration_seconds(spec: &mut Value) {
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

/// Appends to a list, creating it if absent.
pub(super) fn append(object: &mut Value, field: &str, item: Value) {
    match object.list_mut(field) {
        Some(list) => list.push(item),
        None => object.put(field, vec![item]),
    }
}

/// Rejects every runtime class, because this server has no RuntimeClass resource.
fn reject_runtime_class(spec: &Value) -> Result<(), String> {
    match spec.at("runtimeClassName") {
        Value::String(name) => Err(format!("pod rejected: RuntimeClass {name:?} not found")),
        _ if spec.map("overhead").is_some_and(|o| !o.is_empty()) => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
        }
        _ => Ok(()),
    }
}

/// Node labels that are copied to the Node's Pods.
pub(crate) const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Copies the topology labels of a Node to a Pod or Binding.
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
    fn priority_is_resolved_from_the_class() {
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
    fn existing_tolerations_are_kept() {
        let mut spec = json!({"tolerations": [{"operator": "Exists"}]});
        default_toleration_seconds(&mut spec);
        assert_eq!(spec.list("tolerations").len(), 1);
        let mut spec = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]});
        default_toleration_seconds(&mut spec);
        let keys: Vec<&str> = spec.list("tolerations").iter().map(|t| t.text("key")).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    }

    #[test]
    fn runtime_classes_are_rejected() {
        assert_eq!(reject_runtime_class(&json!({})), Ok(()));
        assert!(reject_runtime_class(&json!({"runtimeClassName": "kata"})).is_err());
        assert!(reject_runtime_class(&json!({"overhead": {"cpu": "1"}})).is_err());
    }

    #[test]
    fn node_topology_labels_overwrite_pod_labels() {
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
