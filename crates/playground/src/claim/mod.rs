//! What must hold after a step of the tour: a claim about the cluster, checked against what is there.

mod network;
mod traffic;

use std::collections::BTreeSet;
use std::fmt;

use bowline_core::Address;
use bowline_core::well_known::NETWORK_UNAVAILABLE;
use bowline_local::RouteRecord;
use kube::ResourceExt as _;

use crate::objects::{Node, Pod, Service};
use crate::traffic::{Finding, Findings, Probe};

/// What is there at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// All Nodes.
    pub(crate) nodes: Vec<Node>,
    /// The Pods of the namespace `default`.
    pub(crate) pods: Vec<Pod>,
    /// The Services of the namespace `default`.
    pub(crate) services: Vec<Service>,
    /// The routes that the cloud has for this cluster.
    pub(crate) routes: Vec<RouteRecord>,
    /// What came of trying Services and Pods out.
    pub(crate) findings: Findings,
}

/// One thing that must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
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
    /// This Node has no pod range.
    NoPodRange(String),
    /// Every Node has a pod range that no other Node has.
    OwnPodRanges,
    /// Every pod range is led to its Node, and there are no other routes.
    AllLed,
    /// No route leads to the machine of this ID.
    NoRouteTo(String),
    /// This Node is there.
    Present(String),
    /// This Node is not there.
    Gone(String),
    /// This Pod has no Node.
    PodWaits(String),
    /// This Pod runs on some Node.
    PodRuns(String),
    /// This Pod answers at its own address.
    PodAnswers(Probe),
    /// This Service has been given an address.
    HasAddress(String),
    /// Every try is answered, and among the answers is one of each of these Pods and of no other.
    AnsweredBy(Probe, BTreeSet<String>),
    /// Of the Nodes that were asked, exactly those that have a Pod of this Service say that they want its traffic.
    OnlyNodesWithPods(String),
    /// This Service is not there.
    NoService(String),
    /// Nobody answers at the address that the Service has or had.
    Silent(Probe),
}

impl Claim {
    /// `Ok` if it holds, else what is seen instead.
    pub fn check(&self, snapshot: &Snapshot) -> Result<(), String> {
        let seen = self.seen(snapshot);
        if seen.0 { Ok(()) } else { Err(seen.1) }
    }

    /// What has to be tried out for it.
    pub(crate) fn probe(&self) -> Option<Probe> {
        match self {
            Claim::AnsweredBy(probe, _) | Claim::Silent(probe) | Claim::PodAnswers(probe) => Some(probe.clone()),
            Claim::OnlyNodesWithPods(service) => Some(Probe::Health(service.clone())),
            _ => None,
        }
    }

    /// Whether it holds, and what there is to see.
    fn seen(&self, snapshot: &Snapshot) -> (bool, String) {
        match self {
            Claim::NodeCount(count) => count_of(snapshot.nodes.len(), *count),
            Claim::AllTainted(key) => everywhere(snapshot, true, key),
            Claim::NoneTainted(key) => everywhere(snapshot, false, key),
            Claim::Present(name) | Claim::Gone(name) => {
                let found = snapshot.node(name).is_some();
                (
                    found == matches!(self, Claim::Present(_)),
                    if found { "it is there" } else { "it is gone" }.to_owned(),
                )
            }
            Claim::PodWaits(name) => on_pod(snapshot, name, |pod| pod.node().is_none() && pod.phase() == "Pending"),
            Claim::PodRuns(name) => on_pod(snapshot, name, |pod| pod.node().is_some() && pod.phase() == "Running"),
            Claim::HasAddress(name) | Claim::NoService(name) => self.on_service(snapshot, name),
            Claim::AnsweredBy(probe, pods) => traffic::answered_by(snapshot, probe, pods),
            Claim::PodAnswers(probe) => traffic::answered_by(snapshot, probe, &[probe.whom().to_owned()].into()),
            Claim::OwnPodRanges => network::own_ranges(snapshot),
            Claim::AllLed => network::all_led(snapshot),
            Claim::NoRouteTo(machine) => network::none_to(snapshot, machine),
            Claim::Silent(probe) => traffic::silent(snapshot, probe),
            Claim::OnlyNodesWithPods(name) => traffic::only_nodes_with_pods(snapshot, name),
            Claim::Tainted(name, _)
            | Claim::Untainted(name, _)
            | Claim::ProviderId(name, _)
            | Claim::Label(name, ..)
            | Claim::Addresses(name, _)
            | Claim::NetworkUnavailable(name, _)
            | Claim::NoPodRange(name)
            | Claim::Ready(name, _) => match snapshot.node(name) {
                Some(node) => self.on_node(node),
                None => (false, format!("there is no Node {name}")),
            },
        }
    }

