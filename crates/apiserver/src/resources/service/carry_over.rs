//! What a change leaves as it was, though the client said nothing of it, and what it clears.
//!
//! Clients may send again the very manifest they created a Service from, without the values the server picked
//! for it, and may change `spec.type` without knowing which fields go with which type. Two rules make that
//! work: values that are still needed are inherited, and values that are no longer needed are cleared if the
//! client did not touch them (if it did, validation speaks up).

use std::collections::HashMap;

use serde_json::{Value, json};

use super::shape::{self, same};
use crate::value::Json;

const CLUSTER_IP: &str = "spec.clusterIP";
const CLUSTER_IPS: &str = "spec.clusterIPs";

// === Inheriting ===

/// Fills in allocated values the client left out.
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

/// Ports are recognised by name, whatever else of them changed. A node port that is in use by another port
/// of the new object is not inherited.
fn inherit_node_ports(svc: &mut Value, old: &Value) {
    let kept: Vec<i64> = shape::node_ports(svc).intersection(&shape::node_ports(old)).copied().collect();
    let by_name: HashMap<&str, i64> =
        old.list("spec.ports").iter().map(|port| (port.text("name"), shape::node_port(port))).collect();
    for port in svc.list_mut("spec.ports").into_iter().flatten() {
        let before = by_name.get(port.text("name")).copied().unwrap_or_default();
        if shape::node_port(port) == 0 && before != 0 && !kept.contains(&before) {
            port.put("nodePort", before);
        }
    }
}

// === The two forms of clusterIP ===

/// A new object that has only the older, single field gets the list as well. The other way round is refused
/// by validation.
pub(super) fn mirror_new(svc: &mut Value) {
    if svc.has(CLUSTER_IP) && svc.list(CLUSTER_IPS).is_empty() {
        let only = svc.at(CLUSTER_IP).clone();
        svc.put(CLUSTER_IPS, vec![only]);
    }
}

/// A change of the single field by a client that does not know of the list changes the list too.
pub(super) fn mirror_changed(svc: &mut Value, old: &Value) {
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

/// Clears what the new type has no use for and the client left as it was. What was allocated has been put up
/// for release before this.
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

/// An ExternalName Service shows no internal policy, whoever set it. A value that is none is left for
/// validation to find.
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
    fn a_manifest_without_allocated_values_inherits_them() {
        let old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        inherit(&mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn node_ports_follow_the_name_of_the_port_unless_another_has_them() {
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
        let wanted = swapped.clone();
        inherit(&mut swapped, &old);
        assert_eq!(swapped, wanted);
    }

    #[test]
    fn a_type_that_needs_none_inherits_nothing() {
        let old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        for kind in ["ExternalName", "ClusterIP"] {
            let mut new = json!({"spec": {"type": kind, "ports": [{"port": 80}]}});
            inherit(&mut new, &old);
            assert_eq!(new["spec"]["ports"], json!([{"port": 80}]));
            assert_eq!(new.has(CLUSTER_IP), kind == "ClusterIP");
        }
    }

    #[test]
    fn the_list_follows_a_client_that_knows_only_the_single_field() {
        let old = json!({"spec": {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"]}});
        let cases = [
            (json!({"clusterIP": "10.96.0.6", "clusterIPs": ["10.96.0.5"]}), json!(["10.96.0.6"])),
            (json!({"clusterIPs": ["10.96.0.5"]}), Value::Null),
            (json!({"clusterIP": "10.96.0.5"}), json!(["10.96.0.5"])),
            (json!({"clusterIP": "10.96.0.6", "clusterIPs": ["10.96.0.7"]}), json!(["10.96.0.7"])),
        ];
        for (spec, wanted) in cases {
            let mut new = json!({ "spec": spec });
            mirror_changed(&mut new, &old);
            assert_eq!(*new.at(CLUSTER_IPS), wanted, "{spec}");
        }
    }

    #[test]
    fn leaving_a_type_clears_its_fields() {
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
        let wanted = json!({
            "type": "ClusterIP", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"], "ports": [{"port": 80}],
        });
        assert_eq!(new, json!({"spec": wanted, "status": {"loadBalancer": {}, "conditions": []}}));
    }

    #[test]
    fn what_the_client_changed_is_left_for_validation() {
        let old = node_port_service(json!([{"port": 80, "nodePort": 30_001}]));
        let mut new = node_port_service(json!([{"port": 80, "nodePort": 30_009}]));
        new["spec"]["type"] = "ExternalName".into();
        new["spec"]["clusterIP"] = "10.96.0.9".into();
        let wanted = new["spec"].clone();
        drop_type_dependent(&mut new, &old);
        assert_eq!(new["spec"], wanted);
    }

    #[test]
    fn an_external_name_shows_no_internal_policy() {
        let mut svc = json!({"spec": {"type": "ExternalName", "internalTrafficPolicy": "Local"}});
        drop_internal_policy_of_external_name(&mut svc);
        assert_eq!(svc, json!({"spec": {"type": "ExternalName"}}));
        let mut odd = json!({"spec": {"type": "ExternalName", "internalTrafficPolicy": "Bogus"}});
        drop_internal_policy_of_external_name(&mut odd);
        assert!(odd.has("spec.internalTrafficPolicy"));
    }
}
