//! The part of a Node that a cloud controller manager needs. The rest of the object (images, managed fields, …), which is most of
//! its size, is dropped when it is read.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::well_known::{
    ALLOW_DELETION, LABEL_PAIRS, NO_SCHEDULE, SHUTDOWN_TAINT, UNINITIALIZED_TAINT, UNMANAGED_LABELS,
};
use crate::{NodeName, ProviderId, is_paused};

/// A Node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name, which is also its key.
    pub name: NodeName,
    /// UID, which distinguishes it from an earlier or later Node of the same name.
    pub uid: String,
    /// Resource version that this value was read from.
    pub resource_version: String,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Whether the Node has a deletion timestamp.
    pub deleting: bool,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.providerID`: the machine of the Node.
    pub provider_id: Option<ProviderId>,
    /// Taints, in their order in the spec.
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`, as written.
    pub pod_cidrs: Vec<String>,
    /// `status.addresses`, in order: the first address of a type is the one in use.
    pub addresses: Vec<Address>,
    /// Status of the `Ready` condition.
    pub ready: Ready,
    /// The `NetworkUnavailable` condition, if the Node has one.
    pub network: Option<NetworkCondition>,
    /// `status.nodeInfo.systemUUID`: the UUID that the machine's firmware reports.
    pub system_uuid: Option<String>,
}

/// Status of the `Ready` condition; `Unknown` for a Node without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ready {
    /// The kubelet reports the Node as ready.
    True,
    /// The kubelet reports the Node as not ready.
    False,
    /// The kubelet has not reported for some time.
    #[default]
    Unknown,
}

/// The `NetworkUnavailable` condition of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkCondition {
    /// `False` once the network of the Node is set up.
    pub status: String,
    /// Reason; it usually identifies the network plugin that set the condition.
    pub reason: String,
}

/// A taint of a Node, identified by key and effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value; usually empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Time at which it was added, kept as text so that it is written back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// One entry of `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Type of the address.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// IP address or name, as the cloud or the kubelet reported it.
    pub address: String,
}

/// Type of a Node address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddressType {
    /// Hostname of the Node, as the kubelet reports it.
    Hostname,
    /// IP address that is reachable inside the cluster's network.
    InternalIP,
    /// IP address that is reachable from outside.
    ExternalIP,
    /// DNS name that resolves inside the cluster's network.
    InternalDNS,
    /// DNS name that resolves outside.
    ExternalDNS,
}

impl Node {
    /// Returns whether the Node has the uninitialized taint.
    pub fn is_uninitialized(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UNINITIALIZED_TAINT)
    }

    /// Returns whether a cloud controller manager has initialised the Node: it has no uninitialized taint, but a provider ID and at
    /// least one label that only a cloud sets.
    pub fn is_initialized(&self) -> bool {
        let is_labelled =
            || LABEL_PAIRS.iter().flat_map(|pair| [pair.beta, pair.ga]).any(|key| self.labels.contains_key(key));
        !self.is_uninitialized() && self.provider_id.is_some() && is_labelled()
    }

    /// Returns the time since the Node was created; zero if clock skew puts that in the future.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        self.created.map(|created| Duration::try_from(now.duration_since(created)).unwrap_or_default())
    }

    /// Returns whether the Node has the shutdown taint.
    pub fn has_shutdown_taint(&self) -> bool {
        self.taints.iter().any(Taint::is_shutdown)
    }

    /// Returns whether an operator has paused the Node: temporarily with the annotation `bowline.dev/paused`, or permanently with
    /// one of the [labels for unmanaged Nodes](UNMANAGED_LABELS). No controller changes a paused Node.
    pub fn is_paused(&self) -> bool {
        self.unmanaged_label().is_some() || is_paused(&self.annotations)
    }

    /// Returns the label (key and value) that marks the Node as unmanaged, if it has one.
    pub fn unmanaged_label(&self) -> Option<(&'static str, &'static str)> {
        let has = |(key, value): &&(&str, &str)| self.labels.get(*key).is_some_and(|found| found == value);
        UNMANAGED_LABELS.iter().find(has).copied()
    }

    /// Returns whether an operator has allowed the deletion of the Node with the annotation `bowline.dev/allow-deletion`.
    pub fn is_deletion_allowed(&self) -> bool {
        self.annotations.get(ALLOW_DELETION).is_some_and(|value| value == "true")
    }
}

