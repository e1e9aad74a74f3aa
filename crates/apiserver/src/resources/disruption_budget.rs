//! PodDisruptionBudget: stored and validated only. Nothing counts Pods, and evictions ignore budgets.

use serde_json::Value;

use super::check::{ErrorList, Path};
use super::pod::bump_generation;
use super::strategy::{clear_status, keep_status};
use super::{Strategy, WriteCx};
use crate::field_error::{FieldError, go_struct};
use crate::validation;
use crate::value::Json;

const POLICIES: &[&str] = &["AlwaysAllow", "IfHealthyBudget"];

pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn prepare_create(&self, cx: &WriteCx<'_>, obj: &mut Value) {
        clear_status(cx, obj);
        obj.put("metadata.generation", 1);
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
        bump_generation(new, old, new.at("spec") != old.at("spec"));
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        spec_errors(obj.at("spec"))
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        spec_errors(new.at("spec"))
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        status_errors(new.at("status"))
    }
}

fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let (mut errors, at) = (ErrorList::default(), Path::new("spec"));
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        errors.push(FieldError::invalid_as(
            "spec",
            go_struct(&[
                ("MinAvailable", spec.at("minAvailable").clone()),
                ("Selector", spec.at("selector").clone()),
                ("MaxUnavailable", spec.at("maxUnavailable").clone()),
                ("UnhealthyPodEvictionPolicy", spec.at("unhealthyPodEvictionPolicy").clone()),
            ]),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for field in ["minAvailable", "maxUnavailable"].into_iter().filter(|field| spec.has(field)) {
        validate_amount(spec.at(field), at.child(field), &mut errors);
    }
    errors.extend(validation::label_selector("spec.selector", spec.at("selector")));
    if spec.has("unhealthyPodEvictionPolicy") {
        errors.one_of(at.child("unhealthyPodEvictionPolicy"), spec.text("unhealthyPodEvictionPolicy"), POLICIES);
    }
    errors.into_vec()
}

/// Validates a number of Pods, or a percentage such as `25%`.
fn validate_amount(value: &Value, at: Path<'_>, errors: &mut ErrorList) {
    let Value::String(text) = value else { return errors.not_negative(at, value.as_i64().unwrap_or(0)) };
    let details = validation::percent(text);
    if details.is_empty() && text.trim_end_matches('%').parse::<i64>().is_ok_and(|percent| percent > 100) {
        errors.invalid(at, value.clone(), "must not be greater than 100%");
    }
    errors.invalid_each(at, text, details);
}

fn status_errors(status: &Value) -> Vec<FieldError> {
    let (mut errors, at) = (ErrorList::default(), Path::new("status"));
    validate_conditions(status.list("conditions"), at.child("conditions"), &mut errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.not_negative(at.child(field), status.int(field).unwrap_or(0));
    }
    errors.into_vec()
}

fn validate_conditions(conditions: &[Value], at: Path<'_>, errors: &mut ErrorList) {
    for (index, condition) in conditions.iter().enumerate() {
        let (at, kind) = (at.index(index), condition.text("type"));
        if conditions.iter().take(index).any(|earlier| earlier.text("type") == kind) {
            errors.duplicate(at.child("type"), kind);
        }
        errors.invalid_each(at.child("type"), kind, validation::qualified_name(kind));
        errors.one_of(at.child("status"), condition.text("status"), &["False", "True", "Unknown"]);
        if condition.at("lastTransitionTime").is_null() {
            errors.required(at.child("lastTransitionTime"), "");
        }
        if condition.text("reason").is_empty() {
            errors.required(at.child("reason"), "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn spec_is_validated() {
        for spec in [
            json!({}),
            json!({"minAvailable": 0}),
            json!({"maxUnavailable": "100%", "selector": {"matchLabels": {"a": "b"}}}),
            json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
        ] {
            assert_eq!(messages(spec_errors(&spec)), [""; 0], "{spec}");
        }
        let both = json!({"minAvailable": 1, "maxUnavailable": "10%"});
        assert_eq!(
            messages(spec_errors(&both)),
            ["spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":\"10%\",\
              \"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"]
        );
        let cases = [
            (json!({"minAvailable": -1}), "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
            (
                json!({"minAvailable": "101%"}),
                "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            (json!({"maxUnavailable": "half"}), "spec.maxUnavailable: Invalid value: \"half\": a valid percent string"),
            (
                json!({"unhealthyPodEvictionPolicy": "Never"}),
                "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", ",
            ),
            (json!({"selector": {"matchLabels": {"a": "b c"}}}), "spec.selector.matchLabels: Invalid value: \"b c\": "),
        ];
        for (spec, expected) in cases {
            let errors = messages(spec_errors(&spec));
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{spec}: {errors:?}");
        }
    }

    #[test]
    fn status_is_validated() {
        let condition = json!({"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""});
        let valid = json!({"disruptionsAllowed": 1, "conditions": [condition]});
        assert_eq!(messages(status_errors(&valid)), [""; 0]);
        let invalid =
            json!({"currentHealthy": -1, "conditions": [condition, {"type": "DisruptionAllowed", "status": "Yes"}]});
        let errors = messages(status_errors(&invalid));
        assert_eq!(errors.len(), 5, "{errors:#?}");
        assert!(errors[0].starts_with("status.conditions[1].type: Duplicate value"), "{errors:#?}");
        assert_eq!(errors[4], "status.currentHealthy: Invalid value: -1: must be greater than or equal to 0");
    }
}
