//! The rules of Deployments.

use serde_json::{Value, json};

use super::{counters, default, rollout};
use crate::field_error::FieldError;
use crate::resources::check::{Findings, Path};
use crate::resources::strategy::{clear_status, keep_all_but_status, keep_status};
use crate::resources::{Strategy, WriteCx, label_selector, pod};
use crate::validation;
use crate::value::Json;

pub(crate) struct Deployment;

impl Strategy for Deployment {
    fn apply_defaults(&self, obj: &mut Value) {
        let Some(spec) = obj.get_mut("spec") else { return };
        default(spec, "replicas", 1);
        default(spec, "strategy.type", "RollingUpdate");
        if spec.text("strategy.type") == "RollingUpdate" {
            default(spec, "strategy.rollingUpdate", json!({}));
            default(spec, "strategy.rollingUpdate.maxUnavailable", "25%");
            default(spec, "strategy.rollingUpdate.maxSurge", "25%");
        }
        default(spec, "revisionHistoryLimit", 10);
        default(spec, "progressDeadlineSeconds", 600);
        if let Some(template) = spec.get_mut("template") {
            pod::template_defaults(template);
        }
    }

    fn prepare_create(&self, cx: &WriteCx<'_>, obj: &mut Value) {
        clear_status(cx, obj);
        obj.put("metadata.generation", 1);
        pod::drop_disabled_in_template(obj);
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
        pod::drop_disabled_in_template(new);
        // Annotations count too: a deployment hands them on to its replica sets.
        let differs = |path: &str| new.at(path) != old.at(path);
        let changed = differs("spec") || differs("metadata.annotations");
        pod::bump_generation(new, old, changed);
    }

    fn prepare_status_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        match old.at("metadata").get("labels") {
            Some(labels) => new.put("metadata.labels", labels.clone()),
            None => {
                new.take_at("metadata.labels");
            }
        }
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let mut found = Findings::default();
        validate_spec(obj.at("spec"), &mut found);
        found.into_errors()
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_create(cx, new);
        errors.extend(super::selector_unchanged(new, old));
        errors
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut found = Findings::default();
        validate_status(new, &mut found);
        super::collisions(new, old, &mut found);
        found.into_errors()
    }

    fn warnings(&self, cx: &WriteCx<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        let changed = old.is_none_or(|old| old.at("metadata.generation") != new.at("metadata.generation"));
        if cx.subresource.is_some() || !changed {
            return Vec::new();
        }
        let mut warnings = match old {
            None => pod::hostname_warning(new, "Pod names and hostnames"),
            Some(_) => Vec::new(),
        };
        warnings.extend(pod::template_warnings(new.at("spec.template"), "spec.template"));
        warnings
    }
}

fn validate_spec(spec: &Value, found: &mut Findings) {
    let at = Path::new("spec");
    found.not_negative(at.child("replicas"), spec.int("replicas").unwrap_or(0));
    validate_selector(spec, found);
    validate_strategy(spec.at("strategy"), at.child("strategy"), found);
    let ready_seconds = spec.int("minReadySeconds").unwrap_or(0);
    found.not_negative(at.child("minReadySeconds"), ready_seconds);
    found.not_negative(at.child("revisionHistoryLimit"), spec.int("revisionHistoryLimit").unwrap_or(0));
    if let Some(seconds) = spec.int("progressDeadlineSeconds") {
        let at = at.child("progressDeadlineSeconds");
        found.not_negative(at, seconds);
        if seconds <= ready_seconds {
            found.invalid(at, seconds, "must be greater than minReadySeconds");
        }
    }
}

/// Checks the selector, and the template it must select.
fn validate_selector(spec: &Value, found: &mut Findings) {
    let selector = spec.at("selector");
    let errors = validation::label_selector("spec.selector", selector);
    let sound = errors.is_empty();
    found.extend(errors);
    if selector.is_null() {
        found.required(Path::new("spec.selector"), "");
    } else if label_selector::is_empty(selector) {
        found.push(super::selector_error(selector, "empty selector is invalid for deployment"));
    }
    if !sound {
        return found.push(super::selector_error(selector, "invalid label selector"));
    }
    found.extend(super::selector_misses_template(spec));
    super::endless_template(spec.at("template"), "ReplicaSet", found);
}

