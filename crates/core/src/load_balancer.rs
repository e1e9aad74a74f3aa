//! Load balancers: what a Service wants, and what a cloud has.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::annotations::LoadBalancerSettings;
use crate::{Address, AddressType, ClusterName, NodeName, Opaque, Operation, ProviderId, TargetSet};

/// Whose balancer it is. Everything made for it in a cloud is marked with these, and found by them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerKey {
    /// The cluster.
    pub cluster: ClusterName,
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub service: String,
    /// The Service's UID: a new Service of the same name has another balancer. Empty in a listing of a cloud whose marks do
    /// not tell it.
    pub uid: String,
}

impl LoadBalancerKey {
    /// The balancer is that of this Service, as far as the mark tells: one without a UID goes by the names alone.
    pub fn belongs_to(&self, namespace: &str, service: &str, uid: &str) -> bool {
        let is_named = self.namespace == namespace && self.service == service;
        if self.uid.is_empty() { is_named } else { self.uid == uid }
    }

    /// As a mark in a cloud, it is that of this key: of the same cluster, and [its](LoadBalancerKey::belongs_to) Service's.
    pub fn marks(&self, key: &LoadBalancerKey) -> bool {
        self.cluster == key.cluster && self.belongs_to(&key.namespace, &key.service, &key.uid)
    }
}

/// What is wanted for a Service, which may be that nothing is left. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredLoadBalancer {
    /// Whose balancer it is.
    pub key: LoadBalancerKey,
    /// The Service's annotations, where a provider keeps its own settings. They count for a balancer that is to go as well:
    /// one may say that the address is to be kept. Empty for a Service that is gone altogether.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// What the common annotations say. Where one of the provider's own says something else, that one counts.
    pub settings: Arc<LoadBalancerSettings>,
    /// The balancer; `None` if none is wanted any more.
    pub spec: Option<Arc<LoadBalancerSpec>>,
}

/// What a Service wants of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// What it listens on, and where that goes.
    pub ports: Vec<PortSpec>,
    /// The machines behind it.
    pub targets: TargetSet,
    /// Who may connect; empty means everybody.
    pub source_ranges: Vec<IpNet>,
    /// The address that the user asked for (`spec.loadBalancerIP`).
    pub requested_address: Option<String>,
    /// Which families of addresses, the first one first.
    pub ip_families: Vec<IpFamily>,
    /// Whether connections of one client stay together.
    pub session_affinity: SessionAffinity,
    /// Whether a node may pass traffic on to another.
    pub traffic_policy: TrafficPolicy,
    /// How a node says whether it wants traffic; with [`TrafficPolicy::Local`] only.
    pub health_check: Option<HealthCheck>,
}

/// One port of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec {
    /// The Service's name for it; may be empty.
    pub name: String,
    /// What is spoken.
    pub protocol: Protocol,
    /// Where clients connect.
    pub port: u16,
    /// Where it goes on the node; `None` if the Service allots no node ports.
    pub node_port: Option<u16>,
    /// What is spoken above, if the user said so.
    pub app_protocol: Option<String>,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
}

/// As Kubernetes writes it.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        })
    }
}

/// A family of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpFamily {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

/// Whether connections of one client stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SessionAffinity {
    /// They need not.
    None,
    /// They do, by the client's address, for this many seconds after the last.
    ClientIp {
        /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
        timeout_seconds: u32,
    },
}

/// `spec.externalTrafficPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// Any node takes the traffic and passes it on.
    Cluster,
    /// Only nodes with a pod of the Service take it, and the client's address survives.
    Local,
}

/// How a node says whether it wants traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The path, `/healthz`.
    pub path: String,
    /// `spec.healthCheckNodePort`.
    pub port: u16,
}

/// A machine behind a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetNode {
    /// The node.
    pub node: NodeName,
    /// Its machine.
    pub provider_id: Option<ProviderId>,
    /// Where it is reached.
    pub addresses: Vec<Address>,
    /// It is leaving: it keeps the connections that it has and gets no new ones. A balancer that does not have it does not
    /// get it any more.
    pub draining: bool,
}

