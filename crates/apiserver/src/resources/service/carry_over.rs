//! Fields that an update inherits from the old Service, and fields that it clears.
//!
//! Clients may replace a Service with the manifest they created it from, without the values that the server allocated, and
//! may change `spec.type` without clearing the fields of the old type. Two rules make this work: allocated values that are
//! still needed are inherited, and values that are no longer needed are cleared unless the client changed them
//! (then validation rejects them).

use std::collections::HashMap;

use serde_json::{Value, json};

use super::shape::{self, same};
use crate::value::Json;

const CLUSTER_IP: &str = "spec.clusterIP";
const CLUSTER_IPS: &str = "spec.clusterIPs";

// === Inheritance ===

/// Fills in allocated values that the client omitted.
pub(super) fn inherit(svc: &mut Value, old: &Value) {
    let both = |needs: fn(&Value) -> bool| needs(svc) && needs(old);
    let (ip, ports, health) =
        (both(shape::needs_cluster_ip), both(shape::needs_node_ports), both(shape::needs_health_check_port));
    if ip {
        inherit_field(svc, old, CLUSTER_IP);
        inherit_field(svc, old, CLUSTER_IPS);
    }
    if ports {
        inherit_node_ports(svc, old);
    }
    if health {
        inherit_field(svc, old, "spec.healthCheckNodePort");
    }
}

fn inherit_field(svc: &mut Value, old: &Value, path: &str) {
    if !svc.has(path) && old.has(path) {
        svc.put(path, old.at(path).clone());
    }
}

/// Matches ports by name only. A node port that another port of the new object uses is not inherited.
fn inherit_node_ports(svc: &mut Value, old: &Value) {
    let kept: Vec<i64> = shape::node_ports(svc).intersection(&shape::node_ports(old)).copied().collect();
    let by_name: HashMap<&str, i64> =
        old.list("spec.ports").iter().map(|port| (port.text("name"), shape::node_port(port))).collect();
    for port in svc.list_mut("spec.ports").into_iter().flatten() {
        let previous = by_name.get(port.text("name")).copied().unwrap_or_default();
        if shape::node_port(port) == 0 && previous != 0 && !kept.contains(&previous) {
            port.put("nodePort", previous);
        }
    }
}

// === clusterIP and clusterIPs ===

/// Sets `clusterIPs` of a new object that has only the older field `clusterIP`. Validation rejects the reverse.
pub(super) fn mirror_on_create(svc: &mut Value) {
    if svc.has(CLUSTER_IP) && svc.list(CLUSTER_IPS).is_empty() {
        let only = svc.at(CLUSTER_IP).clone();
        svc.put(CLUSTER_IPS, vec![only]);
    }
}

/// Updates `clusterIPs` if a client changed only the older field `clusterIP`.
pub(super) fn mirror_on_update(svc: &mut Value, old: &Value) {
    let same_single = same(svc, old, CLUSTER_IP);
    if same_single && svc.list(CLUSTER_IPS).is_empty() {
        inherit_field(svc, old, CLUSTER_IPS);
    }
    if same_single || !same(svc, old, CLUSTER_IPS) {
        return;
    }
    match svc.has(CLUSTER_IP) {
        true => svc.put(CLUSTER_IPS, vec![svc.at(CLUSTER_IP).clone()]),
        false => clear(svc, CLUSTER_IPS),
    }
}

// === Clearing ===

/// Clears fields that the new type does not use and the client did not change. Their allocations are already marked for
/// release.
pub(super) fn drop_type_dependent(svc: &mut Value, old: &Value) {
    let stopped = |needs: fn(&Value) -> bool| needs(old) && !needs(svc);
    let no_load_balancer = stopped(shape::is_load_balancer);
    let no_node_ports = stopped(shape::may_have_node_ports);
    let no_policy = stopped(shape::is_external);
    let no_health_check = stopped(shape::needs_health_check_port);
    if stopped(shape::needs_cluster_ip) {
        drop_cluster_ips(svc, old);
    }
    if no_node_ports && shape::node_ports(svc).is_subset(&shape::node_ports(old)) {
        for port in svc.list_mut("spec.ports").into_iter().flatten() {
            port.take_at("nodePort");
        }
    }
    for (stopped, path) in [
        (no_health_check, "spec.healthCheckNodePort"),
        (no_load_balancer, "spec.allocateLoadBalancerNodePorts"),
        (no_load_balancer, "spec.loadBalancerClass"),
        (no_policy, "spec.externalTrafficPolicy"),
    ] {
        if stopped {
            clear_unchanged(svc, old, path);
        }
    }
    if !shape::is_load_balancer(svc) {
        svc.put("status.loadBalancer", json!({}));
    }
}

fn drop_cluster_ips(svc: &mut Value, old: &Value) {
    if same(svc, old, CLUSTER_IP) && same(svc, old, CLUSTER_IPS) {
        clear(svc, CLUSTER_IP);
        clear(svc, CLUSTER_IPS);
    }
    clear_unchanged(svc, old, "spec.ipFamilies");
    clear_unchanged(svc, old, "spec.ipFamilyPolicy");
}

