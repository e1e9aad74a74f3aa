//! The status of a pod, as kubelets and controllers report it.

use serde_json::{Map, Value};

use super::validate;
use crate::field_error::{FieldError, go_struct};
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

/// Carries over what an update of the status may not change or leave out.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    keep_owners(new, old);
    const KEPT: [&str; 5] = [
        "status.qosClass",
        "status.resourceClaimStatuses",
        "status.extendedResourceClaimStatus",
        "status.nodeAllocatableResourceClaimStatuses",
        "status.observedGeneration",
    ];
    for field in KEPT {
        if !new.has(field) && old.has(field) {
            new.put(field, old.at(field).clone());
        }
    }
    keep_observed_generations(new, old);
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

/// Conditions of the same type are paired in order; one that lost its `observedGeneration` gets it back.
fn keep_observed_generations(new: &mut Value, old: &Value) {
    let mut before: Vec<(&str, &Value)> =
        old.list("status.conditions").iter().map(|c| (c.text("type"), c.at("observedGeneration"))).collect();
    for condition in new.list_mut("status.conditions").into_iter().flatten() {
        let Some(at) = before.iter().position(|(kind, _)| *kind == condition.text("type")) else { continue };
        let (_, generation) = before.remove(at);
        if !condition.has("observedGeneration") && !generation.is_null() {
            condition.put("observedGeneration", generation.clone());
        }
    }
}

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut found = Findings::default();
    validate::annotations_unchanged(new, old, &mut found);
    let (status, before, at) = (new.at("status"), old.at("status"), Path::new("status"));
    conditions(status.list("conditions"), at.child("conditions"), &mut found);
    nomination(status, before, !old.text("spec.nodeName").is_empty(), at, &mut found);
    found.extend(negative_generation(status, at));
    found.extend(validation::immutable("status.qosClass", status.at("qosClass"), before.at("qosClass")));
    transitions(new, old, at, &mut found);
    addresses(status, before, "podIPs", at, &mut found);
    single_address(status, at, &mut found);
    host_addresses(status, before, at, &mut found);
    found.into_errors()
}

fn negative_generation(holder: &Value, at: Path<'_>) -> Option<FieldError> {
    let generation = holder.int("observedGeneration").filter(|generation| *generation < 0)?;
    Some(FieldError::invalid(at.child("observedGeneration"), generation, "must be a non-negative integer"))
}

fn conditions(conditions: &[Value], at: Path<'_>, found: &mut Findings) {
    for (i, condition) in conditions.iter().enumerate() {
        let at = at.index(i);
        found.extend(negative_generation(condition, at));
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            found.form(at.child("Type"), kind, validation::qualified_name(kind));
        }
    }
}

fn nomination(status: &Value, before: &Value, bound: bool, at: Path<'_>, found: &mut Findings) {
    let node = status.text("nominatedNodeName");
    if node.is_empty() || node == before.text("nominatedNodeName") {
        return;
    }
    found.form(at.child("nominatedNodeName"), node, validation::dns_subdomain(node));
    if bound {
        let detail = "may not be set on pods that are already bound to a node";
        found.forbidden(at.child("nominatedNodeName"), detail);
    }
}

// === Containers do not come back to life unless they may be restarted ===

fn transitions(new: &Value, old: &Value, at: Path<'_>, found: &mut Findings) {
    const LISTS: [(&str, &str); 3] = [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ];
    let spec = old.at("spec");
    if all_may_restart(spec) {
        return;
    }
    for (list, containers) in LISTS {
        let list_at = at.child(list);
        let now = new.at("status").list(list);
        for (i, before) in old.at("status").list(list).iter().enumerate() {
            let Some(exit_code) = before.at("state.terminated").get("exitCode").and_then(Value::as_i64) else {
                continue;
            };
            let name = before.text("name");
            let revived = now.iter().any(|status| status.text("name") == name && !status.has("state.terminated"));
            let container = spec.list(containers).iter().find(|container| container.text("name") == name);
            if revived && !container.is_some_and(|container| may_restart(container, spec, exit_code)) {
                found.forbidden(list_at.index(i).child("state"), "may not be transitioned to non-terminated state");
            }
        }
    }
}

/// One container may have a rule that restarts them all.
fn all_may_restart(spec: &Value) -> bool {
    let restarts_all = |container: &Value| {
        container.list("restartPolicyRules").iter().any(|rule| rule.text("action") == "RestartAllContainers")
    };
    ["containers", "initContainers"].iter().any(|list| spec.list(list).iter().any(restarts_all))
}

fn may_restart(container: &Value, spec: &Value, exit_code: i64) -> bool {
    let rule_says_so = |rule: &Value| {
        let listed = rule.list("exitCodes.values").iter().any(|code| code.as_i64() == Some(exit_code));
        listed == (rule.text("exitCodes.operator") == "In")
    };
    if container.list("restartPolicyRules").iter().any(rule_says_so) {
        return true;
    }
    let policy = match container.text("restartPolicy") {
        "" => spec.text("restartPolicy"),
        own => own,
    };
    match policy {
        "Always" => true,
        "OnFailure" => exit_code != 0,
        _ => false,
    }
}

