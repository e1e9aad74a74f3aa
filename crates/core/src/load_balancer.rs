//! Desired and observed state of load balancers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::annotations::LoadBalancerSettings;
use crate::{Address, AddressType, ClusterName, NodeName, Opaque, Operation, ProviderId, TargetSet};

/// Identity of a load balancer: its cluster and its Service. Providers mark every cloud resource of the load balancer with this
/// key and find the resources by it.
///
/// In listings of a cloud whose marks do not name the Service, a key has the name of the load balancer as its `service`, an empty
/// namespace, and as its UID the cloud's ID of the load balancer or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerKey {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Namespace of the Service; empty if only the name of the load balancer is known.
    pub namespace: String,
    /// Name of the Service, or of the load balancer if the namespace is empty.
    pub service: String,
    /// UID of the Service: a new Service of the same name gets another load balancer. Empty in listings of a cloud whose marks do
    /// not contain the UID.
    pub uid: String,
}

impl LoadBalancerKey {
    /// Returns whether the load balancer belongs to this Service. A key without a UID is compared by namespace and name alone.
    pub fn belongs_to(&self, namespace: &str, service: &str, uid: &str) -> bool {
        let is_named = self.namespace == namespace && self.service == service;
        if self.uid.is_empty() { is_named } else { self.uid == uid }
    }

    /// Returns whether this key, read from a mark in the cloud, identifies the load balancer of `key`: the same cluster, and
    /// [the same Service](LoadBalancerKey::belongs_to).
    pub fn matches(&self, key: &LoadBalancerKey) -> bool {
        self.cluster == key.cluster && self.belongs_to(&key.namespace, &key.service, &key.uid)
    }

    /// Returns the name of the load balancer if the key does not name the Service.
    pub fn name_only(&self) -> Option<&str> {
        self.namespace.is_empty().then_some(&self.service)
    }
}

/// Desired load balancer of a Service, which may be none at all. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredLoadBalancer {
    /// Cluster and Service that it belongs to.
    pub key: LoadBalancerKey,
    /// All annotations of the Service, among them those of the provider. They also apply to a load balancer that is to be deleted:
    /// one may request that its address is kept. Empty for a Service that no longer exists.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Settings from the common annotations. An annotation of the provider takes precedence over them.
    pub settings: Arc<LoadBalancerSettings>,
    /// Desired state; `None` if the load balancer is to be deleted.
    pub spec: Option<Arc<LoadBalancerSpec>>,
}

/// Desired state of a load balancer, derived from its Service and the Nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Ports that it listens on, with their node ports.
    pub ports: Vec<PortSpec>,
    /// Nodes that receive its traffic.
    pub targets: TargetSet,
    /// CIDRs from which clients may connect; empty if all clients may.
    pub source_ranges: Vec<IpNet>,
    /// Address that the user requested (`spec.loadBalancerIP`).
    pub requested_address: Option<String>,
    /// IP families, the primary one first.
    pub ip_families: Vec<IpFamily>,
    /// Whether connections of one client go to the same target.
    pub session_affinity: SessionAffinity,
    /// Whether a Node may forward traffic to another Node.
    pub traffic_policy: TrafficPolicy,
    /// Health check of the Nodes by kube-proxy; with [`TrafficPolicy::Local`] only.
    pub health_check: Option<HealthCheck>,
}

/// Desired port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec {
    /// Name of the Service port; may be empty.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port that clients connect to.
    pub port: u16,
    /// Node port that receives the traffic; `None` if the Service allocates no node ports.
    pub node_port: Option<u16>,
    /// Application protocol (`appProtocol`), if the user set one.
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

/// Formats the protocol as Kubernetes does.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        })
    }
}

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpFamily {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

/// `spec.sessionAffinity`: whether connections of one client go to the same target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SessionAffinity {
    /// No session affinity.
    None,
    /// Affinity by client address, until the timeout after the last connection.
    ClientIp {
        /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
        timeout_seconds: u32,
    },
}

