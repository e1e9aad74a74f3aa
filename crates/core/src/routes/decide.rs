//! Route changes of one Node, and orphaned routes.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::RouteTable;
use crate::{Address, Node, NodeName, ProviderId, Route, RouteSpec, parse_cidr};

/// Lookup of the Nodes of the cluster.
pub trait Nodes {
    /// Returns the Node with this name.
    fn by_name(&self, name: &NodeName) -> Option<Arc<Node>>;
    /// Returns the Node with this provider ID.
    fn by_provider_id(&self, id: &ProviderId) -> Option<Arc<Node>>;
    /// Returns the Node with this address, for clouds whose routes have an address as next hop.
    fn by_address(&self, address: IpAddr) -> Option<Arc<Node>> {
        let _ = address;
        None
    }
    /// Returns whether Bowline manages the routes of the Node: its machine is in the cloud in question, and the Node is not paused.
    fn is_managed(&self, node: &Node) -> bool;
}

/// Input of a decision about routes.
#[derive(Clone, Copy)]
pub struct RouteContext<'a> {
    /// Routes of the cloud.
    pub table: &'a RouteTable,
    /// Nodes of the cluster.
    pub nodes: &'a dyn Nodes,
    /// `--cluster-cidr`: the cluster CIDRs.
    pub ranges: &'a [IpNet],
    /// UID of this cluster, if known.
    pub cluster_uid: Option<&'a str>,
}

/// Route changes of one Node. The changes of different destinations are independent; for one destination, all deletions precede the
/// creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// Changes, one per destination that needs any.
    pub changes: Vec<RouteChange>,
    /// Invalid values in `spec.podCIDRs`.
    pub invalid_cidrs: Vec<String>,
    /// IDs of the existing routes to the Node.
    pub route_ids: Vec<String>,
}

/// Changes of one destination (ROUTE-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// Destination CIDR.
    pub destination: IpNet,
    /// Routes to delete first.
    pub remove: Vec<Removal>,
    /// Route to create afterwards.
    pub create: Option<RouteSpec>,
}

/// A route to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The route, as listed by the cloud.
    pub route: Route,
    /// Reason for the deletion.
    pub reason: RemovalReason,
}

/// Reason for the deletion of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// The target Node does not have this pod CIDR.
    Unwanted,
    /// The route does not lead to the current addresses of the Node.
    Moved,
    /// The route drops traffic.
    Blackhole,
    /// The target Node does not have this pod CIDR, and the route blocks that of the Node that has it.
    Conflict,
    /// The target Node does not exist.
    Orphaned,
}

impl RouteChange {
    /// Returns whether there is nothing to change.
    fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.create.is_none()
    }
}

impl NodePlan {
    /// Returns whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns whether any route to the Node exists.
    pub fn has_route(&self) -> bool {
        !self.route_ids.is_empty()
    }

    /// Returns whether all pod CIDRs of the Node are routed once the changes are applied.
    pub fn is_complete(&self) -> bool {
        self.invalid_cidrs.is_empty()
    }
}

/// Decides the route changes of a managed Node (ROUTE-5, ROUTE-7).
pub fn decide(context: &RouteContext<'_>, node: &Node) -> NodePlan {
    let (desired, invalid_cidrs) = pod_cidrs(node);
    let existing = context.for_node(node);
    let destinations: BTreeSet<IpNet> =
        existing.iter().map(|route| route.destination.trunc()).chain(desired.iter().copied()).collect();
    let changes = destinations.into_iter().map(|destination| {
        let own = existing.iter().copied().filter(|route| route.destination.trunc() == destination);
        context.change(node, destination, desired.contains(&destination), own.collect())
    });
    NodePlan {
        changes: changes.filter(|change| !change.is_empty()).collect(),
        invalid_cidrs,
        route_ids: existing.iter().map(|route| route.id.clone()).collect(),
    }
}

/// Returns the routes to delete because their target Node does not exist (ROUTE-7).
pub fn orphans(context: &RouteContext<'_>) -> Vec<Removal> {
    let is_orphan = |route: &&Route| context.target_node(route).is_none() && context.may_remove(route);
    let removal = |route: &Route| {
        let reason = if route.blackhole { RemovalReason::Blackhole } else { RemovalReason::Orphaned };
        Removal { route: route.clone(), reason }
    };
    context.table.iter().filter(is_orphan).map(removal).collect()
}

