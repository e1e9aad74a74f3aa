//! What one Node needs, and which routes nobody needs.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::Table;
use crate::{Address, Node, NodeName, ProviderId, Route, RouteSpec, parse_cidr};

/// The Nodes of the cluster.
pub trait Nodes {
    /// The one of this name.
    fn named(&self, name: &NodeName) -> Option<Arc<Node>>;
    /// The one whose machine this is.
    fn with_id(&self, id: &ProviderId) -> Option<Arc<Node>>;
    /// The one that has this address, for clouds whose routes lead to addresses.
    fn with_address(&self, address: IpAddr) -> Option<Arc<Node>> {
        let _ = address;
        None
    }
    /// Its routes are for us to make and remove: its machine is in the cloud that is asked about, and no operator has said
    /// otherwise.
    fn is_ours(&self, node: &Node) -> bool;
}

/// All that a decision is made from.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The routes of the cloud.
    pub table: &'a Table,
    /// The Nodes of the cluster.
    pub nodes: &'a dyn Nodes,
    /// `--cluster-cidr`: where pods may live.
    pub ranges: &'a [IpNet],
    /// UID of this cluster, if it is known.
    pub cluster_uid: Option<&'a str>,
}

/// What one Node needs. Lanes have nothing to do with each other; in a lane, all that goes is gone before the new one comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// One for each range that needs work.
    pub lanes: Vec<Lane>,
    /// What stands in `spec.podCIDRs` and is no range.
    pub unreadable: Vec<String>,
    /// IDs of the routes that lead to the Node.
    pub led: Vec<String>,
}

/// What one range needs (ROUTE-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The range.
    pub destination: IpNet,
    /// First, these go.
    pub remove: Vec<Removal>,
    /// Then, this one comes.
    pub create: Option<RouteSpec>,
}

/// A route that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// As it was listed.
    pub route: Route,
    /// Why it goes.
    pub why: Why,
}

/// Why a route goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The Node that it leads to does not have this range.
    Unwanted,
    /// It does not lead to the addresses that the Node has now.
    Moved,
    /// It leads nowhere.
    Blackhole,
    /// It leads to a Node that does not have this range, and the Node that has it needs the place.
    InTheWay,
    /// The Node that it leads to does not exist.
    Stray,
}

impl Lane {
    /// The range is as it should be.
    fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.create.is_none()
    }
}

impl NodePlan {
    /// The routes are as they should be.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Some route leads to the Node.
    pub fn has_route(&self) -> bool {
        !self.led.is_empty()
    }

    /// Every range of the Node is led to it, if all that is in the lanes works.
    pub fn is_complete(&self) -> bool {
        self.unreadable.is_empty()
    }
}

/// What this Node, which is one of ours, needs (ROUTE-5, ROUTE-7).
pub fn decide(scene: &Scene<'_>, node: &Node) -> NodePlan {
    let (wanted, unreadable) = ranges_of(node);
    let led = scene.for_node(node);
    let destinations: BTreeSet<IpNet> =
        led.iter().map(|route| route.destination.trunc()).chain(wanted.iter().copied()).collect();
    let lanes = destinations.into_iter().map(|destination| {
        let here = led.iter().copied().filter(|route| route.destination.trunc() == destination);
        scene.lane(node, destination, wanted.contains(&destination), here.collect())
    });
    NodePlan {
        lanes: lanes.filter(|lane| !lane.is_empty()).collect(),
        unreadable,
        led: led.iter().map(|route| route.id.clone()).collect(),
    }
}

/// The routes that we are responsible for and that lead to no Node (ROUTE-7).
pub fn orphans(scene: &Scene<'_>) -> Vec<Removal> {
    let is_stray = |route: &&Route| scene.target_node(route).is_none() && scene.may_remove(route);
    let removal = |route: &Route| {
        let why = if route.blackhole { Why::Blackhole } else { Why::Stray };
        Removal { route: route.clone(), why }
    };
    scene.table.iter().filter(is_stray).map(removal).collect()
}

