//! Assertions about the cluster after a step of the tour, checked against a snapshot.

mod network;
mod traffic;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bowline_core::Address;
use bowline_core::well_known::NETWORK_UNAVAILABLE;
use bowline_local::{Fault, Machine, RouteRecord};
use kube::ResourceExt as _;

use crate::objects::{Node, Pod, Service};
use crate::traffic::{Probe, ProbeResult, ProbeResults};

/// Observed state of cluster and cloud.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// All Nodes.
    pub(crate) nodes: Vec<Node>,
    /// Pods of the namespace `default`.
    pub(crate) pods: Vec<Pod>,
    /// Services of the namespace `default`.
    pub(crate) services: Vec<Service>,
    /// Routes of this cluster in the cloud.
    pub(crate) routes: Vec<RouteRecord>,
    /// Machines of the cloud.
    pub(crate) machines: Vec<Arc<Machine>>,
    /// Faults in force in the cloud.
    pub(crate) faults: Vec<Fault>,
    /// Results of probes of Services and Pods.
    pub(crate) results: ProbeResults,
}

/// A condition that must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assertion {
    /// There are this many Nodes.
    NodeCount(usize),
    /// Every Node has a taint of this key.
    AllTainted(&'static str),
    /// No Node has a taint of this key.
    NoneTainted(&'static str),
    /// This Node has a taint of this key.
    Tainted(String, &'static str),
    /// This Node has no taint of this key.
    Untainted(String, &'static str),
    /// This Node has this provider ID, or none.
    ProviderId(String, Option<String>),
    /// This Node has this label.
    Label(String, &'static str, String),
    /// This Node has these addresses, in this order.
    Addresses(String, Vec<Address>),
    /// The `Ready` condition of this Node has this status.
    Ready(String, &'static str),
    /// The `NetworkUnavailable` condition of this Node has this status.
    NetworkUnavailable(String, &'static str),
    /// This Node has no pod CIDR.
    NoPodCidr(String),
    /// Every Node has a pod CIDR that no other Node has.
    UniquePodCidrs,
    /// Every pod CIDR has a route to its Node, and there are no other routes.
    AllRouted,
    /// There is no route to the machine of this ID.
    NoRouteTo(String),
    /// This Node exists.
    Exists(String),
    /// This Node does not exist.
    Deleted(String),
    /// This Pod has no Node.
    PodPending(String),
    /// This Pod runs on some Node.
    PodRunning(String),
    /// This Pod answers at its own address.
    PodAnswers(Probe),
    /// This Service has an address.
    HasAddress(String),
    /// Every request is answered, and exactly these Pods answer.
    AnsweredBy(Probe, BTreeSet<String>),
    /// Exactly the probed Nodes with a Pod of this Service pass its health check.
    OnlyNodesWithPods(String),
    /// This Service does not exist.
    NoService(String),
    /// Nothing answers at the current or former address of the Service.
    NotAnswering(Probe),
}

impl Assertion {
    /// Checks the assertion; the error is the observed state.
    pub fn check(&self, snapshot: &Snapshot) -> Result<(), String> {
        let (holds, observed) = self.observe(snapshot);
        if holds { Ok(()) } else { Err(observed) }
    }

    /// Returns the probe that this assertion needs.
    pub(crate) fn probe(&self) -> Option<Probe> {
        match self {
            Assertion::AnsweredBy(probe, _) | Assertion::NotAnswering(probe) | Assertion::PodAnswers(probe) => {
                Some(probe.clone())
            }
            Assertion::OnlyNodesWithPods(service) => Some(Probe::Health(service.clone())),
            _ => None,
        }
    }

    /// Returns whether the assertion holds, and the observed state.
    fn observe(&self, snapshot: &Snapshot) -> (bool, String) {
        match self {
            Assertion::NodeCount(count) => check_count(snapshot.nodes.len(), *count),
            Assertion::AllTainted(key) => taints_everywhere(snapshot, true, key),
            Assertion::NoneTainted(key) => taints_everywhere(snapshot, false, key),
            Assertion::Exists(name) | Assertion::Deleted(name) => {
                let found = snapshot.node(name).is_some();
                (
                    found == matches!(self, Assertion::Exists(_)),
                    if found { "the Node exists" } else { "the Node does not exist" }.to_owned(),
                )
            }
            Assertion::PodPending(name) => {
                check_pod(snapshot, name, |pod| pod.node().is_none() && pod.phase() == "Pending")
            }
            Assertion::PodRunning(name) => {
                check_pod(snapshot, name, |pod| pod.node().is_some() && pod.phase() == "Running")
            }
            Assertion::HasAddress(name) | Assertion::NoService(name) => self.check_service(snapshot, name),
            Assertion::AnsweredBy(probe, pods) => traffic::answered_by(snapshot, probe, pods),
            Assertion::PodAnswers(probe) => traffic::answered_by(snapshot, probe, &[probe.object().to_owned()].into()),
            Assertion::UniquePodCidrs => network::unique_pod_cidrs(snapshot),
            Assertion::AllRouted => network::all_routed(snapshot),
            Assertion::NoRouteTo(machine) => network::no_route_to(snapshot, machine),
            Assertion::NotAnswering(probe) => traffic::not_answering(snapshot, probe),
            Assertion::OnlyNodesWithPods(name) => traffic::only_nodes_with_pods(snapshot, name),
            Assertion::Tainted(name, _)
            | Assertion::Untainted(name, _)
            | Assertion::ProviderId(name, _)
            | Assertion::Label(name, ..)
            | Assertion::Addresses(name, _)
            | Assertion::NetworkUnavailable(name, _)
            | Assertion::NoPodCidr(name)
            | Assertion::Ready(name, _) => match snapshot.node(name) {
                Some(node) => self.check_node(node),
                None => (false, format!("there is no Node {name}")),
            },
        }
    }

    fn check_service(&self, snapshot: &Snapshot, name: &str) -> (bool, String) {
        let wants_none = matches!(self, Assertion::NoService(_));
        match snapshot.service(name).map(Service::address) {
            None => (wants_none, format!("there is no Service {name}")),
            Some(None) => (false, "the Service has no address".to_owned()),
            Some(Some(address)) => (!wants_none, format!("the Service has the address {address}")),
        }
    }

    fn check_node(&self, node: &Node) -> (bool, String) {
        match self {
            Assertion::Tainted(_, key) => (has_taint(node, key), taint_list(node)),
            Assertion::Untainted(_, key) => (!has_taint(node, key), taint_list(node)),
            Assertion::ProviderId(_, expected) => {
                let found = &node.spec.provider_id;
                (found == expected, format!("provider ID {}", found.as_deref().unwrap_or("none")))
            }
            Assertion::Label(_, key, expected) => {
                let found = node.labels().get(*key);
                (found == Some(expected), format!("{key}={}", found.map_or("(not set)", String::as_str)))
            }
            Assertion::Addresses(_, expected) => {
                let found = addresses(node);
                (found == list(expected), format!("addresses {}", if found.is_empty() { "none" } else { &found }))
            }
            Assertion::NetworkUnavailable(_, expected) => {
                let found = node.network_unavailable();
                (found == *expected, format!("{NETWORK_UNAVAILABLE} is {found}"))
            }
            Assertion::NoPodCidr(_) => {
                (node.spec.pod_cidrs.is_empty(), format!("pod CIDRs {}", node.spec.pod_cidrs.join(" ")))
            }
            Assertion::Ready(_, expected) => (node.readiness() == *expected, format!("Ready is {}", node.readiness())),
            _ => (false, "not an assertion about one Node".to_owned()),
        }
    }
}

impl Snapshot {
    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.metadata.name.as_deref() == Some(name))
    }

    fn results(&self, probe: &Probe) -> &[ProbeResult] {
        self.results.get(probe).map(Vec::as_slice).unwrap_or_default()
    }
}

fn check_count(found: usize, expected: usize) -> (bool, String) {
    (found == expected, format!("{found} Nodes"))
}

fn taints_everywhere(snapshot: &Snapshot, expected: bool, key: &str) -> (bool, String) {
    let other: Vec<_> = snapshot.nodes.iter().filter(|node| has_taint(node, key) != expected).collect();
    let first = other.first().map(|node| format!(", the first is {} with {}", node.name_any(), taint_list(node)));
    let observed = format!("{} of {} Nodes differ{}", other.len(), snapshot.nodes.len(), first.unwrap_or_default());
    (other.is_empty() && !snapshot.nodes.is_empty(), observed)
}

fn check_pod(snapshot: &Snapshot, name: &str, holds: impl Fn(&Pod) -> bool) -> (bool, String) {
    let Some(pod) = snapshot.pod(name) else {
        return (false, format!("there is no Pod {name}"));
    };
    (holds(pod), format!("{} on {}", pod.phase(), pod.node().unwrap_or("no Node")))
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == key)
}

fn taint_list(node: &Node) -> String {
    let taints: Vec<_> = node.spec.taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    if taints.is_empty() { "no taints".to_owned() } else { format!("taints {}", taints.join(", ")) }
}

fn addresses(node: &Node) -> String {
    let found = node.status.addresses.iter();
    found.map(|found| format!("{}={}", found.kind, found.address)).collect::<Vec<_>>().join(" ")
}

fn list(expected: &[Address]) -> String {
    expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Assertion::NodeCount(1) => write!(f, "there is 1 Node"),
            Assertion::NodeCount(count) => write!(f, "there are {count} Nodes"),
            Assertion::AllTainted(key) => write!(f, "every Node has the taint {key}"),
            Assertion::NoneTainted(key) => write!(f, "no Node has the taint {key}"),
            Assertion::Tainted(node, key) => write!(f, "{node} has the taint {key}"),
            Assertion::Untainted(node, key) => write!(f, "{node} does not have the taint {key}"),
            Assertion::ProviderId(node, Some(id)) => write!(f, "{node} has the provider ID {id}"),
            Assertion::ProviderId(node, None) => write!(f, "{node} has no provider ID"),
            Assertion::Label(node, key, value) => write!(f, "{node} has the label {key}={value}"),
            Assertion::Addresses(node, expected) if expected.is_empty() => write!(f, "{node} has no addresses"),
            Assertion::Addresses(node, expected) => write!(f, "{node} has the addresses {}", list(expected)),
            Assertion::Ready(node, status) => write!(f, "{node} has the condition Ready={status}"),
            Assertion::NetworkUnavailable(node, status) => {
                write!(f, "{node} has the condition {NETWORK_UNAVAILABLE}={status}")
            }
            Assertion::NoPodCidr(node) => write!(f, "{node} has no pod CIDR"),
            Assertion::UniquePodCidrs => write!(f, "every Node has its own pod CIDR"),
            Assertion::AllRouted => write!(f, "every pod CIDR has a route to its Node"),
            Assertion::NoRouteTo(machine) => write!(f, "there is no route to {machine}"),
            Assertion::Exists(node) => write!(f, "the Node {node} exists"),
            Assertion::Deleted(node) => write!(f, "the Node {node} is deleted"),
            Assertion::PodPending(pod) => write!(f, "the Pod {pod} is Pending"),
            Assertion::PodRunning(pod) => write!(f, "the Pod {pod} is Running"),
            Assertion::HasAddress(service) => write!(f, "the Service {service} has an address"),
            Assertion::PodAnswers(probe) => write!(f, "the Pod {} answers {probe} at its own address", probe.object()),
            Assertion::AnsweredBy(probe, pods) => {
                write!(f, "requests to the Service {} {probe} reach {}", probe.object(), traffic::join(pods))
            }
            Assertion::OnlyNodesWithPods(service) => {
                write!(f, "only Nodes with a Pod of the Service {service} pass its health check")
            }
            Assertion::NoService(service) => write!(f, "the Service {service} is deleted"),
            Assertion::NotAnswering(probe) => {
                write!(f, "the former address of the Service {} does not answer {probe}", probe.object())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::AddressType;
    use serde_json::json;

    fn snapshot() -> Snapshot {
        let node = json!({
            "metadata": {"name": "a", "labels": {"zone": "z1"}},
            "spec": {"providerID": "local://1", "taints": [{"key": "t", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "False"},
                ],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        });
        let pod = |name: &str, node: &str, phase: &str| json!({"metadata": {"name": name}, "spec": {"containers": [], "nodeName": node}, "status": {"phase": phase}});
        let decode = |value| serde_json::from_value(value).unwrap();
        Snapshot {
            nodes: vec![serde_json::from_value(node).unwrap()],
            pods: vec![decode(pod("waits", "", "Pending")), decode(pod("runs", "a", "Running"))],
            ..Snapshot::default()
        }
    }

    fn a() -> String {
        "a".to_owned()
    }

    #[test]
    fn assertions_that_hold() {
        let internal = vec![Address::new(AddressType::InternalIP, "10.0.0.1")];
        let assertions = [
            Assertion::NodeCount(1),
            Assertion::AllTainted("t"),
            Assertion::NoneTainted("u"),
            Assertion::Tainted(a(), "t"),
            Assertion::Untainted(a(), "u"),
            Assertion::ProviderId(a(), Some("local://1".to_owned())),
            Assertion::Label(a(), "zone", "z1".to_owned()),
            Assertion::Addresses(a(), internal),
            Assertion::Ready(a(), "True"),
            Assertion::NetworkUnavailable(a(), "False"),
            Assertion::NoPodCidr(a()),
            Assertion::Exists(a()),
            Assertion::Deleted("b".to_owned()),
            Assertion::PodPending("waits".to_owned()),
            Assertion::PodRunning("runs".to_owned()),
        ];
        for assertion in assertions {
            assert_eq!(assertion.check(&snapshot()), Ok(()), "{assertion}");
        }
    }

    #[test]
    fn failed_assertions_return_the_observed_state() {
        let cases = [
            (Assertion::NodeCount(2), "1 Nodes"),
            (Assertion::AllTainted("u"), "1 of 1 Nodes differ, the first is a with taints t:NoSchedule"),
            (Assertion::NoneTainted("t"), "1 of 1 Nodes differ, the first is a with taints t:NoSchedule"),
            (Assertion::Tainted(a(), "u"), "taints t:NoSchedule"),
            (Assertion::Untainted(a(), "t"), "taints t:NoSchedule"),
            (Assertion::ProviderId(a(), None), "provider ID local://1"),
            (Assertion::Label(a(), "zone", "z2".to_owned()), "zone=z1"),
            (Assertion::Label(a(), "region", "r".to_owned()), "region=(not set)"),
            (Assertion::Addresses(a(), vec![]), "addresses InternalIP=10.0.0.1"),
            (Assertion::Ready(a(), "Unknown"), "Ready is True"),
            (Assertion::Ready("b".to_owned(), "True"), "there is no Node b"),
            (Assertion::NetworkUnavailable(a(), "True"), "NetworkUnavailable is False"),
            (Assertion::NoPodCidr("b".to_owned()), "there is no Node b"),
            (Assertion::Exists("b".to_owned()), "the Node does not exist"),
            (Assertion::Deleted(a()), "the Node exists"),
            (Assertion::PodPending("runs".to_owned()), "Running on a"),
            (Assertion::PodRunning("waits".to_owned()), "Pending on no Node"),
            (Assertion::PodRunning("none".to_owned()), "there is no Pod none"),
        ];
        for (assertion, observed) in cases {
            assert_eq!(assertion.check(&snapshot()), Err(observed.to_owned()), "{assertion}");
        }
    }

    #[test]
    fn assertions_about_all_nodes_fail_without_nodes() {
        let empty = Snapshot::default();
        assert!(Assertion::AllTainted("t").check(&empty).is_err());
        assert!(Assertion::NoneTainted("t").check(&empty).is_err());
    }
}