// === Addresses ===

fn addresses(status: &Value, before: &Value, field: &str, at: Path<'_>, found: &mut Findings) {
    let at = at.child(field);
    let ips: Vec<&str> = status.list(field).iter().map(|ip| ip.text("ip")).collect();
    let kept: Vec<&str> = before.list(field).iter().map(|ip| ip.text("ip")).collect();
    for (i, ip) in ips.iter().enumerate() {
        found.extend(validation::is_valid_ip_legacy(&at.index(i).to_string(), ip, &kept));
    }
    if ips.len() > 1 && !is_dual_stack_pair(&ips) {
        let detail = "may specify no more than one IP for each IP family";
        found.push(FieldError::invalid_as(at, shown_ips(&ips), detail));
    }
}

fn is_dual_stack_pair(ips: &[&str]) -> bool {
    let families: Vec<bool> =
        ips.iter().filter_map(|ip| Some(ip.parse::<std::net::IpAddr>().ok()?.is_ipv4())).collect();
    matches!(families[..], [a, b] if a != b) && ips.len() == 2
}

fn shown_ips(ips: &[&str]) -> String {
    let items: Vec<String> = ips.iter().map(|ip| go_struct(&[("IP", (*ip).into())])).collect();
    format!("[{}]", items.join(","))
}

/// Defaulting keeps these two together; only a changed default could tear them apart.
fn single_address(status: &Value, at: Path<'_>, found: &mut Findings) {
    let first = status.list("podIPs").first().map(|ip| ip.text("ip"));
    if first.is_some_and(|first| first != status.text("podIP")) {
        let item = at.child("podIPs");
        found.invalid(item.index(0).child("ip"), first.unwrap_or_default(), "must be equal to `podIP`");
    }
}

fn host_addresses(status: &Value, before: &Value, at: Path<'_>, found: &mut Findings) {
    let Some(first) = status.list("hostIPs").first().map(|ip| ip.text("ip")) else { return };
    if first != status.text("hostIP") {
        let item = at.child("hostIPs");
        found.invalid(item.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    addresses(status, before, "hostIPs", at, found);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn pod(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": spec, "status": status})
    }

    fn complaints(spec: Value, old: Value, new: Value) -> Vec<String> {
        validate(&pod(spec.clone(), new), &pod(spec, old)).iter().map(ToString::to_string).collect()
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
            "status": {"qosClass": "Burstable", "observedGeneration": 3,
                       "conditions": [{"type": "Ready", "observedGeneration": 2}]},
        });
        let mut new = json!({
            "metadata": {"labels": {"a": "b"}}, "spec": {},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        });
        prepare(&mut new, &old);
        assert_eq!(
            new,
            json!({
                "metadata": {"labels": {"a": "b"}, "ownerReferences": [{"uid": "u"}]}, "spec": {"nodeName": "n"},
                "status": {"phase": "Running", "qosClass": "Burstable", "observedGeneration": 3,
                           "conditions": [{"type": "Ready", "observedGeneration": 2}]},
            })
        );
    }

    #[test]
    fn the_class_of_service_is_fixed() {
        assert_eq!(
            complaints(json!({}), json!({"qosClass": "BestEffort"}), json!({"qosClass": "Guaranteed"})),
            ["status.qosClass: Invalid value: \"Guaranteed\": field is immutable"]
        );
    }

    #[test]
    fn the_dead_stay_dead_unless_restarted() {
        let dead =
            |code: i64| json!({"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]});
        let alive = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        let check = |policy: &str, code: i64| {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "c"}]});
            complaints(spec, dead(code), alive.clone())
        };
        assert_eq!(check("Always", 0), Vec::<String>::new());
        assert_eq!(check("OnFailure", 1), Vec::<String>::new());
        let refused = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        assert_eq!(check("OnFailure", 0), [refused]);
        assert_eq!(check("Never", 1), [refused]);
    }

    #[test]
    fn addresses_are_one_of_each_family() {
        let with = |ips: &[&str]| {
            let list: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
            complaints(json!({}), json!({}), json!({"podIP": ips[0], "podIPs": list}))
        };
        assert_eq!(with(&["10.0.0.1", "::1"]), Vec::<String>::new());
        assert_eq!(
            with(&["10.0.0.1", "10.0.0.2"]),
            ["status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than \
              one IP for each IP family"]
        );
        assert_eq!(with(&["odd"]).len(), 1);
    }

    #[test]
    fn a_bound_pod_is_not_nominated() {
        let spec = json!({"nodeName": "n"});
        assert_eq!(complaints(spec, json!({}), json!({"nominatedNodeName": "m"})).len(), 1);
    }
}