impl Scene<'_> {
    /// It is for us to remove (ROUTE-6): we made it, or its first or last address is one that pods may have; and no other cluster
    /// made it.
    pub fn is_responsible(&self, route: &Route) -> bool {
        let ends = [route.destination.network(), route.destination.broadcast()];
        let is_in_range = || ends.iter().any(|end| self.ranges.iter().any(|range| range.contains(end)));
        !self.is_foreign(route) && (route.stamped || is_in_range())
    }

    /// Another cluster made it, and it does not lead to a machine of this one. As long as the UID of this cluster is unknown, any
    /// route with a UID may be another cluster's.
    // upstream: two clusters with the same name and the same pod CIDRs delete each other's routes.
    pub fn is_foreign(&self, route: &Route) -> bool {
        let is_another = |uid: &String| self.cluster_uid != Some(uid.as_str());
        // Nodes of two clusters may have the same name, so the machine counts where it is known.
        let leads_here = || match &route.provider_id {
            Some(id) => self.nodes.with_id(id).is_some(),
            None => self.target_node(route).is_some(),
        };
        route.cluster_uid.as_ref().is_some_and(is_another) && !leads_here()
    }

    /// We are responsible for it, and it is known to be this cluster's. A route without a mark that leads to a machine which is
    /// no Node may be another cluster's, unless it once led to a Node of this one.
    fn may_remove(&self, route: &Route) -> bool {
        let is_known = || route.stamped || route.node.is_some() || route.blackhole || self.table.was_ours(&route.id);
        self.is_responsible(route) && (is_known() || self.target_node(route).is_some())
    }

    /// How many routes we are responsible for.
    pub fn responsibilities(&self) -> usize {
        self.table.iter().filter(|route| self.is_responsible(route)).count()
    }

    /// What this range needs, of which the routes `here` lead to the Node.
    fn lane(&self, node: &Node, destination: IpNet, is_wanted: bool, here: Vec<&Route>) -> Lane {
        let is_led = is_wanted && here.iter().any(|route| fits(route, node));
        let wrong = here.iter().filter(|route| !is_wanted || !fits(route, node));
        let wrong = wrong.map(|route| (*route, why_wrong(route, is_wanted)));
        let is_another = |route: &&Route| here.iter().all(|own| own.id != route.id);
        let others = self.table.to(destination).filter(is_another).filter(|route| self.is_in_the_way(route));
        let in_the_way = others.filter(|_| is_wanted && !is_led).map(|route| (route, Why::InTheWay));
        let remove = wrong.chain(in_the_way).filter(|(route, _)| self.may_remove(route));
        Lane {
            destination,
            remove: remove.map(|(route, why)| Removal { route: route.clone(), why }).collect(),
            create: (is_wanted && !is_led).then(|| self.spec(node, destination)),
        }
    }

    /// The routes that lead to the Node: by its name, by its machine, or, if that is nobody else's, by its address.
    fn for_node(&self, node: &Node) -> Vec<&Route> {
        let mut led: Vec<&Route> = self.table.for_node(node).filter(|route| !self.is_foreign(route)).collect();
        let is_led = |route: &Route| self.target_node(route).is_some_and(|target_node| target_node.name == node.name);
        for route in self.table.for_addresses(node) {
            if led.iter().all(|known| known.id != route.id) && is_led(route) {
                led.push(route);
            }
        }
        led
    }

    /// A route to somebody else who has no claim to its range. Two Nodes that claim the same are for people to sort out.
    fn is_in_the_way(&self, route: &Route) -> bool {
        match self.target_node(route) {
            None => true,
            Some(other) if !self.nodes.is_ours(&other) => false,
            Some(other) => is_dead(route, &other) || !ranges_of(&other).0.contains(&route.destination.trunc()),
        }
    }

    fn spec(&self, node: &Node, destination: IpNet) -> RouteSpec {
        RouteSpec {
            name_hint: node.uid.clone(),
            node: node.name.clone(),
            provider_id: node.provider_id.clone(),
            node_addresses: node.addresses.clone(),
            destination,
            cluster_uid: self.cluster_uid.map(str::to_owned),
        }
    }

    /// The Node that a route leads to, if it is there and anybody can tell.
    pub fn target_node(&self, route: &Route) -> Option<Arc<Node>> {
        if let Some(name) = &route.node {
            return self.nodes.named(name);
        }
        let by_machine = route.provider_id.as_ref().and_then(|id| self.nodes.with_id(id));
        by_machine.or_else(|| self.nodes.with_address(route.next_hop?))
    }
}

/// What the Node's pods have addresses in, each range once, and what is no range.
fn ranges_of(node: &Node) -> (BTreeSet<IpNet>, Vec<String>) {
    let (mut ranges, mut unreadable) = (BTreeSet::new(), Vec::new());
    for text in &node.pod_cidrs {
        match parse_cidr(text) {
            Some(range) => drop(ranges.insert(range)),
            None => unreadable.push(text.clone()),
        }
    }
    (ranges, unreadable)
}

/// Why a route to a Node goes: that does not have the range, or has it and is led to wrongly.
fn why_wrong(route: &Route, is_wanted: bool) -> Why {
    match (route.blackhole, is_wanted) {
        (true, _) => Why::Blackhole,
        (false, true) => Why::Moved,
        (false, false) => Why::Unwanted,
    }
}

/// It leads to the Node as it is now.
fn fits(route: &Route, node: &Node) -> bool {
    let has_moved = route.next_hop.is_some() && !node.addresses.is_empty() && !has_next_hop(route, node);
    !is_dead(route, node)
        && !has_moved
        && route.node_addresses.as_ref().is_none_or(|target_node| same_addresses(target_node, &node.addresses))
}

/// It leads nowhere: not even to an address of the Node.
fn is_dead(route: &Route, node: &Node) -> bool {
    route.blackhole && !has_next_hop(route, node)
}

fn has_next_hop(route: &Route, node: &Node) -> bool {
    route.next_hop.is_some_and(|hop| node.addresses.iter().any(|address| address.ip() == Some(hop)))
}

/// In any order (ROUTE-5).
fn same_addresses(one: &[Address], other: &[Address]) -> bool {
    let set = |addresses: &[Address]| addresses.iter().cloned().collect::<HashSet<_>>();
    one.len() == other.len() && set(one) == set(other)
}
