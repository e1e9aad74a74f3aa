//! Which Nodes are behind a balancer, which of those are leaving, and which changes of a Node matter.

use std::sync::Arc;

use crate::annotations::NodeSelector;
use crate::{Node, TargetNode};

/// Which Nodes become targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeSet {
    /// Those that are initialised: their machine is known, and known to be in the balancer's cloud. A Node that is taken
    /// before costs a second update of every balancer when it has been initialised.
    #[default]
    Initialized,
    /// All, at once, as the Go managers do.
    All,
}

/// How Nodes become targets and leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetRules {
    /// Which ones.
    pub nodes: NodeSet,
    /// A Node that is leaving is drained first; else it goes at once, when something else calls for an update.
    // upstream: neither the autoscaler's taint nor a deletion timestamp makes an update happen.
    pub drain: bool,
}

/// Why a Node is leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Somebody asked for its deletion.
    Deleting,
    /// The cluster autoscaler is about to remove its machine.
    Autoscaler,
    /// It is labelled as one that balancers leave out.
    Excluded,
}

/// The exclusion label is there, and does not say false (B1, B2).
pub fn is_excluded(node: &Node) -> bool {
    let _ = node;
    todo!()
}

/// Whether the Node is leaving, and why.
pub fn leaving(node: &Node) -> Option<Leaving> {
    let _ = node;
    todo!()
}

/// The targets of a balancer among these Nodes, by name.
///
/// * `is_local` says whether a Node with a provider ID is in the balancer's cloud; asked only for [`NodeSet::Initialized`].
/// * `drains` says whether a Node that is leaving is still to be kept, without new connections; `false` once its time is
///   up, or where there is no draining.
/// * `selector` is the user's own choice.
pub fn targets(
    nodes: &[Arc<Node>],
    rules: TargetRules,
    selector: Option<&NodeSelector>,
    is_local: impl Fn(&Node) -> bool,
    drains: impl Fn(&Node) -> bool,
) -> Vec<TargetNode> {
    let _ = (nodes, rules, selector, is_local, drains);
    todo!()
}

/// Whether this change of a Node may change the targets of any balancer (SVC-5, Y1 to Y12). `labels` are the label keys
/// that selectors of Services look at.
pub fn triggers(old: &Node, new: &Node, rules: TargetRules) -> bool {
    let _ = (old, new, rules);
    todo!()
}
