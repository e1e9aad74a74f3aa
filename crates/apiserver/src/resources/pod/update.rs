//! What may change in a pod once it exists: very little.

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
    validate::annotations_unchanged(new, old, &mut found);
    let (new, old) = (new.at("spec"), old.at("spec"));
    // The first rule that makes further comparison pointless ends it.
    let _ = changes(new, old, Path::new("spec"), &mut found);
    found.into_errors()
}

fn changes(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) -> Option<()> {
    for list in ["containers", "initContainers"] {
        images(new.list(list), old.list(list), at.child(list), found)?;
    }
    deadline(new, old, at.child("activeDeadlineSeconds"), found)?;
    tolerations(new, old, at.child("tolerations"), found);
    scheduling_gates(new, old, at.child("schedulingGates"), found);
    if new != old {
        the_rest(new, old, at, found);
    }
    Some(())
}

/// `None` if containers came or went.
fn images(new: &[Value], old: &[Value], at: Path<'_>, found: &mut Findings) -> Option<()> {
    if new.len() != old.len() {
        found.forbidden(at, "pod updates may not add or remove containers");
        return None;
    }
    for (i, image) in new.iter().map(|container| container.text("image")).enumerate() {
        let item = at.index(i);
        if image.is_empty() {
            found.required(item.child("image"), "");
        }
        if image.trim() != image {
            found.invalid(item.child("image"), image, "must not have leading or trailing whitespace");
        }
    }
    Some(())
}

/// A deadline can be set, and drawn nearer.
fn deadline(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) -> Option<()> {
    match (new.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            found.in_range(at, seconds, 0, i64::from(i32::MAX));
            None
        }
        (Some(seconds), Some(before)) if seconds > before => {
            found.invalid(at, seconds, "must be less than or equal to previous value");
            None
        }
        (None, Some(_)) => {
            found.invalid(at, Value::Null, "must not update from a positive integer to nil value");
            Some(())
        }
        _ => Some(()),
    }
}

fn tolerations(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    const FIELDS: [&str; 4] = ["key", "operator", "value", "effect"];
    let same = |a: &Value, b: &Value| FIELDS.iter().all(|field| a.text(field) == b.text(field));
    let kept = |before: &Value| new.list("tolerations").iter().any(|now| same(now, before));
    if old.list("tolerations").iter().all(kept) {
        validate::scheduling::tolerations(new.list("tolerations"), at, found);
    } else {
        found.forbidden(at, "existing toleration can not be modified except its tolerationSeconds");
    }
}

fn scheduling_gates(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    let known = |name: &str| old.list("schedulingGates").iter().any(|gate| gate.text("name") == name);
    for (i, gate) in new.list("schedulingGates").iter().map(|gate| gate.text("name")).enumerate() {
        if !known(gate) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
            found.forbidden(at.index(i).child("name"), detail);
        }
    }
}

