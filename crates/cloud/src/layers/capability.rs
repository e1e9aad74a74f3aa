//! What the cloud cannot do is refused before any call: every wish of a Service that it cannot fulfil, all at once.
//!
//! Wishes that only a provider can read, because they are annotations of its own (PROXY protocol, sharing), are its own to
//! refuse. That a node is leaving is no wish of the user: a cloud that cannot drain drops the node at once.

use std::collections::BTreeSet;

use bowline_core::{IpFamily, LoadBalancerSpec, LoadBalancerWish, Protocol, RouteSpec, SessionAffinity, TrafficPolicy};

use crate::{Error, ErrorKind, LoadBalancerCapabilities, Result, RouteCapabilities};

/// Whether `provider` can do all that is wished; else an error of the kind `Unsupported` that names each field. To remove
/// a balancer is always possible.
pub fn check_load_balancer(provider: &str, wish: &LoadBalancerWish, caps: &LoadBalancerCapabilities) -> Result<()> {
    let Some(spec) = wish.spec.as_deref() else { return Ok(()) };
    let wishes = [ports(spec, caps), families(&spec.ip_families, caps), limits(spec, caps), settings(spec, caps)];
    let refused = wishes.concat();
    if refused.is_empty() {
        return Ok(());
    }
    let service = format!("{}/{}", wish.key.namespace, wish.key.service);
    let message = format!("{provider} cannot do this: {}", refused.join("; "));
    Err(Error::new(ErrorKind::Unsupported, "plan load balancer", message).context("service", service))
}

/// Whether `provider` can lead traffic to this range.
pub fn check_route(provider: &str, route: &RouteSpec, caps: &RouteCapabilities) -> Result<()> {
    let family = if route.destination.addr().is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 };
    if caps.ip_families.contains(&family) {
        return Ok(());
    }
    let message = format!("{provider} cannot do this: destination {} ({family:?})", route.destination);
    Err(Error::new(ErrorKind::Unsupported, "create route", message).context("node", route.node.as_str()))
}

fn ports(spec: &LoadBalancerSpec, caps: &LoadBalancerCapabilities) -> Vec<String> {
    let protocols: BTreeSet<Protocol> = spec.ports.iter().map(|port| port.protocol).collect();
    let mut refused = Vec::new();
    for protocol in &protocols {
        let (can, name) = match protocol {
            Protocol::Tcp => (caps.tcp, "TCP"),
            Protocol::Udp => (caps.udp, "UDP"),
            Protocol::Sctp => (caps.sctp, "SCTP"),
        };
        refuse(&mut refused, !can, || format!("spec.ports: protocol {name}"));
    }
    let mixed = protocols.len() > 1 && !caps.mixed_protocols;
    refuse(&mut refused, mixed, || "spec.ports: several protocols on one balancer".to_owned());
    let bare = spec.ports.iter().any(|port| port.node_port.is_none()) && !caps.without_node_ports;
    refuse(&mut refused, bare, || "spec.allocateLoadBalancerNodePorts: false".to_owned());
    refused
}

fn families(wanted: &[IpFamily], caps: &LoadBalancerCapabilities) -> Vec<String> {
    let mut refused = Vec::new();
    for family in wanted {
        refuse(&mut refused, !caps.ip_families.contains(family), || format!("spec.ipFamilies: {family:?}"));
    }
    let dual = wanted.len() > 1 && !caps.dual_stack;
    refuse(&mut refused, dual, || "spec.ipFamilies: two families on one balancer".to_owned());
    refused
}

fn limits(spec: &LoadBalancerSpec, caps: &LoadBalancerCapabilities) -> Vec<String> {
    let mut refused = Vec::new();
    let counts = [("spec.ports", spec.ports.len(), caps.max_ports), ("nodes", spec.targets.len(), caps.max_targets)];
    for (field, count, most) in counts {
        if let Some(most) = most.filter(|most| count > *most) {
            refused.push(format!("{field}: {count} of them, at most {most}"));
        }
    }
    refused
}

fn settings(spec: &LoadBalancerSpec, caps: &LoadBalancerCapabilities) -> Vec<String> {
    let mut refused = Vec::new();
    let ranges = !spec.source_ranges.is_empty() && !caps.source_ranges;
    refuse(&mut refused, ranges, || "spec.loadBalancerSourceRanges".to_owned());
    let sticky = spec.session_affinity != SessionAffinity::None && !caps.session_affinity;
    refuse(&mut refused, sticky, || "spec.sessionAffinity: ClientIP".to_owned());
    let local = spec.traffic_policy == TrafficPolicy::Local && !caps.local_traffic_policy;
    refuse(&mut refused, local, || "spec.externalTrafficPolicy: Local".to_owned());
    if let Some(address) = spec.requested_address.as_ref().filter(|_| !caps.requested_address) {
        refused.push(format!("spec.loadBalancerIP: {address}"));
    }
    refused
}

fn refuse(refused: &mut Vec<String>, cannot: bool, field: impl FnOnce() -> String) {
    if cannot {
        refused.push(field());
    }
}
