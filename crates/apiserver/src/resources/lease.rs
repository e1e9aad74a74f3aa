//! Lease: leader election relies on conditional updates only, so there are few rules here.

use serde_json::Value;

use super::{Strategy, WriteCx};
use crate::field_error::FieldError;
use crate::validation::NOT_NEGATIVE;
use crate::value::Json;

/// Fields of coordinated leader election, which is disabled. They are dropped silently unless the old object has them.
const DISABLED: &[&str] = &["spec.strategy", "spec.preferredHolder"];

pub(crate) struct Lease;

impl Strategy for Lease {
    fn prepare_create(&self, _cx: &WriteCx<'_>, obj: &mut Value) {
        drop_disabled(obj, &Value::Null);
    }

    fn prepare_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        drop_disabled(new, old);
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        spec_errors(obj)
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        spec_errors(new)
    }
}

fn drop_disabled(obj: &mut Value, old: &Value) {
    for field in DISABLED.iter().filter(|field| !old.has(field)) {
        obj.take_at(field);
    }
}

fn spec_errors(obj: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = obj.int("spec.leaseDurationSeconds").filter(|&s| s <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(transitions) = obj.int("spec.leaseTransitions").filter(|&t| t < 0) {
        errors.push(FieldError::invalid("spec.leaseTransitions", transitions, NOT_NEGATIVE));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_positive_and_transitions_not_negative() {
        let errors = |spec: Value| -> Vec<String> {
            spec_errors(&json!({"spec": spec})).iter().map(|e| e.to_string()).collect()
        };
        assert_eq!(errors(json!({"leaseDurationSeconds": 15, "leaseTransitions": 0})), [""; 0]);
        assert_eq!(
            errors(json!({"leaseDurationSeconds": 0, "leaseTransitions": -1})),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"
            ]
        );
    }

    #[test]
    fn fields_of_coordinated_leader_election_are_dropped() {
        let mut obj = json!({"spec": {"preferredHolder": "x", "strategy": "s", "holderIdentity": ""}});
        drop_disabled(&mut obj, &Value::Null);
        assert_eq!(obj, json!({"spec": {"holderIdentity": ""}}));
    }
}