/// Undoes the changes that are allowed and sees whether any are left.
fn the_rest(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    let mut munged = new.clone();
    for list in ["containers", "initContainers"] {
        let containers = munged.list_mut(list).into_iter().flatten();
        for (container, before) in containers.zip(old.list(list)) {
            restore(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut munged, old, field);
    }
    let grace = |spec: &Value| spec.int("terminationGracePeriodSeconds");
    if grace(old).is_some_and(|before| before < 0) && grace(&munged) == Some(1) {
        restore(&mut munged, old, "terminationGracePeriodSeconds");
    }
    if !old.list("schedulingGates").is_empty() {
        gated(&mut munged, old, at, found);
    }
    if munged != *old {
        found.forbidden(at, format!("{MAY_CHANGE}\n{}", difference(old, &munged)));
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

fn restore(object: &mut Value, before: &Value, field: &str) {
    match before.get(field) {
        Some(value) => object.put(field, value.clone()),
        None => {
            object.take_at(field);
        }
    }
}

// === Pods that wait at a scheduling gate ===

/// While a pod is not yet scheduled, where it may run can be narrowed.
fn gated(munged: &mut Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    if munged.at("nodeSelector") != old.at("nodeSelector") {
        node_selector(munged, old, at.child("nodeSelector"), found);
        restore(munged, old, "nodeSelector");
    }
    if munged.at("affinity.nodeAffinity") != old.at("affinity.nodeAffinity") {
        node_affinity(munged, old, at.child("affinity.nodeAffinity"), found);
        restore_node_affinity(munged, old);
    }
}

fn node_selector(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    let now = new.map("nodeSelector");
    let kept = |(key, value): (&String, &Value)| now.and_then(|n| n.get(key)) == Some(value);
    if !old.map("nodeSelector").into_iter().flatten().all(kept) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        found.invalid(at, new.at("nodeSelector").clone(), detail);
    }
}

fn node_affinity(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    const TERMS: &str = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (new.list(TERMS), old.list(TERMS));
    let at = at.child("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    if !before.is_empty() && now.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return found.invalid(at, new.at(TERMS).clone(), detail);
    }
    for (i, (now, before)) in now.iter().zip(before).enumerate() {
        if !only_adds(now, before) {
            found.invalid(at.index(i), now.clone(), "only additions are allowed (no mutations or deletions)");
        }
    }
}

/// A term may gain requirements, unless it has none: then it selects nothing, and must go on doing so.
fn only_adds(now: &Value, before: &Value) -> bool {
    const LISTS: [&str; 2] = ["matchExpressions", "matchFields"];
    let was_empty = LISTS.iter().all(|list| before.list(list).is_empty());
    match was_empty {
        true => LISTS.iter().all(|list| now.list(list).is_empty()),
        false => LISTS.iter().all(|list| now.list(list).starts_with(before.list(list))),
    }
}

fn restore_node_affinity(munged: &mut Value, old: &Value) {
    match old.at("affinity").get("nodeAffinity") {
        Some(before) => munged.put("affinity.nodeAffinity", before.clone()),
        None => {
            munged.take_at("affinity.nodeAffinity");
        }
    }
    let emptied = munged.map("affinity").is_some_and(Map::is_empty);
    if emptied && !old.has("affinity") {
        munged.take_at("affinity");
    }
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

    fn complaints(old: &Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut new = old.clone();
        change(&mut new["spec"]);
        validate(&new, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn images_deadlines_and_more_tolerations_may_change() {
        let old = base();
        let got = complaints(&old, |spec| {
            spec["containers"][0]["image"] = "img:2".into();
            spec["activeDeadlineSeconds"] = 5.into();
            spec["tolerations"][0]["tolerationSeconds"] = 10.into();
            spec["tolerations"].as_array_mut().unwrap().push(json!({"key": "x", "operator": "Exists"}));
        });
        assert_eq!(got, Vec::<String>::new());
    }

    #[test]
    fn nothing_else_may_change() {
        let got = complaints(&base(), |spec| spec["nodeName"] = "x".into());
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
    fn containers_neither_come_nor_go() {
        let got = complaints(&base(), |spec| {
            let more = spec["containers"][0].clone();
            spec["initContainers"] = json!([more]);
            spec["initContainers"][0]["name"] = "d".into();
        });
        assert_eq!(got, ["spec.initContainers: Forbidden: pod updates may not add or remove containers"]);
    }

    #[test]
    fn deadlines_only_draw_nearer() {
        let mut old = base();
        old["spec"]["activeDeadlineSeconds"] = 10.into();
        assert_eq!(complaints(&old, |spec| spec["activeDeadlineSeconds"] = 9.into()), Vec::<String>::new());
        assert_eq!(
            complaints(&old, |spec| spec["activeDeadlineSeconds"] = 11.into()),
            ["spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"]
        );
        assert_eq!(
            complaints(&old, |spec| {
                spec.take_at("activeDeadlineSeconds");
            }),
            ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"]
        );
    }

    #[test]
    fn tolerations_are_not_taken_back() {
        assert_eq!(
            complaints(&base(), |spec| spec["tolerations"] = json!([])),
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
        );
    }

    #[test]
    fn a_gated_pod_can_be_narrowed_down() {
        let mut old = base();
        old["spec"]["schedulingGates"] = json!([{"name": "g"}]);
        old["spec"]["nodeSelector"] = json!({"a": "b"});
        let narrowed = complaints(&old, |spec| {
            spec["nodeSelector"]["c"] = "d".into();
            spec.put("affinity.nodeAffinity", json!({"preferredDuringSchedulingIgnoredDuringExecution": []}));
            spec.take_at("schedulingGates");
        });
        assert_eq!(narrowed, Vec::<String>::new());
        assert_eq!(complaints(&old, |spec| spec["nodeSelector"] = json!({"a": "x"})).len(), 1);
        assert_eq!(
            complaints(&old, |spec| spec["schedulingGates"] = json!([{"name": "g"}, {"name": "h"}])),
            ["spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"]
        );
    }
}
