//! What a Node's `NetworkUnavailable` condition should say (ROUTE-11 to ROUTE-13).

use crate::{NetworkCondition, Node, Ready};

/// What is written to the condition (ROUTE-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkStatus {
    /// `True` while pods on other nodes cannot be reached.
    pub status: &'static str,
    /// In one word, for programs.
    pub reason: &'static str,
    /// For people.
    pub message: &'static str,
}

impl NetworkStatus {
    /// All routes are there.
    pub const CREATED: NetworkStatus =
        NetworkStatus { status: "False", reason: "RouteCreated", message: "RouteController created a route" };

    /// A route is missing.
    pub const NOT_CREATED: NetworkStatus =
        NetworkStatus { status: "True", reason: "NoRouteCreated", message: "RouteController failed to create a route" };

    /// The Node says so already (ROUTE-13): another reason is another one's word, and is written over.
    pub fn is_current(&self, condition: Option<&NetworkCondition>) -> bool {
        condition.is_some_and(|told| told.status == self.status && told.reason == self.reason)
    }
}

/// What the Node is to be told (ROUTE-11): `all_there` says that each of its ranges is led to it, `has_route` that any route
/// was. `None` if it has nothing to do with routes, or says so already.
///
/// A Node that is Ready and had its routes keeps its condition while they cannot be created again: the condition would keep new
/// Pods away from a Node that works, on the word of a cloud that may be wrong.
pub fn network(node: &Node, all_there: bool, has_route: bool) -> Option<NetworkStatus> {
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
