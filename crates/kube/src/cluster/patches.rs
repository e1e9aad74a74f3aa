//! Bodies of the patches.

use bowline_core::initialize::NodeChange;
use bowline_core::routes::NetworkStatus;
use bowline_core::service::{ConditionChange, FinalizerChange, ServiceChange};
use bowline_core::well_known::{LOAD_BALANCER_CLEANUP, NETWORK_UNAVAILABLE};
use bowline_core::{Address, LoadBalancerStatus, Node, Service};
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// W-1: everything in one patch, with the resource version of the Node that the decision is based on.
pub(super) fn initialization(change: &NodeChange) -> Value {
    let mut metadata = json!({"uid": change.uid, "resourceVersion": change.resource_version});
    let mut spec = json!({"taints": change.taints});
    if !change.labels.is_empty() {
        metadata["labels"] = json!(change.labels);
    }
    if !change.annotations.is_empty() {
        metadata["annotations"] = json!(change.annotations);
    }
    if let Some(id) = &change.provider_id {
        spec["providerID"] = json!(id);
    }
    json!({"metadata": metadata, "spec": spec})
}

/// W-2: a strategic merge patch merges addresses by type and would lose several of one type, so the list is replaced.
pub(super) fn addresses(addresses: &[Address]) -> Value {
    let elements = std::iter::once(json!({"$patch": "replace"})).chain(addresses.iter().map(|address| json!(address)));
    json!({"status": {"addresses": elements.collect::<Vec<_>>()}})
}

/// W-9: `podCIDR` is the first element of `podCIDRs`. The UID makes the patch fail for another Node of the same name.
pub(super) fn pod_cidrs(node: &Node, pod_cidrs: &[IpNet]) -> Value {
    let first = pod_cidrs.first();
    json!({"metadata": {"uid": node.uid}, "spec": {"podCIDR": first, "podCIDRs": pod_cidrs}})
}

/// W-5: conditions are merged by type, so the patch has this one only.
pub(super) fn network(node: &Node, network: &NetworkStatus, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": NETWORK_UNAVAILABLE, "status": network.status, "reason": network.reason, "message": network.message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    json!({"metadata": {"uid": node.uid}, "status": {"conditions": [condition]}})
}

/// W-6 to W-8: only the changed fields, with the UID and without a resource version.
pub(super) fn service(service: &Service, change: &ServiceChange) -> Value {
    let mut metadata = Map::from_iter([("uid".to_owned(), json!(service.uid))]);
    metadata.extend(change.finalizer.map(|change| finalizers(service, change)).into_iter().flatten());
    if !change.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(change.annotations));
    }
    let mut status = Map::new();
    status.extend(change.status.as_ref().map(|new| ("loadBalancer".to_owned(), load_balancer(new))));
    status.extend(change.condition.as_ref().map(|change| ("conditions".to_owned(), conditions(change))));
    let mut patch = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    if !status.is_empty() {
        patch.insert("status".to_owned(), Value::Object(status));
    }
    Value::Object(patch)
}

fn finalizers(service: &Service, change: FinalizerChange) -> Vec<(String, Value)> {
    match change {
        // The element order puts this finalizer after the known ones; without it, the API server puts it first.
        FinalizerChange::Add => {
            let others = service.finalizers.iter().map(String::as_str).filter(|one| *one != LOAD_BALANCER_CLEANUP);
            let order: Vec<&str> = others.chain([LOAD_BALANCER_CLEANUP]).collect();
            vec![
                ("$setElementOrder/finalizers".to_owned(), json!(order)),
                ("finalizers".to_owned(), json!([LOAD_BALANCER_CLEANUP])),
            ]
        }
        // upstream: `finalizers: null` if this is the only known finalizer, which also removes one that was added meanwhile.
        FinalizerChange::Remove => {
            vec![("$deleteFromPrimitiveList/finalizers".to_owned(), json!([LOAD_BALANCER_CLEANUP]))]
        }
    }
}

/// `ingress` is an atomic list: the patch replaces it.
fn load_balancer(status: &LoadBalancerStatus) -> Value {
    if status.ingress.is_empty() { json!({"ingress": null}) } else { json!({"ingress": status.ingress}) }
}

