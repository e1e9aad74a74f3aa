//! What one Node needs, and which routes nobody needs.

use std::sync::Arc;

use ipnet::IpNet;

use super::Table;
use crate::{Node, NodeName, ProviderId, Route, RouteSpec};

/// The Nodes of the cluster.
pub trait Nodes {
    /// The one of this name.
    fn named(&self, name: &NodeName) -> Option<Arc<Node>>;
    /// The one whose machine this is.
    fn with_id(&self, id: &ProviderId) -> Option<Arc<Node>>;
    /// Its routes are for us to make and remove: its machine is in the cloud that is asked about, and no operator has said
    /// otherwise.
    fn is_ours(&self, node: &Node) -> bool;
}

/// All that a decision is made from.
pub struct Scene<'a> {
    /// The routes of the cloud.
    pub table: &'a Table,
    /// The Nodes of the cluster.
    pub nodes: &'a dyn Nodes,
    /// `--cluster-cidr`: where pods may live.
    pub ranges: &'a [IpNet],
}

/// What one Node needs. Lanes have nothing to do with each other; in a lane, all that goes is gone before the new one comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// One for each range that needs work.
    pub lanes: Vec<Lane>,
    /// What stands in `spec.podCIDRs` and is no range.
    pub unreadable: Vec<String>,
    /// Some route leads to the Node.
    pub is_led_to: bool,
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
    /// It leads to addresses that the Node no longer has.
    Moved,
    /// It leads nowhere.
    Blackhole,
    /// It leads to a Node that does not have this range, and the Node that has it needs the place.
    InTheWay,
    /// The Node that it leads to does not exist.
    Stray,
}
