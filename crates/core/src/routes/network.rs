//! `NetworkUnavailable` condition of a Node (ROUTE-11 to ROUTE-13).

use crate::{NetworkCondition, Node, Ready};

/// Content of the condition (ROUTE-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkStatus {
    /// `True` while the network of the Node is not set up.
    pub status: &'static str,
    /// Machine-readable reason, as one CamelCase word.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: &'static str,
}

impl NetworkStatus {
    /// All routes of the Node exist.
    pub const CREATED: NetworkStatus =
        NetworkStatus { status: "False", reason: "RouteCreated", message: "RouteController created a route" };

    /// A route of the Node is missing.
    pub const NOT_CREATED: NetworkStatus =
        NetworkStatus { status: "True", reason: "NoRouteCreated", message: "RouteController failed to create a route" };

    /// Returns whether the Node already has this status and reason (ROUTE-13). A reason of another component is overwritten.
    pub fn is_current(&self, condition: Option<&NetworkCondition>) -> bool {
        condition.is_some_and(|current| current.status == self.status && current.reason == self.reason)
    }
}

/// Returns the condition to write to a Node (ROUTE-11); `None` if it needs no route or has the condition already. `all_there` is
/// true if all its pod CIDRs are routed, `has_route` if any route to the Node existed.
///
/// A Node that is Ready and had its routes keeps its condition while they cannot be created again: the condition would prevent the
/// scheduling of Pods on a working Node because of a cloud that may be wrong.
pub fn network_status(node: &Node, all_there: bool, has_route: bool) -> Option<NetworkStatus> {
    let status = match (node.pod_cidrs.is_empty(), has_route) {
        (true, false) => return None,
        (true, true) => NetworkStatus::NOT_CREATED,
        (false, _) if all_there => NetworkStatus::CREATED,
        (false, _) if node.ready == Ready::True && NetworkStatus::CREATED.is_current(node.network.as_ref()) => {
            return None;
        }
        (false, _) => NetworkStatus::NOT_CREATED,
    };
    (!status.is_current(node.network.as_ref())).then_some(status)
}