/// Conditions are merged by type, so the patch has this one only.
fn conditions(change: &ConditionChange) -> Value {
    match change {
        ConditionChange::Set(condition) => json!([condition]),
        ConditionChange::Remove(kind) => json!([{"$patch": "delete", "type": kind}]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::wire::{Wire, WireNode, WireService};
    use bowline_core::service::Condition;

    fn with_finalizers(finalizers: &[&str]) -> Service {
        let metadata = json!({"namespace": "default", "name": "web", "uid": "u1", "finalizers": finalizers});
        serde_json::from_value::<WireService>(json!({"metadata": metadata})).unwrap().into_domain().unwrap()
    }

    fn change(finalizer: FinalizerChange) -> ServiceChange {
        ServiceChange { finalizer: Some(finalizer), ..ServiceChange::default() }
    }

    fn node() -> Node {
        serde_json::from_value::<WireNode>(json!({"metadata": {"name": "n", "uid": "u1"}}))
            .unwrap()
            .into_domain()
            .unwrap()
    }

    #[test]
    fn w5_the_network_condition_is_one_element_with_both_times() {
        let condition = json!({
            "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
            "message": "RouteController created a route",
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        // These times have no fractional seconds.
        let patch = network(&node(), &NetworkStatus::CREATED, "2026-01-02T03:04:05.999999999Z".parse().unwrap());
        assert_eq!(patch, json!({"metadata": {"uid": "u1"}, "status": {"conditions": [condition]}}));
    }

    #[test]
    fn w9_the_first_pod_cidr_is_in_both_fields() {
        let cidrs = ["10.244.3.0/24".parse().unwrap(), "fd00:10:244:3::/64".parse().unwrap()];
        let spec = json!({"podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24", "fd00:10:244:3::/64"]});
        assert_eq!(pod_cidrs(&node(), &cidrs), json!({"metadata": {"uid": "u1"}, "spec": spec}));
    }

    #[test]
    fn s23_adding_a_finalizer_patches_it_alone_with_an_element_order_that_puts_it_last() {
        for (known, order) in [
            (&["foo"][..], json!(["foo", LOAD_BALANCER_CLEANUP])),
            (&[], json!([LOAD_BALANCER_CLEANUP])),
            (&[LOAD_BALANCER_CLEANUP, "foo"], json!(["foo", LOAD_BALANCER_CLEANUP])),
        ] {
            let metadata = json!({
                "uid": "u1", "$setElementOrder/finalizers": order, "finalizers": [LOAD_BALANCER_CLEANUP],
            });
            let patch = service(&with_finalizers(known), &change(FinalizerChange::Add));
            assert_eq!(patch, json!({"metadata": metadata}), "{known:?}");
        }
    }

    #[test]
    fn w7_removing_a_finalizer_patches_it_alone_whatever_others_are_known() {
        for known in [&[LOAD_BALANCER_CLEANUP][..], &["foo", LOAD_BALANCER_CLEANUP], &[]] {
            let metadata = json!({"uid": "u1", "$deleteFromPrimitiveList/finalizers": [LOAD_BALANCER_CLEANUP]});
            let patch = service(&with_finalizers(known), &change(FinalizerChange::Remove));
            assert_eq!(patch, json!({"metadata": metadata}), "{known:?}");
        }
    }

    #[test]
    fn annotations_are_patched_one_by_one_and_null_removes_one() {
        let annotations = [("a".to_owned(), Some("b".to_owned())), ("c".to_owned(), None)].into();
        let patch = service(&with_finalizers(&[]), &ServiceChange { annotations, ..ServiceChange::default() });
        assert_eq!(patch, json!({"metadata": {"uid": "u1", "annotations": {"a": "b", "c": null}}}));
    }

    #[test]
    fn w8_an_empty_status_is_cleared_and_conditions_are_patched_by_type() {
        let change = ServiceChange {
            status: Some(LoadBalancerStatus::default()),
            condition: Some(ConditionChange::Remove("Mine".to_owned())),
            ..ServiceChange::default()
        };
        let status = json!({"loadBalancer": {"ingress": null}, "conditions": [{"$patch": "delete", "type": "Mine"}]});
        assert_eq!(service(&with_finalizers(&[]), &change), json!({"metadata": {"uid": "u1"}, "status": status}));
        let condition = Condition {
            kind: "Mine".to_owned(),
            status: "True".to_owned(),
            reason: "Because".to_owned(),
            message: String::new(),
            last_transition_time: "2026-01-02T03:04:05Z".to_owned(),
        };
        let change = ServiceChange { condition: Some(ConditionChange::Set(condition)), ..ServiceChange::default() };
        let condition = json!({
            "type": "Mine", "status": "True", "reason": "Because", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        let patch = service(&with_finalizers(&[]), &change);
        assert_eq!(patch, json!({"metadata": {"uid": "u1"}, "status": {"conditions": [condition]}}));
    }
}