/// `spec.externalTrafficPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// Every Node accepts the traffic and may forward it to another Node.
    Cluster,
    /// Only Nodes with a Pod of the Service accept the traffic, and the client's address is preserved.
    Local,
}

/// HTTP health check that kube-proxy serves on every Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Path of the request, `/healthz`.
    pub path: String,
    /// `spec.healthCheckNodePort`.
    pub port: u16,
}

/// A Node as target of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetNode {
    /// Name of the Node.
    pub node: NodeName,
    /// Provider ID of its machine.
    pub provider_id: Option<ProviderId>,
    /// Addresses of the Node.
    pub addresses: Vec<Address>,
    /// Whether the target is draining: it keeps its connections and gets no new ones. A load balancer that does not have the
    /// target yet does not add it.
    pub draining: bool,
}

impl TargetNode {
    /// Returns the address that a load balancer sends traffic to: the first internal IP of the family, else its first external IP.
    /// Without a family, addresses of both families are considered.
    pub fn address(&self, family: Option<IpFamily>) -> Option<&str> {
        let is_in_family = |address: &str| match (address.parse(), family) {
            (_, None) => true,
            (Ok(IpAddr::V4(_)), Some(family)) => family == IpFamily::IPv4,
            (Ok(IpAddr::V6(_)), Some(family)) => family == IpFamily::IPv6,
            (Err(_), Some(_)) => false,
        };
        let of_kind = |kind| self.addresses.iter().find(|it| it.kind == kind && is_in_family(&it.address));
        let found = of_kind(AddressType::InternalIP).or_else(|| of_kind(AddressType::ExternalIP));
        found.map(|address| address.address.as_str())
    }
}

/// Observed state of a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerState<S = Opaque> {
    /// Value for `status.loadBalancer` of the Service in this state.
    pub status: LoadBalancerStatus,
    /// Human-readable errors of ports that do not work although all resources exist, each with its cause and remedy. The status
    /// itself holds only one CamelCase word per port.
    pub errors: Vec<String>,
    /// Annotations to set on the Service in this state, in addition to the existing ones. Users and other managers of the cloud
    /// find the ID of the load balancer there.
    pub annotations: BTreeMap<String, String>,
    /// Operation that is running in the cloud. No plan is made until it has ended.
    pub pending: Option<Operation>,
    /// Cloud resources, in the provider's own type. Only the provider's `plan` function reads it.
    pub resources: S,
}

impl<S> LoadBalancerState<S> {
    /// Creates a state without errors, annotations or a pending operation.
    pub fn new(status: LoadBalancerStatus, resources: S) -> LoadBalancerState<S> {
        LoadBalancerState { status, errors: Vec::new(), annotations: BTreeMap::new(), pending: None, resources }
    }

    /// Converts the resources to another type and keeps everything else.
    pub fn map<T>(self, into: impl FnOnce(S) -> T) -> LoadBalancerState<T> {
        let LoadBalancerState { status, errors, annotations, pending, resources } = self;
        LoadBalancerState { status, errors, annotations, pending, resources: into(resources) }
    }
}

/// `status.loadBalancer` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadBalancerStatus {
    /// Addresses or hostnames that clients connect to.
    #[serde(default)]
    pub ingress: Vec<Ingress>,
}

/// One entry of `status.loadBalancer.ingress`: an address or a hostname.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// How kube-proxy treats the address (`ipMode`); with `ip` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<IpMode>,
    /// Status of each port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
}

/// `ipMode`: how kube-proxy treats the address of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpMode {
    /// Packets arrive with the address of the load balancer as destination. Nodes may bypass the load balancer.
    #[serde(rename = "VIP")]
    Vip,
    /// Packets arrive with the address of the Node as destination. Traffic must pass through the load balancer.
    Proxy,
}

/// Status of one port (`status.loadBalancer.ingress[].ports`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Port number.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Reason why it does not work, as one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addresses, target};

    #[test]
    fn a_target_is_addressed_by_its_first_internal_ip_of_the_family_else_by_an_external_ip() {
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
