//! What sort of Service an object is, and what that sort needs.
//!
//! Only questions, each about one object. They hold for objects that validation has not seen yet, so a type
//! nobody knows is an answer too.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::value::Json;

/// The value of `clusterIP` of a headless Service.
pub(super) const NONE: &str = "None";

/// `spec.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceType {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
    Unknown,
}

pub(super) fn type_of(svc: &Value) -> ServiceType {
    match svc.text("spec.type") {
        "ClusterIP" => ServiceType::ClusterIp,
        "NodePort" => ServiceType::NodePort,
        "LoadBalancer" => ServiceType::LoadBalancer,
        "ExternalName" => ServiceType::ExternalName,
        _ => ServiceType::Unknown,
    }
}

pub(super) fn is_load_balancer(svc: &Value) -> bool {
    type_of(svc) == ServiceType::LoadBalancer
}

pub(super) fn is_external_name(svc: &Value) -> bool {
    type_of(svc) == ServiceType::ExternalName
}

/// It has a `clusterIP`, be it `None`.
pub(super) fn needs_cluster_ip(svc: &Value) -> bool {
    !is_external_name(svc)
}

/// `clusterIPs` is `["None"]`.
pub(super) fn is_headless(svc: &Value) -> bool {
    matches!(svc.list("spec.clusterIPs"), [only] if only == NONE)
}

/// Nothing says which pods it is for, so nothing says which IP families it has.
pub(super) fn is_headless_without_selector(svc: &Value) -> bool {
    svc.text("spec.clusterIP") == NONE && svc.map("spec.selector").is_none_or(|s| s.is_empty())
}

/// Its type has node ports, be they left out.
pub(super) fn may_have_node_ports(svc: &Value) -> bool {
    matches!(type_of(svc), ServiceType::NodePort | ServiceType::LoadBalancer)
}

/// Every port gets a node port.
pub(super) fn needs_node_ports(svc: &Value) -> bool {
    match type_of(svc) {
        ServiceType::NodePort => true,
        ServiceType::LoadBalancer => *svc.at("spec.allocateLoadBalancerNodePorts") != Value::Bool(false),
        _ => false,
    }
}

pub(super) fn needs_health_check_port(svc: &Value) -> bool {
    is_load_balancer(svc) && svc.text("spec.externalTrafficPolicy") == "Local"
}

/// Reachable from outside of the cluster.
pub(super) fn is_external(svc: &Value) -> bool {
    match type_of(svc) {
        ServiceType::NodePort | ServiceType::LoadBalancer => true,
        ServiceType::ClusterIp => !svc.list("spec.externalIPs").is_empty(),
        _ => false,
    }
}

/// The node port of one entry of `spec.ports`, 0 for none.
pub(super) fn node_port(port: &Value) -> i64 {
    port.int("nodePort").unwrap_or_default()
}

/// All node ports of `spec.ports`.
pub(super) fn node_ports(svc: &Value) -> BTreeSet<i64> {
    svc.list("spec.ports").iter().map(node_port).filter(|&port| port != 0).collect()
}

pub(super) fn health_check_port(svc: &Value) -> i64 {
    svc.int("spec.healthCheckNodePort").unwrap_or_default()
}

pub(super) fn same(a: &Value, b: &Value, path: &str) -> bool {
    a.at(path) == b.at(path)
}

/// An IP family as the API names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(ip: IpAddr) -> Family {
        match ip.to_canonical() {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub(super) fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_ports_are_needed_by_type_unless_a_load_balancer_opts_out() {
        let needs = |spec: Value| needs_node_ports(&json!({ "spec": spec }));
        assert!(needs(json!({"type": "NodePort"})));
        assert!(needs(json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": true})));
        assert!(!needs(json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false})));
        assert!(!needs(json!({"type": "ClusterIP"})));
        assert!(!needs(json!({"type": "Bogus"})));
    }

    #[test]
    fn a_cluster_ip_service_is_external_only_with_external_ips() {
        assert!(!is_external(&json!({"spec": {"type": "ClusterIP"}})));
        assert!(is_external(&json!({"spec": {"type": "ClusterIP", "externalIPs": ["192.0.2.1"]}})));
        assert!(!is_external(&json!({"spec": {"type": "ExternalName", "externalIPs": ["192.0.2.1"]}})));
    }
}
