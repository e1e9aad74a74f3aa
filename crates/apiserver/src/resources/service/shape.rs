//! Type of a Service, and what that type needs.
//!
//! These functions also run before validation, so they accept an unknown type.

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

/// True if the Service has a `clusterIP`, including `None`.
pub(super) fn needs_cluster_ip(svc: &Value) -> bool {
    !is_external_name(svc)
}

/// True if `clusterIPs` is `["None"]`.
pub(super) fn is_headless(svc: &Value) -> bool {
    matches!(svc.list("spec.clusterIPs"), [only] if only == NONE)
}

/// True for a headless Service without selector, which can have endpoints of any IP family.
pub(super) fn is_headless_without_selector(svc: &Value) -> bool {
    svc.text("spec.clusterIP") == NONE && svc.map("spec.selector").is_none_or(|s| s.is_empty())
}

/// True if the type has node ports, even if none are set.
pub(super) fn may_have_node_ports(svc: &Value) -> bool {
    matches!(type_of(svc), ServiceType::NodePort | ServiceType::LoadBalancer)
}

/// True if every port gets a node port.
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

/// True if the Service is reachable from outside the cluster.
pub(super) fn is_external(svc: &Value) -> bool {
    match type_of(svc) {
        ServiceType::NodePort | ServiceType::LoadBalancer => true,
        ServiceType::ClusterIp => !svc.list("spec.externalIPs").is_empty(),
        _ => false,
    }
}

/// Returns the node port of one entry of `spec.ports`, 0 for none.
pub(super) fn node_port(port: &Value) -> i64 {
    port.int("nodePort").unwrap_or_default()
}

/// Returns all node ports of `spec.ports`.
pub(super) fn node_ports(svc: &Value) -> BTreeSet<i64> {
    svc.list("spec.ports").iter().map(node_port).filter(|&port| port != 0).collect()
}

pub(super) fn health_check_port(svc: &Value) -> i64 {
    svc.int("spec.healthCheckNodePort").unwrap_or_default()
}

pub(super) fn same(a: &Value, b: &Value, path: &str) -> bool {
    a.at(path) == b.at(path)
}

/// IP family.
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
    fn load_balancers_can_opt_out_of_node_ports() {
        let needs = |spec: Value| needs_node_ports(&json!({ "spec": spec }));
        assert!(needs(json!({"type": "NodePort"})));
        assert!(needs(json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": true})));
        assert!(!needs(json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false})));
        assert!(!needs(json!({"type": "ClusterIP"})));
        assert!(!needs(json!({"type": "Bogus"})));
    }

    #[test]
    fn cluster_ip_service_is_external_only_with_external_ips() {
        assert!(!is_external(&json!({"spec": {"type": "ClusterIP"}})));
        assert!(is_external(&json!({"spec": {"type": "ClusterIP", "externalIPs": ["192.0.2.1"]}})));
        assert!(!is_external(&json!({"spec": {"type": "ExternalName", "externalIPs": ["192.0.2.1"]}})));
    }
}
