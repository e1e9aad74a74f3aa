//! Validation of Pod updates: most of the spec is immutable.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::validate;
use crate::field_error::FieldError;
use crate::resources::check::{ErrorList, Path};
use crate::value::Json;

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    validate::pod(new, &mut errors);
    validate_changes(new.at("spec"), old.at("spec"), Path::new("spec"), &mut errors);
    errors.into_vec()
}

fn validate_changes(new: &Value, old: &Value, at: Path<'_>, errors: &mut ErrorList) {
    for list in ["containers", "initContainers"] {
        if new.list(list).len() != old.list(list).len() {
            return errors.forbidden(at.child(list), "pod updates may not add or remove containers");
        }
    }
    if !keeps_tolerations(new, old) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(at.child("tolerations"), detail);
    }
    let restored = without_allowed_changes(new, old);
    if restored != *old {
        errors.forbidden(at, format!("{MAY_CHANGE}\n{}", difference(old, &restored)));
    }
}

fn keeps_tolerations(new: &Value, old: &Value) -> bool {
    const FIELDS: [&str; 4] = ["key", "operator", "value", "effect"];
    let same = |a: &Value, b: &Value| FIELDS.iter().all(|field| a.text(field) == b.text(field));
    let is_kept = |previous: &Value| new.list("tolerations").iter().any(|current| same(current, previous));
    old.list("tolerations").iter().all(is_kept)
}

/// Returns the new spec with every allowed change reverted.
fn without_allowed_changes(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for list in ["containers", "initContainers"] {
        let containers = spec.list_mut(list).into_iter().flatten();
        for (container, previous) in containers.zip(old.list(list)) {
            restore(container, previous, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut spec, old, field);
    }
    spec
}

fn restore(object: &mut Value, previous: &Value, field: &str) {
    match previous.get(field) {
        Some(value) => object.put(field, value.clone()),
        None => {
            object.take_at(field);
        }
    }
}

/// Formats the fields that differ, before and after. upstream: prints a diff of the internal structs instead.
fn difference(old: &Value, new: &Value) -> String {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut text = String::new();
    for field in fields.into_iter().filter(|field| old.get(*field) != new.get(*field)) {
        for (sign, side) in [('-', old), ('+', new)] {
            if let Some(value) = side.get(field) {
                text.push_str(&format!("{sign} \"{field}\": {value}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base() -> Value {
        let mut pod = json!({
            "metadata": {"name": "a"},
            "spec": {
                "containers": [{"name": "c", "image": "img:1"}],
                "serviceAccountName": "default",
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            },
        });
        super::super::defaults::pod(&mut pod);
        pod
    }

    fn errors(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let old = base();
        let mut new = old.clone();
        change(&mut new["spec"]);
        validate(&new, &old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn images_deadlines_and_added_tolerations_are_allowed() {
        let got = errors(|spec| {
            spec["containers"][0]["image"] = "img:2".into();
            spec["activeDeadlineSeconds"] = 5.into();
            spec["tolerations"][0]["tolerationSeconds"] = 10.into();
            spec["tolerations"].as_array_mut().unwrap().push(json!({"key": "x", "operator": "Exists"}));
        });
        assert_eq!(got, Vec::<String>::new());
    }

    #[test]
    fn other_changes_are_rejected() {
        let got = errors(|spec| spec["nodeName"] = "x".into());
        assert_eq!(got.len(), 1);
        assert!(got[0].starts_with(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
             negative)\n"
        ));
        assert!(got[0].ends_with("+ \"nodeName\": \"x\"\n"));
    }

    #[test]
    fn containers_cannot_be_added_or_removed() {
        let got = errors(|spec| {
            let more = spec["containers"][0].clone();
            spec["initContainers"] = json!([more]);
            spec["initContainers"][0]["name"] = "d".into();
        });
        assert_eq!(got, ["spec.initContainers: Forbidden: pod updates may not add or remove containers"]);
    }

    #[test]
    fn tolerations_cannot_be_removed() {
        assert_eq!(
            errors(|spec| spec["tolerations"] = json!([])),
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
        );
    }
}