impl Taint {
    /// Returns the shutdown taint as Bowline writes it.
    pub fn shutdown() -> Taint {
        Taint { key: SHUTDOWN_TAINT.to_owned(), value: String::new(), effect: NO_SCHEDULE.to_owned(), time_added: None }
    }

    /// Returns whether this is the shutdown taint. Taints are compared by key and effect.
    pub fn is_shutdown(&self) -> bool {
        self.key == SHUTDOWN_TAINT && self.effect == NO_SCHEDULE
    }
}

impl Address {
    /// Creates an address of this type.
    pub fn new(kind: AddressType, address: impl Into<String>) -> Address {
        Address { kind, address: address.into() }
    }

    /// Returns the IP address, or `None` for a name. An IPv4-mapped IPv6 address becomes an IPv4 address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok().map(|ip: IpAddr| ip.to_canonical())
    }
}

/// Formats the address as on the command line: `InternalIP=10.0.0.1`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.address)
    }
}

impl fmt::Display for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, taint};

    fn labelled(key: &str, value: &str) -> Node {
        Node { labels: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..node("n") }
    }

    #[test]
    fn the_uninitialized_taint_is_matched_by_key_and_the_shutdown_taint_by_key_and_effect() {
        let with = |key, effect| Node { taints: vec![taint(key, effect)], ..node("n") };
        assert!(with(UNINITIALIZED_TAINT, "NoExecute").is_uninitialized());
        assert!(!with(SHUTDOWN_TAINT, NO_SCHEDULE).is_uninitialized());
        assert!(with(SHUTDOWN_TAINT, NO_SCHEDULE).has_shutdown_taint());
        assert!(!with(SHUTDOWN_TAINT, "NoExecute").has_shutdown_taint());
        assert!(Taint::shutdown().is_shutdown());
    }

    #[test]
    fn a_node_is_initialized_once_a_cloud_has_labelled_it_and_removed_the_taint() {
        let labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "a".to_owned())]);
        let done = Node { labels, provider_id: Some(ProviderId::of("fake", "1")), ..node("n") };
        assert!(done.is_initialized());
        assert!(!Node { labels: BTreeMap::new(), ..done.clone() }.is_initialized());
        assert!(!Node { provider_id: None, ..done.clone() }.is_initialized());
        assert!(!Node { taints: vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)], ..done }.is_initialized());
    }

    #[test]
    fn labels_of_other_managers_for_unmanaged_nodes_are_honoured_with_their_values() {
        assert!(labelled("bowline.dev/unmanaged", "true").is_paused());
        assert!(labelled("kubernetes.azure.com/managed", "false").is_paused());
        assert!(labelled("components.gke.io/gke-unmanaged-node", "true").is_paused());
        assert!(!labelled("kubernetes.azure.com/managed", "true").is_paused());
        assert!(!labelled("bowline.dev/unmanaged", "").is_paused());
        assert!(!node("n").is_paused());
        let annotations = BTreeMap::from([("bowline.dev/paused".to_owned(), "true".to_owned())]);
        assert!(Node { annotations, ..node("n") }.is_paused());
    }

    #[test]
    fn only_the_value_true_allows_a_deletion() {
        let with = |value: &str| Node {
            annotations: BTreeMap::from([(ALLOW_DELETION.to_owned(), value.to_owned())]),
            ..node("n")
        };
        assert!(with("true").is_deletion_allowed());
        assert!(!with("false").is_deletion_allowed());
        assert!(!with("").is_deletion_allowed());
        assert!(!node("n").is_deletion_allowed());
    }

    #[test]
    fn a_taint_is_written_back_unchanged() {
        let text = r#"{"key":"a","value":"b","effect":"NoExecute","timeAdded":"2026-01-02T03:04:05Z"}"#;
        let taint: Taint = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&taint).unwrap(), text);
        let short = serde_json::to_string(&Taint::shutdown()).unwrap();
        assert_eq!(short, r#"{"key":"node.cloudprovider.kubernetes.io/shutdown","effect":"NoSchedule"}"#);
    }
}