    fn on_service(&self, snapshot: &Snapshot, name: &str) -> (bool, String) {
        let wants_none = matches!(self, Claim::NoService(_));
        match snapshot.service(name).map(Service::address) {
            None => (wants_none, format!("there is no Service {name}")),
            Some(None) => (false, "it is there, without an address".to_owned()),
            Some(Some(address)) => (!wants_none, format!("it is there, with the address {address}")),
        }
    }

    fn on_node(&self, node: &Node) -> (bool, String) {
        match self {
            Claim::Tainted(_, key) => (has_taint(node, key), taint_list(node)),
            Claim::Untainted(_, key) => (!has_taint(node, key), taint_list(node)),
            Claim::ProviderId(_, wanted) => {
                let found = &node.spec.provider_id;
                (found == wanted, format!("provider ID {}", found.as_deref().unwrap_or("none")))
            }
            Claim::Label(_, key, wanted) => {
                let found = node.labels().get(*key);
                (found == Some(wanted), format!("{key}={}", found.map_or("(not set)", String::as_str)))
            }
            Claim::Addresses(_, wanted) => {
                let found = addresses(node);
                (found == list(wanted), format!("addresses {}", if found.is_empty() { "none" } else { &found }))
            }
            Claim::NetworkUnavailable(_, wanted) => {
                let found = node.network_unavailable();
                (found == *wanted, format!("{NETWORK_UNAVAILABLE} is {found}"))
            }
            Claim::NoPodRange(_) => {
                (node.spec.pod_cidrs.is_empty(), format!("pod ranges {}", node.spec.pod_cidrs.join(" ")))
            }
            Claim::Ready(_, wanted) => (node.readiness() == *wanted, format!("Ready is {}", node.readiness())),
            _ => (false, "not a claim about one Node".to_owned()),
        }
    }
}

impl Snapshot {
    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.metadata.name.as_deref() == Some(name))
    }

    fn findings(&self, probe: &Probe) -> &[Finding] {
        self.findings.get(probe).map(Vec::as_slice).unwrap_or_default()
    }
}

fn count_of(found: usize, wanted: usize) -> (bool, String) {
    (found == wanted, format!("{found} Nodes"))
}

fn everywhere(snapshot: &Snapshot, wanted: bool, key: &str) -> (bool, String) {
    let other: Vec<_> = snapshot.nodes.iter().filter(|node| has_taint(node, key) != wanted).collect();
    let first = other.first().map(|node| format!(", the first is {} with {}", node.name_any(), taint_list(node)));
    let seen = format!("{} of {} Nodes differ{}", other.len(), snapshot.nodes.len(), first.unwrap_or_default());
    (other.is_empty() && !snapshot.nodes.is_empty(), seen)
}

