//! Pod status: initial value, conditions and updates by kubelets and controllers.

use serde_json::{Map, Value};

use crate::field_error::FieldError;
use crate::resources::check::{ErrorList, Path};
use crate::resources::strategy::keep_all_but_status;
use crate::validation;
use crate::value::Json;

/// Returns the status of a new Pod.
pub(super) fn pending(spec: &Value, now: &str) -> Value {
    let mut status = Value::Object(Map::new());
    status.put("phase", "Pending");
    if !spec.list("schedulingGates").is_empty() {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        set_condition(&mut status, "PodScheduled", "False", Some(("SchedulingGated", message)), now);
    }
    status.put("qosClass", super::qos::class(spec));
    status
}

/// Sets a condition. `lastTransitionTime` changes only if the status changes.
pub(crate) fn set_condition(status: &mut Value, kind: &str, value: &str, why: Option<(&str, &str)>, now: &str) {
    let mut condition = serde_json::json!({
        "type": kind, "status": value, "lastProbeTime": null, "lastTransitionTime": now,
    });
    if let Some((reason, message)) = why {
        condition.put("reason", reason);
        condition.put("message", message);
    }
    let conditions = match status.list_mut("conditions") {
        Some(conditions) => conditions,
        None => return status.put("conditions", vec![condition]),
    };
    match conditions.iter_mut().find(|c| c.text("type") == kind) {
        Some(old) => {
            if old.text("status") == value {
                condition.put("lastTransitionTime", old.at("lastTransitionTime").clone());
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

/// Restores what a status update may not change or omit.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    keep_owners(new, old);
    for field in ["status.qosClass", "status.observedGeneration"] {
        if !new.has(field) && old.has(field) {
            new.put(field, old.at(field).clone());
        }
    }
}

/// upstream: old kubelets corrupted owner references, so a status update never changes them.
fn keep_owners(new: &mut Value, old: &Value) {
    match old.at("metadata").get("ownerReferences") {
        Some(owners) => new.put("metadata.ownerReferences", owners.clone()),
        None => {
            new.take_at("metadata.ownerReferences");
        }
    }
}

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let (status, previous, at) = (new.at("status"), old.at("status"), Path::new("status"));
    errors.extend(validation::immutable("status.qosClass", status.at("qosClass"), previous.at("qosClass")));
    for field in ["podIPs", "hostIPs"] {
        validate_addresses(status, previous, at.child(field), field, &mut errors);
    }
    errors.into_vec()
}

fn validate_addresses(status: &Value, previous: &Value, at: Path<'_>, field: &str, errors: &mut ErrorList) {
    let existing: Vec<&str> = previous.list(field).iter().map(|ip| ip.text("ip")).collect();
    for (i, ip) in status.list(field).iter().map(|ip| ip.text("ip")).enumerate() {
        errors.extend(validation::is_valid_ip_legacy(&at.index(i).to_string(), ip, &existing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn errors(old: Value, new: Value) -> Vec<String> {
        validate(&json!({"status": new}), &json!({"status": old})).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_pod_is_pending() {
        assert_eq!(pending(&json!({"containers": [{}]}), NOW), json!({"phase": "Pending", "qosClass": "BestEffort"}));
        let gated = pending(&json!({"schedulingGates": [{"name": "g"}]}), NOW);
        assert_eq!(gated["conditions"][0]["reason"], "SchedulingGated");
    }

    #[test]
    fn transition_time_changes_with_the_status() {
        let mut status = json!({"conditions": [
            {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2000-01-01T00:00:00Z"},
        ]});
        set_condition(&mut status, "Ready", "True", None, NOW);
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "2000-01-01T00:00:00Z");
        set_condition(&mut status, "Ready", "False", None, NOW);
        assert_eq!(status["conditions"][0]["lastTransitionTime"], NOW);
        set_condition(&mut status, "Other", "True", None, NOW);
        assert_eq!(status.list("conditions").len(), 2);
    }

    #[test]
    fn status_update_keeps_spec_owners_and_qos_class() {
        let old = json!({
            "metadata": {"ownerReferences": [{"uid": "u"}]}, "spec": {"nodeName": "n"},
            "status": {"qosClass": "Burstable", "observedGeneration": 3},
        });
        let mut new = json!({
            "metadata": {"labels": {"a": "b"}}, "spec": {},
            "status": {"phase": "Running"},
        });
        prepare(&mut new, &old);
        assert_eq!(
            new,
            json!({
                "metadata": {"labels": {"a": "b"}, "ownerReferences": [{"uid": "u"}]}, "spec": {"nodeName": "n"},
                "status": {"phase": "Running", "qosClass": "Burstable", "observedGeneration": 3},
            })
        );
    }

    #[test]
    fn qos_class_is_immutable() {
        assert_eq!(
            errors(json!({"qosClass": "BestEffort"}), json!({"qosClass": "Guaranteed"})),
            ["status.qosClass: Invalid value: \"Guaranteed\": field is immutable"]
        );
    }

    #[test]
    fn new_addresses_must_be_ip_addresses() {
        let with = |ip: &str| json!({"podIPs": [{"ip": ip}]});
        assert_eq!(errors(json!({}), with("10.0.0.1")), Vec::<String>::new());
        assert_eq!(errors(json!({}), with("odd")).len(), 1);
        assert_eq!(errors(with("odd"), with("odd")), Vec::<String>::new());
    }
}
