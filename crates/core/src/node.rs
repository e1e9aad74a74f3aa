//! A Node as far as a cloud controller manager cares. Everything else of the object (images, managed fields, …) is left
//! out when it is read, which is most of its size.

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

/// What we know of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name, which is its key.
    pub name: NodeName,
    /// Tells it from an earlier or later Node of the same name.
    pub uid: String,
    /// The state that the rest of this value was read from.
    pub resource_version: String,
    /// When it was registered.
    pub created: Option<Timestamp>,
    /// Somebody asked for its deletion.
    pub deleting: bool,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Which machine it is, if that is written down.
    pub provider_id: Option<ProviderId>,
    /// In their order, which is kept.
    pub taints: Vec<Taint>,
    /// The ranges that its pods get addresses from.
    pub pod_cidrs: Vec<String>,
    /// In their order, which has meaning: the first of a type is the one in use.
    pub addresses: Vec<Address>,
    /// The `Ready` condition.
    pub ready: Ready,
    /// The `NetworkUnavailable` condition, if it has one.
    pub network: Option<NetworkCondition>,
    /// `status.nodeInfo.systemUUID`: what the machine's firmware says of itself.
    pub system_uuid: Option<String>,
}

/// The `Ready` condition; a node without one is `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ready {
    /// The kubelet says that it works.
    True,
    /// The kubelet says that it does not.
    False,
    /// Nobody has heard of the kubelet lately.
    #[default]
    Unknown,
}

/// What the `NetworkUnavailable` condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkCondition {
    /// `False` once pods on other nodes can be reached.
    pub status: String,
    /// Who says so, as a rule: each network has a word of its own.
    pub reason: String,
}

/// Keeps pods away, by key and effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// What it is about.
    pub key: String,
    /// A detail; empty as a rule.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Kept as text, so that writing it back changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// One way to reach a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// From where it works, and whether it is a name.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// The address itself, spelt as whoever reported it spells it.
    pub address: String,
}

/// From where an address works, and whether it is a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddressType {
    /// The node's own name for itself.
    Hostname,
    /// Inside the cluster's network.
    InternalIP,
    /// From anywhere.
    ExternalIP,
    /// A name that resolves inside.
    InternalDNS,
    /// A name that resolves anywhere.
    ExternalDNS,
}

impl Node {
    /// The cloud has not yet said what this node is.
    pub fn is_uninitialized(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UNINITIALIZED_TAINT)
    }

    /// A cloud controller manager has seen its machine: it has no initialisation taint, and labels that only a cloud gives.
    pub fn is_initialized(&self) -> bool {
        let is_labelled =
            || LABEL_PAIRS.iter().flat_map(|pair| [pair.beta, pair.ga]).any(|key| self.labels.contains_key(key));
        !self.is_uninitialized() && self.provider_id.is_some() && is_labelled()
    }

    /// Time since it was registered; zero if that lies in the future because clocks differ.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        self.created.map(|created| Duration::try_from(now.duration_since(created)).unwrap_or_default())
    }

    /// It carries the taint of a stopped machine.
    pub fn has_shutdown_taint(&self) -> bool {
        self.taints.iter().any(Taint::is_shutdown)
    }

    /// An operator wants no cloud controller manager to touch it: for now, by the annotation `bowline.dev/paused`, or for good, by one
    /// of the labels for that.
    pub fn is_paused(&self) -> bool {
        self.unmanaged_label().is_some() || is_paused(&self.annotations)
    }

    /// The label, key and value, that keeps every cloud controller manager off the Node for good.
    pub fn unmanaged_label(&self) -> Option<(&'static str, &'static str)> {
        let has = |(key, value): &&(&str, &str)| self.labels.get(*key).is_some_and(|found| found == value);
        UNMANAGED_LABELS.iter().find(has).copied()
    }

    /// An operator said that it may be deleted although something looks wrong.
    pub fn is_deletion_allowed(&self) -> bool {
        self.annotations.get(ALLOW_DELETION).is_some_and(|value| value == "true")
    }
}

impl Taint {
    /// The taint of a stopped machine, as it is written.
    pub fn shutdown() -> Taint {
        Taint { key: SHUTDOWN_TAINT.to_owned(), value: String::new(), effect: NO_SCHEDULE.to_owned(), time_added: None }
    }

    /// It is the taint of a stopped machine: taints are told apart by key and effect.
    pub fn is_shutdown(&self) -> bool {
        self.key == SHUTDOWN_TAINT && self.effect == NO_SCHEDULE
    }
}

impl Address {
    /// An address of this type.
    pub fn new(kind: AddressType, address: impl Into<String>) -> Address {
        Address { kind, address: address.into() }
    }

    /// As a number, if it is no name; IPv4 in the clothes of IPv6 is IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok().map(|ip: IpAddr| ip.to_canonical())
    }
}

/// As on the command line: `InternalIP=10.0.0.1`.
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
    fn the_init_taint_is_known_by_its_key_and_the_shutdown_taint_by_key_and_effect() {
        let with = |key, effect| Node { taints: vec![taint(key, effect)], ..node("n") };
        assert!(with(UNINITIALIZED_TAINT, "NoExecute").is_uninitialized());
        assert!(!with(SHUTDOWN_TAINT, NO_SCHEDULE).is_uninitialized());
        assert!(with(SHUTDOWN_TAINT, NO_SCHEDULE).has_shutdown_taint());
        assert!(!with(SHUTDOWN_TAINT, "NoExecute").has_shutdown_taint());
        assert!(Taint::shutdown().is_shutdown());
    }

    #[test]
    fn a_node_is_initialized_once_a_cloud_has_labelled_it_and_taken_the_taint_off() {
        let labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "a".to_owned())]);
        let done = Node { labels, provider_id: Some(ProviderId::of("fake", "1")), ..node("n") };
        assert!(done.is_initialized());
        assert!(!Node { labels: BTreeMap::new(), ..done.clone() }.is_initialized());
        assert!(!Node { provider_id: None, ..done.clone() }.is_initialized());
        assert!(!Node { taints: vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)], ..done }.is_initialized());
    }

    #[test]
    fn the_marks_of_other_managers_keep_our_hands_off_too_but_only_with_their_meaning() {
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
    fn only_the_word_true_allows_a_deletion() {
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
    fn a_taint_is_written_back_as_it_was_read() {
        let text = r#"{"key":"a","value":"b","effect":"NoExecute","timeAdded":"2026-01-02T03:04:05Z"}"#;
        let taint: Taint = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&taint).unwrap(), text);
        let short = serde_json::to_string(&Taint::shutdown()).unwrap();
        assert_eq!(short, r#"{"key":"node.cloudprovider.kubernetes.io/shutdown","effect":"NoSchedule"}"#);
    }
}