impl RouteContext<'_> {
    /// Returns whether Bowline is responsible for the route (ROUTE-6): it has the mark of this cluster, or its first or last
    /// address is in a cluster CIDR; and no other cluster created it.
    pub fn is_responsible(&self, route: &Route) -> bool {
        let ends = [route.destination.network(), route.destination.broadcast()];
        let is_in_range = || ends.iter().any(|end| self.ranges.iter().any(|range| range.contains(end)));
        !self.is_foreign(route) && (route.stamped || is_in_range())
    }

    /// Returns whether another cluster created the route, and it does not lead to a machine of this one. While the UID of this
    /// cluster is unknown, every route with a UID may belong to another cluster.
    // upstream: two clusters with the same name and the same pod CIDRs delete each other's routes.
    pub fn is_foreign(&self, route: &Route) -> bool {
        let is_another = |uid: &String| self.cluster_uid != Some(uid.as_str());
        // Nodes of two clusters may have the same name, so the machine or the address takes precedence if it is known.
        let leads_here = || match (&route.provider_id, route.next_hop) {
            (Some(id), _) => self.nodes.by_provider_id(id).is_some(),
            (None, Some(hop)) => {
                let has_hop = |node: Arc<Node>| node.addresses.iter().any(|address| address.ip() == Some(hop));
                self.nodes.by_address(hop).is_some() || self.target_node(route).is_some_and(has_hop)
            }
            (None, None) => self.target_node(route).is_some(),
        };
        route.cluster_uid.as_ref().is_some_and(is_another) && !leads_here()
    }

    /// Returns whether the route may be deleted: Bowline is responsible for it, and it is known to belong to this cluster. A route
    /// without a mark to a machine that is not a Node may belong to another cluster, unless it once led to a Node of this one.
    fn may_remove(&self, route: &Route) -> bool {
        let is_known = || route.stamped || route.node.is_some() || route.blackhole || self.table.was_ours(&route.id);
        self.is_responsible(route) && (is_known() || self.target_node(route).is_some())
    }

    /// Returns the number of routes that Bowline is responsible for.
    pub fn responsible_count(&self) -> usize {
        self.table.iter().filter(|route| self.is_responsible(route)).count()
    }

    /// Decides the changes of one destination. `own` are its routes to the Node; `is_desired` is true if the Node has the pod CIDR.
    fn change(&self, node: &Node, destination: IpNet, is_desired: bool, own: Vec<&Route>) -> RouteChange {
        let is_routed = is_desired && own.iter().any(|route| matches(route, node));
        let outdated = own.iter().filter(|route| !is_desired || !matches(route, node));
        let outdated = outdated.map(|route| (*route, removal_reason(route, is_desired)));
        let is_other = |route: &&Route| own.iter().all(|own| own.id != route.id);
        let others = self.table.to(destination).filter(is_other).filter(|route| self.is_conflicting(route));
        let conflicting = others.filter(|_| is_desired && !is_routed).map(|route| (route, RemovalReason::Conflict));
        let remove = outdated.chain(conflicting).filter(|(route, _)| self.may_remove(route));
        RouteChange {
            destination,
            remove: remove.map(|(route, reason)| Removal { route: route.clone(), reason }).collect(),
            create: (is_desired && !is_routed).then(|| self.spec(node, destination)),
        }
    }

    /// Returns the routes to the Node: by its name, by its machine, or by its address if no other Node's machine is the target.
    fn for_node(&self, node: &Node) -> Vec<&Route> {
        let mut found: Vec<&Route> = self.table.for_node(node).filter(|route| !self.is_foreign(route)).collect();
        let leads_to_node =
            |route: &Route| self.target_node(route).is_some_and(|target_node| target_node.name == node.name);
        for route in self.table.for_addresses(node) {
            if found.iter().all(|known| known.id != route.id) && leads_to_node(route) {
                found.push(route);
            }
        }
        found
    }

    /// Returns whether the route leads to a target that does not have its destination as pod CIDR. If two Nodes have the same pod
    /// CIDR, an operator has to resolve the conflict.
    fn is_conflicting(&self, route: &Route) -> bool {
        match self.target_node(route) {
            None => true,
            Some(other) if !self.nodes.is_managed(&other) => false,
            Some(other) => is_dead(route, &other) || !pod_cidrs(&other).0.contains(&route.destination.trunc()),
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

    /// Returns the target Node of a route, if it exists and is known.
    pub fn target_node(&self, route: &Route) -> Option<Arc<Node>> {
        if let Some(name) = &route.node {
            return self.nodes.by_name(name);
        }
        let by_machine = route.provider_id.as_ref().and_then(|id| self.nodes.by_provider_id(id));
        by_machine.or_else(|| self.nodes.by_address(route.next_hop?))
    }
}

/// Returns the pod CIDRs of a Node without duplicates, and the invalid values.
fn pod_cidrs(node: &Node) -> (BTreeSet<IpNet>, Vec<String>) {
    let (mut ranges, mut invalid) = (BTreeSet::new(), Vec::new());
    for text in &node.pod_cidrs {
        match parse_cidr(text) {
            Some(range) => drop(ranges.insert(range)),
            None => invalid.push(text.clone()),
        }
    }
    (ranges, invalid)
}

/// Returns why a route to a Node is deleted. `is_desired` is true if the Node has the destination as pod CIDR.
fn removal_reason(route: &Route, is_desired: bool) -> RemovalReason {
    match (route.blackhole, is_desired) {
        (true, _) => RemovalReason::Blackhole,
        (false, true) => RemovalReason::Moved,
        (false, false) => RemovalReason::Unwanted,
    }
}

/// Returns whether the route leads to the current machine and addresses of the Node.
fn matches(route: &Route, node: &Node) -> bool {
    let has_moved = route.next_hop.is_some() && !node.addresses.is_empty() && !has_next_hop(route, node);
    !is_dead(route, node)
        && !has_moved
        && route.node_addresses.as_ref().is_none_or(|target_node| same_addresses(target_node, &node.addresses))
}

/// Returns whether the route drops traffic and its next hop is not an address of the Node either.
fn is_dead(route: &Route, node: &Node) -> bool {
    route.blackhole && !has_next_hop(route, node)
}

fn has_next_hop(route: &Route, node: &Node) -> bool {
    route.next_hop.is_some_and(|hop| node.addresses.iter().any(|address| address.ip() == Some(hop)))
}

/// Compares addresses in any order (ROUTE-5).
fn same_addresses(one: &[Address], other: &[Address]) -> bool {
    let set = |addresses: &[Address]| addresses.iter().cloned().collect::<HashSet<_>>();
    one.len() == other.len() && set(one) == set(other)
}