fn validate_strategy(strategy: &Value, at: Path<'_>, found: &mut Findings) {
    const TYPES: &[&str] = &["Recreate", "RollingUpdate"];
    match strategy.text("type") {
        "Recreate" if strategy.has("rollingUpdate") => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            found.forbidden(at.child("rollingUpdate"), detail);
        }
        "Recreate" => {}
        "RollingUpdate" => rollout::deployment(strategy.at("rollingUpdate"), at.child("rollingUpdate"), found),
        _ => found.push(rollout::unknown_type(strategy, "spec.strategy", TYPES)),
    }
}

fn validate_status(obj: &Value, found: &mut Findings) {
    const COUNTERS: &[&str] = &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    counters(obj, COUNTERS, found);
    let at = Path::new("status");
    let count = |field: &str| obj.at("status").int(field).unwrap_or(0);
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            found.invalid(at.child(field), count(field), "cannot be greater than status.replicas");
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        found.invalid(at.child("availableReplicas"), count("availableReplicas"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{decode, schema};

    fn deployment(spec: Value) -> Value {
        let given = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a"}, "spec": spec});
        let mut object = decode(schema().id("apps/v1.Deployment"), &given).expect("decodes").value;
        Deployment.apply_defaults(&mut object);
        object
    }

    fn minimal() -> Value {
        json!({
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        })
    }

    fn complaints(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut spec = minimal();
        change(&mut spec);
        let mut found = Findings::default();
        validate_spec(deployment(spec).at("spec"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_recorded_defaults_are_filled_in() {
        assert_eq!(
            deployment(minimal())["spec"],
            json!({
                "progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10,
                "selector": {"matchLabels": {"a": "b"}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                    "containers": [{
                        "image": "i", "imagePullPolicy": "Always", "name": "c", "resources": {},
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    }],
                    "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                    "securityContext": {}, "terminationGracePeriodSeconds": 30,
                }},
            })
        );
    }

    #[test]
    fn recreating_has_no_rolling_update() {
        let recreated = deployment({
            let mut spec = minimal();
            spec["strategy"] = json!({"type": "Recreate"});
            spec
        });
        assert_eq!(recreated["spec"]["strategy"], json!({"type": "Recreate"}));
        let both = complaints(|spec| {
            spec["strategy"] = json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}});
        });
        assert_eq!(
            both,
            ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"]
        );
    }

    #[test]
    fn the_selector_selects_the_template() {
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match \
                        template `labels`";
        assert_eq!(complaints(|_| ()), Vec::<String>::new());
        assert_eq!(complaints(|spec| spec["template"]["metadata"]["labels"]["a"] = "c".into()), [mismatch]);
        assert_eq!(
            complaints(|spec| {
                spec.take_at("selector");
            }),
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"
            ]
        );
        assert_eq!(
            complaints(|spec| spec["selector"] = json!({})),
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
        );
        let invalid = complaints(|spec| spec["selector"]["matchLabels"]["a"] = "not a label".into());
        assert_eq!(invalid.len(), 2);
        assert!(invalid[1].ends_with("invalid label selector"), "{invalid:?}");
    }

    #[test]
    fn numbers_fit_together() {
        assert_eq!(
            complaints(|spec| spec["replicas"] = json!(-1)),
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            complaints(|spec| spec["minReadySeconds"] = json!(600)),
            ["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"]
        );
        assert_eq!(
            complaints(|spec| spec["template"]["spec"]["restartPolicy"] = "Never".into()),
            ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
        );
    }

    #[test]
    fn a_status_adds_up() {
        let mut found = Findings::default();
        validate_status(&json!({"status": {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}}), &mut found);
        assert_eq!(found.len(), 3);
    }
}
