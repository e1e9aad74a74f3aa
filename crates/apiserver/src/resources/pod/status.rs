//! The status of a pod, as kubelets and controllers report it.

use serde_json::{Map, Value};

use crate::field_error::FieldError;
use crate::resources::check::{Findings, Path};
use crate::resources::strategy::keep_all_but_status;
use crate::validation;
use crate::value::Json;

/// The status of a new pod.
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

/// Sets a condition; its time moves only if its status does.
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

/// Keeps what an update of the status may not change or leave out.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    keep_owners(new, old);
    for field in ["status.qosClass", "status.observedGeneration"] {
        if !new.has(field) && old.has(field) {
            new.put(field, old.at(field).clone());
        }
    }
}

/// upstream: old kubelets garbled owner references, so a status never changes them.
fn keep_owners(new: &mut Value, old: &Value) {
    match old.at("metadata").get("ownerReferences") {
        Some(owners) => new.put("metadata.ownerReferences", owners.clone()),
        None => {
            new.take_at("metadata.ownerReferences");
        }
    }
}

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut found = Findings::default();
    let (status, before, at) = (new.at("status"), old.at("status"), Path::new("status"));
    found.extend(validation::immutable("status.qosClass", status.at("qosClass"), before.at("qosClass")));
    for field in ["podIPs", "hostIPs"] {
        addresses(status, before, at.child(field), field, &mut found);
    }
    found.into_errors()
}

fn addresses(status: &Value, before: &Value, at: Path<'_>, field: &str, found: &mut Findings) {
    let kept: Vec<&str> = before.list(field).iter().map(|ip| ip.text("ip")).collect();
    for (i, ip) in status.list(field).iter().map(|ip| ip.text("ip")).enumerate() {
        found.extend(validation::is_valid_ip_legacy(&at.index(i).to_string(), ip, &kept));
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
    fn a_new_pod_is_pending() {
        assert_eq!(pending(&json!({"containers": [{}]}), NOW), json!({"phase": "Pending", "qosClass": "BestEffort"}));
        let gated = pending(&json!({"schedulingGates": [{"name": "g"}]}), NOW);
        assert_eq!(gated["conditions"][0]["reason"], "SchedulingGated");
    }

    #[test]
    fn the_time_of_a_condition_moves_with_its_status() {
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
    fn a_status_keeps_what_it_may_not_lose() {
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
    fn the_quality_of_service_class_is_immutable() {
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