fn on_pod(snapshot: &Snapshot, name: &str, holds: impl Fn(&Pod) -> bool) -> (bool, String) {
    let Some(pod) = snapshot.pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name)) else {
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

fn list(wanted: &[Address]) -> String {
    wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::NodeCount(1) => write!(f, "there is 1 Node"),
            Claim::NodeCount(count) => write!(f, "there are {count} Nodes"),
            Claim::AllTainted(key) => write!(f, "every Node has the taint {key}"),
            Claim::NoneTainted(key) => write!(f, "no Node has the taint {key}"),
            Claim::Tainted(node, key) => write!(f, "{node} has the taint {key}"),
            Claim::Untainted(node, key) => write!(f, "{node} does not have the taint {key}"),
            Claim::ProviderId(node, Some(id)) => write!(f, "{node} has the provider ID {id}"),
            Claim::ProviderId(node, None) => write!(f, "{node} has no provider ID"),
            Claim::Label(node, key, value) => write!(f, "{node} has the label {key}={value}"),
            Claim::Addresses(node, wanted) if wanted.is_empty() => write!(f, "{node} has no addresses"),
            Claim::Addresses(node, wanted) => write!(f, "{node} has the addresses {}", list(wanted)),
            Claim::Ready(node, status) => write!(f, "{node} has the condition Ready={status}"),
            Claim::NetworkUnavailable(node, status) => {
                write!(f, "{node} has the condition {NETWORK_UNAVAILABLE}={status}")
            }
            Claim::NoPodRange(node) => write!(f, "{node} has no pod range"),
            Claim::OwnPodRanges => write!(f, "every Node has a pod range of its own"),
            Claim::AllLed => write!(f, "the cloud leads every pod range to its Node"),
            Claim::NoRouteTo(machine) => write!(f, "no route leads to {machine}"),
            Claim::Present(node) => write!(f, "the Node {node} is there"),
            Claim::Gone(node) => write!(f, "the Node {node} is gone"),
            Claim::PodWaits(pod) => write!(f, "the Pod {pod} is Pending"),
            Claim::PodRuns(pod) => write!(f, "the Pod {pod} is Running"),
            Claim::HasAddress(service) => write!(f, "the Service {service} has an address"),
            Claim::PodAnswers(probe) => write!(f, "the Pod {} answers {probe} at its own address", probe.whom()),
            Claim::AnsweredBy(probe, pods) => {
                write!(f, "the Service {} is answered {probe} by {}", probe.whom(), traffic::words(pods))
            }
            Claim::OnlyNodesWithPods(service) => {
                write!(f, "the Nodes that want traffic of the Service {service} are those with a Pod of it")
            }
            Claim::NoService(service) => write!(f, "the Service {service} is gone"),
            Claim::Silent(probe) => {
                write!(f, "nobody answers {probe} where the Service {} was", probe.whom())
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
    fn claims_that_hold() {
        let internal = vec![Address::new(AddressType::InternalIP, "10.0.0.1")];
        let claims = [
            Claim::NodeCount(1),
            Claim::AllTainted("t"),
            Claim::NoneTainted("u"),
            Claim::Tainted(a(), "t"),
            Claim::Untainted(a(), "u"),
            Claim::ProviderId(a(), Some("local://1".to_owned())),
            Claim::Label(a(), "zone", "z1".to_owned()),
            Claim::Addresses(a(), internal),
            Claim::Ready(a(), "True"),
            Claim::NetworkUnavailable(a(), "False"),
            Claim::NoPodRange(a()),
            Claim::Present(a()),
            Claim::Gone("b".to_owned()),
            Claim::PodWaits("waits".to_owned()),
            Claim::PodRuns("runs".to_owned()),
        ];
        for claim in claims {
            assert_eq!(claim.check(&snapshot()), Ok(()), "{claim}");
        }
    }

    #[test]
    fn claims_that_do_not_hold_say_what_is_seen() {
        let cases = [
            (Claim::NodeCount(2), "1 Nodes"),
            (Claim::AllTainted("u"), "1 of 1 Nodes differ, the first is a with taints t:NoSchedule"),
            (Claim::NoneTainted("t"), "1 of 1 Nodes differ, the first is a with taints t:NoSchedule"),
            (Claim::Tainted(a(), "u"), "taints t:NoSchedule"),
            (Claim::Untainted(a(), "t"), "taints t:NoSchedule"),
            (Claim::ProviderId(a(), None), "provider ID local://1"),
            (Claim::Label(a(), "zone", "z2".to_owned()), "zone=z1"),
            (Claim::Label(a(), "region", "r".to_owned()), "region=(not set)"),
            (Claim::Addresses(a(), vec![]), "addresses InternalIP=10.0.0.1"),
            (Claim::Ready(a(), "Unknown"), "Ready is True"),
            (Claim::Ready("b".to_owned(), "True"), "there is no Node b"),
            (Claim::NetworkUnavailable(a(), "True"), "NetworkUnavailable is False"),
            (Claim::NoPodRange("b".to_owned()), "there is no Node b"),
            (Claim::Present("b".to_owned()), "it is gone"),
            (Claim::Gone(a()), "it is there"),
            (Claim::PodWaits("runs".to_owned()), "Running on a"),
            (Claim::PodRuns("waits".to_owned()), "Pending on no Node"),
            (Claim::PodRuns("none".to_owned()), "there is no Pod none"),
        ];
        for (claim, seen) in cases {
            assert_eq!(claim.check(&snapshot()), Err(seen.to_owned()), "{claim}");
        }
    }

    #[test]
    fn nothing_is_said_of_no_nodes() {
        let empty = Snapshot::default();
        assert!(Claim::AllTainted("t").check(&empty).is_err());
        assert!(Claim::NoneTainted("t").check(&empty).is_err());
    }
}
