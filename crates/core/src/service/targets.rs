//! Which Nodes are behind a balancer, which of those are leaving, and which changes of a Node matter.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::annotations::NodeSelector;
use crate::well_known::{AUTOSCALER_TAINT, EXCLUDE_FROM_LOAD_BALANCERS};
use crate::{Node, TargetNode, parse_bool};

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
    node.labels.get(EXCLUDE_FROM_LOAD_BALANCERS).is_some_and(|value| parse_bool(value) != Some(false))
}

/// Whether the Node is leaving, and why.
pub fn leaving(node: &Node) -> Option<Leaving> {
    if node.deleting {
        return Some(Leaving::Deleting);
    }
    if node.taints.iter().any(|taint| taint.key == AUTOSCALER_TAINT) {
        return Some(Leaving::Autoscaler);
    }
    is_excluded(node).then_some(Leaving::Excluded)
}

/// The targets of a balancer among these Nodes, by name.
///
/// * `is_local` says whether a Node with a provider ID is in the balancer's cloud; asked only for [`NodeSet::Initialized`].
/// * `drains` says whether a Node that is leaving is still to be kept, without new connections; `false` once its time is
///   up, or where there is no draining. Asked only with [`TargetRules::drain`].
/// * `selector` is the user's own choice.
pub fn targets(
    nodes: &[Arc<Node>],
    rules: TargetRules,
    selector: Option<&NodeSelector>,
    is_local: impl Fn(&Node) -> bool,
    drains: impl Fn(&Node) -> bool,
) -> Vec<TargetNode> {
    let is_there = |node: &Node| match rules.nodes {
        NodeSet::All => true,
        NodeSet::Initialized => is_initialized(node) && is_local(node),
    };
    let is_chosen = |node: &Node| selector.is_none_or(|selector| selector.matches(&node.labels));
    let stays = |node: &Node| leaving(node).is_none() || (rules.drain && drains(node));
    let nodes = nodes.iter().filter(|node| is_there(node) && is_chosen(node) && stays(node));
    let mut targets: Vec<TargetNode> = nodes.map(|node| target(node)).collect();
    targets.sort_by(|one, other| one.node.cmp(&other.node));
    targets
}

/// The cloud has said what this node is, and which machine.
fn is_initialized(node: &Node) -> bool {
    !node.is_uninitialized() && node.provider_id.is_some()
}

fn target(node: &Node) -> TargetNode {
    TargetNode {
        node: node.name.clone(),
        provider_id: node.provider_id.clone(),
        addresses: node.addresses.clone(),
        draining: leaving(node).is_some(),
    }
}

/// Whether this change of a Node may change the targets of any balancer (SVC-5, Y1 to Y12). `labels` are the label keys
/// that selectors of Services look at ([`NodeSelector::keys`]).
pub fn triggers(old: &Node, new: &Node, rules: TargetRules, labels: &BTreeSet<String>) -> bool {
    is_excluded(old) != is_excluded(new)
        || old.provider_id != new.provider_id
        || (rules.drain && leaving(old).is_some() != leaving(new).is_some())
        || (rules.nodes == NodeSet::Initialized && is_known_otherwise(old, new))
        || labels.iter().any(|key| old.labels.get(key) != new.labels.get(key))
}

/// The Node was initialised, or is reached elsewhere than before.
// upstream: neither matters, and a target whose address has changed is dead until something else happens.
fn is_known_otherwise(old: &Node, new: &Node) -> bool {
    let is_moved = is_initialized(new) && old.addresses != new.addresses;
    is_initialized(old) != is_initialized(new) || is_moved
}
