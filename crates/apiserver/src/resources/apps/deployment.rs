//! Deployment strategy.

use serde_json::{Value, json};

use super::default;
use crate::field_error::FieldError;
use crate::resources::check::{ErrorList, Path};
use crate::resources::strategy::{clear_status, keep_all_but_status, keep_status};
use crate::resources::{Strategy, WriteCx, pod};
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
        // Annotations count too, because a Deployment copies them to its ReplicaSets.
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
        let mut errors = ErrorList::default();
        validate_spec(obj.at("spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_create(cx, new);
        errors.extend(super::selector_immutable_error(new, old));
        errors
    }
}

fn validate_spec(spec: &Value, errors: &mut ErrorList) {
    let at = Path::new("spec");
    errors.not_negative(at.child("replicas"), spec.int("replicas").unwrap_or(0));
    super::validate_spec(spec, "deployment", errors);
    let strategy = at.child("strategy");
    let kind = spec.text("strategy.type");
    errors.one_of(strategy.child("type"), kind, &["Recreate", "RollingUpdate"]);
    if kind == "Recreate" && spec.has("strategy.rollingUpdate") {
        let detail = "may not be specified when strategy `type` is 'Recreate'";
        errors.forbidden(strategy.child("rollingUpdate"), detail);
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

    fn messages(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut spec = minimal();
        change(&mut spec);
        let mut errors = ErrorList::default();
        validate_spec(deployment(spec).at("spec"), &mut errors);
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_match_the_recording() {
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
    fn recreate_strategy_rejects_rolling_update() {
        let recreated = deployment({
            let mut spec = minimal();
            spec["strategy"] = json!({"type": "Recreate"});
            spec
        });
        assert_eq!(recreated["spec"]["strategy"], json!({"type": "Recreate"}));
        let both = messages(|spec| {
            spec["strategy"] = json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}});
        });
        assert_eq!(
            both,
            ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"]
        );
    }

    #[test]
    fn selector_must_match_the_template() {
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match \
                        template `labels`";
        assert_eq!(messages(|_| ()), Vec::<String>::new());
        assert_eq!(messages(|spec| spec["template"]["metadata"]["labels"]["a"] = "c".into()), [mismatch]);
        assert_eq!(
            messages(|spec| {
                spec.take_at("selector");
            }),
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"
            ]
        );
        assert_eq!(
            messages(|spec| spec["selector"] = json!({})),
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
        );
        let invalid = messages(|spec| spec["selector"]["matchLabels"]["a"] = "not a label".into());
        assert_eq!(invalid.len(), 1);
    }

    #[test]
    fn replicas_and_restart_policy_are_validated() {
        assert_eq!(
            messages(|spec| spec["replicas"] = json!(-1)),
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            messages(|spec| spec["template"]["spec"]["restartPolicy"] = "Never".into()),
            ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
        );
    }
}