impl TargetNode {
    /// Address to which a load balancer sends: the first internal one of the family, else the first external one of it. Without a
    /// family, any address is one.
    pub fn address(&self, family: Option<IpFamily>) -> Option<&str> {
        let is_of = |address: &str| match (address.parse(), family) {
            (_, None) => true,
            (Ok(IpAddr::V4(_)), Some(family)) => family == IpFamily::IPv4,
            (Ok(IpAddr::V6(_)), Some(family)) => family == IpFamily::IPv6,
            (Err(_), Some(_)) => false,
        };
        let of_kind = |kind| self.addresses.iter().find(|it| it.kind == kind && is_of(&it.address));
        let found = of_kind(AddressType::InternalIP).or_else(|| of_kind(AddressType::ExternalIP));
        found.map(|address| address.address.as_str())
    }
}

/// What a cloud has for a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerState<S = Opaque> {
    /// What the Service's status says while this is so.
    pub status: LoadBalancerStatus,
    /// What does not work although all is made, each with its cause and what to do, in words for people. The status has
    /// room for a word per port only.
    pub errors: Vec<String>,
    /// What the Service's annotations are to say while this is so, beside all that they say already: where a cloud's users,
    /// or another manager of it, look for the balancer's ID.
    pub annotations: BTreeMap<String, String>,
    /// The operation that the cloud is at work on, if it is; nothing is planned until it has ended.
    pub pending: Option<Operation>,
    /// The things in the cloud, in a type of the provider's own; only its `plan` looks inside.
    pub resources: S,
}

impl<S> LoadBalancerState<S> {
    /// A state without problems, annotations and a pending operation.
    pub fn new(status: LoadBalancerStatus, resources: S) -> LoadBalancerState<S> {
        LoadBalancerState { status, errors: Vec::new(), annotations: BTreeMap::new(), pending: None, resources }
    }

    /// The same state with its resources made into others.
    pub fn map<T>(self, into: impl FnOnce(S) -> T) -> LoadBalancerState<T> {
        let LoadBalancerState { status, errors, annotations, pending, resources } = self;
        LoadBalancerState { status, errors, annotations, pending, resources: into(resources) }
    }
}

/// `status.loadBalancer` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadBalancerStatus {
    /// Where clients connect.
    #[serde(default)]
    pub ingress: Vec<Ingress>,
}

/// One entry of `status.loadBalancer.ingress`: an address or a name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// How nodes treat the address; with `ip` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<IpMode>,
    /// What became of each port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
}

/// How nodes treat a balancer's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpMode {
    /// Packets arrive with the balancer's address as destination; nodes may shortcut it.
    #[serde(rename = "VIP")]
    Vip,
    /// Packets arrive addressed to the node; traffic must really pass the balancer.
    Proxy,
}

/// What became of one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// Why it does not work, as a CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addresses, target};

    #[test]
    fn a_target_is_reached_at_its_first_internal_address_of_the_family_else_at_an_external_one() {
        let (v4, v6) = (Some(IpFamily::IPv4), Some(IpFamily::IPv6));
        let table = [
            ("I10.0.0.1 I10.0.0.2", v4, Some("10.0.0.1")),
            ("E203.0.113.1 I10.0.0.1", v4, Some("10.0.0.1")),
            ("Ifd00::1 I10.0.0.1", v4, Some("10.0.0.1")),
            ("Ifd00::1 I10.0.0.1", None, Some("fd00::1")),
            ("Ifd00::1 E203.0.113.1", v4, Some("203.0.113.1")),
            ("I10.0.0.1", v6, None),
            ("Hn1 Dn1.internal", None, None),
            ("", v4, None),
        ];
        for (text, family, expected) in table {
            let node = TargetNode { addresses: addresses(text), ..target("n1") };
            assert_eq!(node.address(family), expected, "{text:?} {family:?}");
        }
    }
}
