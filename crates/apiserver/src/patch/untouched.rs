//! Parts of an object that a patch does not mention.
//!
//! They are already decoded and canonical. Most patches change a condition or a label, so excluding the rest saves most of
//! the work of decoding the result.

use std::mem;

use serde_json::{Map, Value};

/// Parts of an object by field name: whole fields, or some members of a field.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Untouched {
    fields: Vec<(String, Value)>,
    members: Vec<(String, Map<String, Value>)>,
}

impl Untouched {
    /// Removes the parts that `patch`, a merge or strategic merge patch, does not mention from the merged object and returns
    /// them.
    pub(super) fn take(patch: &Value, merged: &mut Value) -> Untouched {
        let mut untouched = Untouched::default();
        let (Value::Object(patch), Value::Object(merged)) = (patch, merged) else { return untouched };
        for (name, mut value) in mem::take(merged) {
            match (patch.get(&name), &mut value) {
                _ if matches!(name.as_str(), "kind" | "apiVersion") => {}
                (Some(Value::Object(patch)), Value::Object(members)) => {
                    let (touched, rest) = mem::take(members).into_iter().partition(|(name, _)| mentions(patch, name));
                    *members = touched;
                    untouched.members.push((name.clone(), rest));
                }
                (None, _) if !mentions(patch, &name) => {
                    untouched.fields.push((name, value));
                    continue;
                }
                _ => {}
            }
            merged.insert(name, value);
        }
        untouched
    }

    /// Merges the parts into the object they were removed from.
    pub(crate) fn merge_into(self, object: &mut Value) {
        let Value::Object(object) = object else { return };
        object.extend(self.fields);
        for (name, members) in self.members.into_iter().filter(|(_, members)| !members.is_empty()) {
            match object.get_mut(&name) {
                Some(Value::Object(field)) => field.extend(members),
                _ => drop(object.insert(name, Value::Object(members))),
            }
        }
    }
}

/// Whether a patch mentions a key, directly or in a directive such as `$setElementOrder/key`.
fn mentions(patch: &Map<String, Value>, key: &str) -> bool {
    let targets_key =
        |name: &str| name.starts_with('$') && name.split_once('/').is_some_and(|(_, target)| target == key);
    patch.contains_key(key) || patch.keys().any(|name| targets_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::{Patch, PatchKind};
    use crate::schema::{decode_owned, schema};
    use serde_json::json;

    #[test]
    fn splitting_does_not_change_the_result() {
        let ty = schema().id("core/v1.Node");
        let node = json!({"kind": "Node", "apiVersion": "v1",
            "metadata": {"name": "n", "labels": {"a": "b"}, "finalizers": ["x/y"], "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"podCIDRs": ["10.0.0.0/24"], "unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "1"}}});
        let node = decode_owned(ty, node).unwrap().value;
        let patches = [
            json!({}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
            json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/y"], "labels": {"a": null}}}),
            json!({"spec": null, "status": {"$patch": "replace"}}),
            json!({"spec": {"unschedulable": null, "$retainKeys": ["podCIDRs"]}, "extra": 1}),
            json!({"metadata": {"labels": null, "extra": {}}, "spec": {"$patch": "delete"}}),
            json!({"$patch": "replace", "metadata": {"name": "m"}}),
        ];
        for patch in patches {
            for kind in [PatchKind::Strategic, PatchKind::Merge] {
                let text = patch.to_string();
                let merged = Patch::parse(kind, text.as_bytes()).unwrap().apply(ty, &node).unwrap();
                let mut rest = merged.clone();
                let untouched = Untouched::take(&patch, &mut rest);
                let whole = decode_owned(ty, merged).unwrap();
                let part = decode_owned(ty, rest).unwrap();
                let mut value = part.value;
                untouched.merge_into(&mut value);
                assert_eq!(value, whole.value, "{kind:?} {text}");
                assert_eq!(format!("{:?}", part.issues), format!("{:?}", whole.issues), "{kind:?} {text}");
            }
        }
    }

    #[test]
    fn unmentioned_parts_are_removed() {
        let mut merged =
            json!({"kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"x": 1}, "data": [1]});
        let untouched = Untouched::take(&json!({"metadata": {"labels": {"a": "b"}}, "data": [1]}), &mut merged);
        assert_eq!(merged, json!({"kind": "K", "metadata": {"labels": {"a": "b"}}, "data": [1]}));
        untouched.merge_into(&mut merged);
        assert_eq!(merged["spec"], json!({"x": 1}));
        assert_eq!(merged["metadata"]["name"], "n");
    }
}
