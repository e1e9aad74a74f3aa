//! Changes that a pod accepts once it exists.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::validate;
use crate::field_error::FieldError;
use crate::resources::check::{Findings, Path};
use crate::value::Json;

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut found = Findings::default();
    validate::pod(new, &mut found);
    changes(new.at("spec"), old.at("spec"), Path::new("spec"), &mut found);
    found.into_errors()
}

fn changes(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    for list in ["containers", "initContainers"] {
        if new.list(list).len() != old.list(list).len() {
            return found.forbidden(at.child(list), "pod updates may not add or remove containers");
        }
    }
    if !keeps_tolerations(new, old) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        found.forbidden(at.child("tolerations"), detail);
    }
    let restored = without_allowed_changes(new, old);
    if restored != *old {
        found.forbidden(at, format!("{MAY_CHANGE}\n{}", difference(old, &restored)));
    }
}

fn keeps_tolerations(new: &Value, old: &Value) -> bool {
    const FIELDS: [&str; 4] = ["key", "operator", "value", "effect"];
    let same = |a: &Value, b: &Value| FIELDS.iter().all(|field| a.text(field) == b.text(field));
    let kept = |before: &Value| new.list("tolerations").iter().any(|now| same(now, before));
    old.list("tolerations").iter().all(kept)
}

/// The new spec with every allowed change undone.
fn without_allowed_changes(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for list in ["containers", "initContainers"] {
        let containers = spec.list_mut(list).into_iter().flatten();
        for (container, before) in containers.zip(old.list(list)) {
            restore(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut spec, old, field);
    }
    spec
}

fn restore(object: &mut Value, before: &Value, field: &str) {
    match before.get(field) {
        Some(value) => object.put(field, value.clone()),
        None => {
            object.take_at(field);
        }
    }
}

/// The fields that differ, before and after. Upstream prints a diff of its internal structs instead.
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
    fn images_deadlines_and_more_tolerations_may_change() {
        let got = errors(|spec| {
            spec["containers"][0]["image"] = "img:2".into();
            spec["activeDeadlineSeconds"] = 5.into();
            spec["tolerations"][0]["tolerationSeconds"] = 10.into();
            spec["tolerations"].as_array_mut().unwrap().push(json!({"key": "x", "operator": "Exists"}));
        });
        assert_eq!(got, Vec::<String>::new());
    }

    #[test]
    fn nothing_else_may_change() {
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
    fn containers_are_neither_added_nor_removed() {
        let got = errors(|spec| {
            let more = spec["containers"][0].clone();
            spec["initContainers"] = json!([more]);
            spec["initContainers"][0]["name"] = "d".into();
        });
        assert_eq!(got, ["spec.initContainers: Forbidden: pod updates may not add or remove containers"]);
    }

    #[test]
    fn tolerations_are_not_removed() {
        assert_eq!(
            errors(|spec| spec["tolerations"] = json!([])),
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
        );
    }
}
