//! `matchLabelKeys` and `mismatchLabelKeys`: selectors whose values come from the new pod's own labels.

use serde_json::{Map, Value, json};

use super::admission::append;
use crate::value::Json;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Writes the requirements that the keys stand for into the selectors beside them.
pub(super) fn resolve(pod: &mut Value) {
    let Some(labels) = pod.map("metadata.labels").cloned() else { return };
    let Some(spec) = pod.get_mut("spec") else { return };
    for kind in ["affinity.podAffinity", "affinity.podAntiAffinity"] {
        let Some(affinity) = spec.at_mut(kind) else { continue };
        for term in affinity.list_mut(PREFERRED).into_iter().flatten() {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                resolve_term(term, &labels);
            }
        }
        for term in affinity.list_mut(REQUIRED).into_iter().flatten() {
            resolve_term(term, &labels);
        }
    }
    for constraint in spec.list_mut("topologySpreadConstraints").into_iter().flatten() {
        resolve_term(constraint, &labels);
    }
}

fn resolve_term(term: &mut Value, labels: &Map<String, Value>) {
    let mut requirements = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let given = term.texts(field).into_iter().filter_map(|key| Some((key, labels.get(key)?)));
        requirements.extend(given.map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]})));
    }
    // Without a selector nothing matches anyway.
    if let Some(selector) = term.get_mut("labelSelector") {
        for requirement in requirements {
            append(selector, "matchExpressions", requirement);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_take_their_values_from_the_pod() {
        let term = json!({"labelSelector": {}, "matchLabelKeys": ["a", "absent"], "mismatchLabelKeys": ["b"]});
        let mut pod = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}},
            "spec": {"affinity": {"podAffinity": {REQUIRED: [term]}}},
        });
        resolve(&mut pod);
        assert_eq!(
            pod["spec"]["affinity"]["podAffinity"][REQUIRED][0]["labelSelector"]["matchExpressions"],
            json!([
                {"key": "a", "operator": "In", "values": ["1"]}, {"key": "b", "operator": "NotIn", "values": ["2"]},
            ])
        );
    }
}