fn clear_unchanged(svc: &mut Value, old: &Value, path: &str) {
    if same(svc, old, path) {
        clear(svc, path);
    }
}

fn clear(svc: &mut Value, path: &str) {
    svc.take_at(path);
}

/// Clears `internalTrafficPolicy` of an ExternalName Service. An unknown value is kept, so that validation rejects it.
pub(super) fn drop_internal_policy_of_external_name(svc: &mut Value) {
    let policy = svc.text("spec.internalTrafficPolicy");
    if shape::is_external_name(svc) && matches!(policy, "Cluster" | "Local") {
        clear(svc, "spec.internalTrafficPolicy");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_port_service(ports: Value) -> Value {
        json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"], "ports": ports}})
    }

    #[test]
    fn omitted_allocated_values_are_inherited() {
        let old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        inherit(&mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn node_ports_are_inherited_by_port_name_unless_in_use() {
        let old = node_port_service(json!([
            {"name": "a", "port": 80, "nodePort": 30_001}, {"name": "b", "port": 81, "nodePort": 30_002},
        ]));
        let mut new = node_port_service(json!([{"name": "b", "port": 90}, {"name": "c", "port": 91}]));
        inherit(&mut new, &old);
        assert_eq!(
            new["spec"]["ports"],
            json!([{"name": "b", "port": 90, "nodePort": 30_002}, {"name": "c", "port": 91}])
        );

        let mut swapped =
            node_port_service(json!([{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30_001}]));
        let expected = swapped.clone();
        inherit(&mut swapped, &old);
        assert_eq!(swapped, expected);
    }

    #[test]
    fn types_without_node_ports_inherit_none() {
        let old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        for kind in ["ExternalName", "ClusterIP"] {
            let mut new = json!({"spec": {"type": kind, "ports": [{"port": 80}]}});
            inherit(&mut new, &old);
            assert_eq!(new["spec"]["ports"], json!([{"port": 80}]));
            assert_eq!(new.has(CLUSTER_IP), kind == "ClusterIP");
        }
    }

    #[test]
    fn cluster_ips_follow_cluster_ip() {
        let old = json!({"spec": {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"]}});
        let cases = [
            (json!({"clusterIP": "10.96.0.6", "clusterIPs": ["10.96.0.5"]}), json!(["10.96.0.6"])),
            (json!({"clusterIPs": ["10.96.0.5"]}), Value::Null),
            (json!({"clusterIP": "10.96.0.5"}), json!(["10.96.0.5"])),
            (json!({"clusterIP": "10.96.0.6", "clusterIPs": ["10.96.0.7"]}), json!(["10.96.0.7"])),
        ];
        for (spec, expected) in cases {
            let mut new = json!({ "spec": spec });
            mirror_on_update(&mut new, &old);
            assert_eq!(*new.at(CLUSTER_IPS), expected, "{spec}");
        }
    }

    #[test]
    fn type_change_clears_the_fields_of_the_old_type() {
        let mut old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        old["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": []});
        old["spec"]["type"] = "LoadBalancer".into();
        for (field, value) in [
            ("externalTrafficPolicy", json!("Local")),
            ("healthCheckNodePort", json!(30_002)),
            ("allocateLoadBalancerNodePorts", json!(true)),
            ("loadBalancerClass", json!("ex.com/a")),
        ] {
            old["spec"][field] = value;
        }
        let mut new = old.clone();
        new["spec"]["type"] = "ClusterIP".into();
        drop_type_dependent(&mut new, &old);
        let expected = json!({
            "type": "ClusterIP", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"], "ports": [{"port": 80}],
        });
        assert_eq!(new, json!({"spec": expected, "status": {"loadBalancer": {}, "conditions": []}}));
    }

    #[test]
    fn changed_fields_are_not_cleared() {
        let old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        let mut new = node_port_service(json!([{"port": 80, "nodePort": 30_009}]));
        new["spec"]["type"] = "ExternalName".into();
        new["spec"]["clusterIP"] = "10.96.0.9".into();
        let expected = new["spec"].clone();
        drop_type_dependent(&mut new, &old);
        assert_eq!(new["spec"], expected);
    }

    #[test]
    fn external_name_has_no_internal_traffic_policy() {
        let mut svc = json!({"spec": {"type": "ExternalName", "internalTrafficPolicy": "Local"}});
        drop_internal_policy_of_external_name(&mut svc);
        assert_eq!(svc, json!({"spec": {"type": "ExternalName"}}));
        let mut unknown = json!({"spec": {"type": "ExternalName", "internalTrafficPolicy": "Bogus"}});
        drop_internal_policy_of_external_name(&mut unknown);
        assert!(unknown.has("spec.internalTrafficPolicy"));
    }
}
