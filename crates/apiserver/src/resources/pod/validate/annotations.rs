//! Annotations that mean something for pods.

use serde_json::Value;

use super::paths;
use crate::resources::check::{Findings, Path};
use crate::value::Json;

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn annotations(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let map = object.map("metadata.annotations").into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// Checks the annotations of a pod or template.
pub(super) fn validate(object: &Value, at: Path<'_>, found: &mut Findings) {
    for (key, value) in annotations(object) {
        if key == MIRROR && object.text("spec.nodeName").is_empty() {
            found.invalid(at.key(key), value, "must set spec.nodeName if mirror pod annotation is set");
        } else if key == DELETION_COST && !is_deletion_cost(value) {
            found.invalid(at.key(key), value, "must be a 32bit integer");
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(value, at.child(key), found);
        } else if let Some(container) = key.strip_prefix(APP_ARMOR) {
            app_armor(object.at("spec"), container, value, at.key(key), found);
        }
    }
}

/// A number in its plainest form.
fn is_deletion_cost(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    value.parse::<i32>().is_ok() && !value.starts_with('+') && (digits == "0" || !digits.starts_with('0'))
}

fn seccomp(profile: &str, at: Path<'_>, found: &mut Findings) {
    match profile.strip_prefix("localhost/") {
        Some(path) => paths::descending(path, at, found),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => found.invalid(at, profile, "must be a valid seccomp profile"),
    }
}

fn app_armor(spec: &Value, container: &str, profile: &str, at: Path<'_>, found: &mut Findings) {
    let mut known = false;
    super::each_container(spec, at, |c, _| known |= c.text("name") == container);
    if !known {
        found.invalid(at, container, "container not found");
    }
    let sound = matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
    if !sound {
        found.invalid(at, profile, format!("invalid AppArmor profile name: {profile:?}"));
    }
}

/// Checks that annotations a running pod depends on stay as they are.
pub(in crate::resources::pod) fn unchanged(new: &Value, old: &Value, found: &mut Findings) {
    let metadata = Path::new("metadata");
    let at = metadata.child("annotations");
    let fixed = |key: &str| key == MIRROR || key.starts_with(APP_ARMOR);
    let what = |key: &str| if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
    let (new, old) = (new.map("metadata.annotations"), old.map("metadata.annotations"));
    for (key, value) in old.into_iter().flatten().filter(|(key, _)| fixed(key)) {
        if new.and_then(|n| n.get(key)) != Some(value) {
            found.forbidden(at.key(key), format!("may not remove or update {}", what(key)));
        }
    }
    for (key, _) in new.into_iter().flatten().filter(|(key, _)| fixed(key)) {
        if old.is_none_or(|o| !o.contains_key(key)) {
            found.forbidden(at.key(key), format!("may not add {}", what(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(annotations: Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}})
    }

    #[test]
    fn known_annotations_are_checked() {
        let table = [
            (json!({"any": "thing"}), 0),
            (json!({MIRROR: "x"}), 1),
            (json!({DELETION_COST: "-5"}), 0),
            (json!({DELETION_COST: "05"}), 1),
            (json!({SECCOMP_POD: "localhost/a"}), 0),
            (json!({SECCOMP_POD: "odd"}), 1),
            (json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}), 0),
            (json!({"container.apparmor.security.beta.kubernetes.io/d": "odd"}), 2),
        ];
        for (annotations, expected) in table {
            let mut found = Findings::default();
            validate(&pod(annotations.clone()), Path::new("a"), &mut found);
            assert_eq!(found.len(), expected, "{annotations}");
        }
    }

    #[test]
    fn some_annotations_stay_as_they_are() {
        let table = [
            (json!({MIRROR: "x"}), json!({MIRROR: "x"}), 0),
            (json!({MIRROR: "x"}), json!({MIRROR: "y"}), 1),
            (json!({MIRROR: "x"}), json!({}), 1),
            (json!({}), json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}), 1),
            (json!({}), json!({"other": "fine"}), 0),
        ];
        for (old, new, expected) in table {
            let mut found = Findings::default();
            unchanged(&pod(new.clone()), &pod(old.clone()), &mut found);
            assert_eq!(found.len(), expected, "{old} {new}");
        }
    }
}
