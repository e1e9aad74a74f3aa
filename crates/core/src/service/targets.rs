//! Selection of target Nodes, Nodes that are leaving, and Node changes that affect the targets.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::annotations::NodeSelector;
use crate::service::{ExcludedNodes, Exclusion};
use crate::well_known::{AUTOSCALER_TAINT, EXCLUDE_FROM_LOAD_BALANCERS};
use crate::{Node, NodeName, TargetNode, TargetSet, parse_bool};

/// Nodes that become targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeSet {
    /// Nodes that are initialised and whose machine is in the load balancer's cloud. A Node that became a target before its
    /// initialisation would cause a second update of every load balancer afterwards.
    #[default]
    Initialized,
    /// All Nodes, initialised or not, as in the Go managers.
    All,
}

/// Rules by which Nodes become targets and leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetRules {
    /// Nodes that become targets.
    pub nodes: NodeSet,
    /// Whether a Node that is leaving is drained first. Otherwise it is removed without draining at the next update.
    // upstream: neither the autoscaler's taint nor a deletion timestamp causes an update.
    pub drain: bool,
    /// Maximum number of targets of a load balancer, if the cloud has one.
    pub max: Option<usize>,
}

/// Targets of a load balancer, and the Nodes that are excluded.
#[derive(Debug, Clone, Default)]
pub struct TargetSelection {
    /// Target Nodes.
    pub targets: TargetSet,
    /// Excluded Nodes, with the reason for each.
    pub excluded: Arc<ExcludedNodes>,
}

/// Reason why a Node is leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaving {
    /// The Node has a deletion timestamp.
    Deleting,
    /// The cluster autoscaler is about to delete its machine.
    Autoscaler,
    /// The Node has the label that excludes it from load balancers.
    Excluded,
}

/// Returns whether the Node has the exclusion label with a value other than false (B1, B2).
pub fn is_excluded(node: &Node) -> bool {
    node.labels.get(EXCLUDE_FROM_LOAD_BALANCERS).is_some_and(|value| parse_bool(value) != Some(false))
}

/// Returns the reason why the Node is leaving, or `None` if it is not.
pub fn leaving(node: &Node) -> Option<Leaving> {
    if node.deleting {
        return Some(Leaving::Deleting);
    }
    if node.taints.iter().any(|taint| taint.key == AUTOSCALER_TAINT) {
        return Some(Leaving::Autoscaler);
    }
    is_excluded(node).then_some(Leaving::Excluded)
}

/// Selects the targets of a load balancer among these Nodes.
///
/// * `is_local` returns whether a Node with a provider ID is in the load balancer's cloud; called only with
///   [`NodeSet::Initialized`].
/// * `drains` returns whether a Node that is leaving is still draining, that is, kept without new connections; called only with
///   [`TargetRules::drain`].
/// * `selector` is the label selector of the user.
/// * `before` is the previous set: unchanged entries are shared with it, and if no entry has changed, it is returned itself.
///
/// If there are more Nodes than the load balancer supports, those of `before` are kept, followed by the oldest Nodes: a new
/// process, which has no `before`, selects the same Nodes, and a Node that joins replaces none.
pub fn targets(
    nodes: &[Arc<Node>],
    rules: TargetRules,
    selector: Option<&NodeSelector>,
    is_local: impl Fn(&Node) -> bool,
    drains: impl Fn(&Node) -> bool,
    before: &TargetSet,
) -> TargetSelection {
    let exclusion = |node: &Node| {
        let absent = absence(node, &is_local).filter(|_| rules.nodes == NodeSet::Initialized);
        let is_selected = || selector.is_none_or(|selector| selector.matches(&node.labels));
        let gone = || leaving(node).filter(|_| !rules.drain || !drains(node)).map(Exclusion::Leaving);
        absent.or_else(|| (!is_selected()).then_some(Exclusion::NotSelected)).or_else(gone)
    };
    let (mut selected, mut excluded) = (Vec::new(), Vec::new());
    for node in nodes {
        match exclusion(node) {
            None => selected.push(&**node),
            Some(why) => excluded.push((why, node.name.clone())),
        }
    }
    if let Some(max) = rules.max {
        excluded.extend(split_off_excess(&mut selected, max, before));
    }
    let targets = before.updated(selected.into_iter().map(target));
    TargetSelection { targets, excluded: Arc::new(excluded.into_iter().collect()) }
}

/// Returns why a Node is not known to be a machine of this cloud.
fn absence(node: &Node, is_local: impl Fn(&Node) -> bool) -> Option<Exclusion> {
    if node.is_uninitialized() {
        return Some(Exclusion::Uninitialized);
    }
    if node.provider_id.is_none() {
        return Some(Exclusion::NoProviderId);
    }
    (!is_local(node)).then_some(Exclusion::OtherCloud)
}

/// Truncates the Nodes to the maximum number of targets, and returns the excess.
fn split_off_excess(nodes: &mut Vec<&Node>, max: usize, before: &TargetSet) -> Vec<(Exclusion, NodeName)> {
    if nodes.len() <= max {
        return Vec::new();
    }
    let rank = |node: &Node| (before.get(&node.name).is_none(), leaving(node).is_some(), node.created);
    nodes.sort_by_cached_key(|node| (rank(node), node.name.clone()));
    nodes.split_off(max).into_iter().map(|node| (Exclusion::OverLimit(max), node.name.clone())).collect()
}

/// Returns whether the Node has a provider ID and no uninitialized taint.
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

/// Returns whether this change of a Node may change the result of [`targets`]. Most updates by kubelets do not.
pub fn may_change_targets(old: &Node, new: &Node) -> bool {
    old.provider_id != new.provider_id
        || old.addresses != new.addresses
        || old.labels != new.labels
        || leaving(old).is_some() != leaving(new).is_some()
        || is_initialized(old) != is_initialized(new)
}

/// Returns whether this change of a Node requires an update of the targets (SVC-5, Y1 to Y12). `labels` are the label keys in the
/// selectors of Services ([`NodeSelector::keys`]).
pub fn needs_target_update(old: &Node, new: &Node, rules: TargetRules, labels: &BTreeSet<String>) -> bool {
    is_excluded(old) != is_excluded(new)
        || old.provider_id != new.provider_id
        || (rules.drain && leaving(old).is_some() != leaving(new).is_some())
        || (rules.nodes == NodeSet::Initialized && is_initialized_or_moved(old, new))
        || labels.iter().any(|key| old.labels.get(key) != new.labels.get(key))
}

/// Returns whether the Node was initialised, or has other addresses than before.
// upstream: ignores both, so that a target with a changed address is unreachable until the next update.
fn is_initialized_or_moved(old: &Node, new: &Node) -> bool {
    let has_moved = is_initialized(new) && old.addresses != new.addresses;
    is_initialized(old) != is_initialized(new) || has_moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addresses, node, taint};
    use crate::well_known::UNINITIALIZED_TAINT;
    use crate::{ProviderId, Ready};

    const UPSTREAM: TargetRules = TargetRules { nodes: NodeSet::All, drain: false, max: None };
    const DRAINING: TargetRules = TargetRules { nodes: NodeSet::All, drain: true, max: None };
    const INITIALIZED: TargetRules = TargetRules { nodes: NodeSet::Initialized, drain: false, max: None };
    const ALL_RULES: [TargetRules; 3] = [UPSTREAM, DRAINING, INITIALIZED];

    type Edit = fn(&mut Node);

    fn exclude(node: &mut Node) {
        label(node, EXCLUDE_FROM_LOAD_BALANCERS, "");
    }

    fn label(node: &mut Node, key: &str, value: &str) {
        node.labels.insert(key.to_owned(), value.to_owned());
    }

    fn autoscaler(node: &mut Node) {
        node.taints.push(taint(AUTOSCALER_TAINT, "NoSchedule"));
    }

    fn id(node: &mut Node, id: &str) {
        node.provider_id = ProviderId::new(id);
    }

    #[test]
    fn b1_and_b2_the_exclusion_label_excludes_unless_its_value_is_false() {
        let cases = [
            ("B1", Some(""), true),
            ("B1", Some("foo"), true),
            ("B2", Some("false"), false),
            ("B2", Some("0"), false),
            ("B2", Some("F"), false),
            ("B2", Some("True"), true),
            ("B1, not a boolean in Go", Some("fALSE"), true),
            ("B1, with a space", Some("false "), true),
            ("B3", None, false),
        ];
        for (case, value, expected) in cases {
            let mut node = node("n");
            value.into_iter().for_each(|value| label(&mut node, EXCLUDE_FROM_LOAD_BALANCERS, value));
            assert_eq!(is_excluded(&node), expected, "{case}: {value:?}");
            assert_eq!(leaving(&node), expected.then_some(Leaving::Excluded), "{case}: {value:?}");
        }
    }

    #[test]
    fn a_node_leaves_for_the_first_matching_reason() {
        assert_eq!(leaving(&edited(&[deleting])), Some(Leaving::Deleting));
        assert_eq!(leaving(&edited(&[autoscaler])), Some(Leaving::Autoscaler));
        let effect = edited(&[|node| node.taints.push(taint(AUTOSCALER_TAINT, "PreferNoSchedule"))]);
        assert_eq!(leaving(&effect), Some(Leaving::Autoscaler), "by key alone");
        assert_eq!(leaving(&edited(&[exclude, autoscaler, deleting])), Some(Leaving::Deleting));
    }

    /// Returns which of three Nodes with machines, the second of them edited, become targets; `*` marks draining.
    fn selected(rules: TargetRules, edit: Edit) -> Vec<String> {
        selected_by(rules, None, edit)
    }

    fn selected_by(rules: TargetRules, selector: Option<&str>, edit: Edit) -> Vec<String> {
        let targets = select(rules, selector, edit).targets;
        targets.iter().map(|target| format!("{}{}", target.node, if target.draining { "*" } else { "" })).collect()
    }

    fn select(rules: TargetRules, selector: Option<&str>, edit: Edit) -> TargetSelection {
        let mut nodes = ["n3", "n2", "n1"].map(|name| Node { provider_id: ProviderId::new("a://1"), ..node(name) });
        edit(&mut nodes[1]);
        let selector = selector.map(|text| NodeSelector::parse(text).unwrap());
        let is_local = |node: &Node| node.provider_id.as_ref().is_some_and(|id| id.prefix() == Some("a"));
        targets(&nodes.map(Arc::new), rules, selector.as_ref(), is_local, |_| true, &TargetSet::default())
    }

    #[test]
    fn upstream_selects_all_nodes_that_are_not_leaving() {
        let (all, without) = (["n1", "n2", "n3"], ["n1", "n3"]);
        assert_eq!(selected(UPSTREAM, |_| ()), all, "B3");
        assert_eq!(selected(UPSTREAM, autoscaler), without, "Q8");
        assert_eq!(selected(UPSTREAM, exclude), without, "Q9");
        assert_eq!(selected(UPSTREAM, deleting), without);
        assert_eq!(selected(UPSTREAM, not_ready), all, "Q7");
        assert_eq!(selected(UPSTREAM, other_taint), all, "Q11");
        assert_eq!(selected(UPSTREAM, uninitialized), all);
        assert_eq!(selected(UPSTREAM, |node| node.provider_id = None), all);
        assert_eq!(selected(UPSTREAM, |node| id(node, "b://1")), all);
    }

    #[test]
    fn only_initialised_nodes_of_the_load_balancers_cloud_are_selected() {
        let without = ["n1", "n3"];
        assert_eq!(selected(INITIALIZED, |_| ()), ["n1", "n2", "n3"]);
        assert_eq!(selected(INITIALIZED, uninitialized), without);
        assert_eq!(selected(INITIALIZED, |node| node.provider_id = None), without);
        assert_eq!(selected(INITIALIZED, |node| id(node, "b://1")), without);
        assert_eq!(selected(INITIALIZED, autoscaler), without);
    }

    #[test]
    fn a_leaving_node_drains_for_its_period_if_draining_is_enabled() {
        let leaving: [Edit; 3] = [autoscaler, exclude, deleting];
        for edit in leaving {
            assert_eq!(selected(DRAINING, edit), ["n1", "n2*", "n3"]);
            assert_eq!(selected(UPSTREAM, edit), ["n1", "n3"], "without draining");
            let over =
                targets(&[Arc::new(edited(&[edit]))], DRAINING, None, |_| true, |_| false, &TargetSet::default());
            assert!(over.targets.is_empty());
        }
    }

    #[test]
    fn a_selector_narrows_the_selection_and_never_widens_it() {
        let spot: Edit = |node| label(node, "spot", "");
        assert_eq!(selected_by(UPSTREAM, Some("spot"), spot), ["n2"]);
        assert_eq!(selected_by(UPSTREAM, Some("!spot"), spot), ["n1", "n3"]);
        let both: Edit = |node| {
            label(node, "spot", "");
            exclude(node);
        };
        assert_eq!(selected_by(UPSTREAM, Some("spot"), both), [""; 0]);
    }

    #[test]
    fn a_target_has_the_machine_and_the_addresses_of_its_node() {
        let node = Node { provider_id: ProviderId::new("a://1"), addresses: addresses("I10.0.0.1 Hn1"), ..node("n1") };
        let targets = targets(&[Arc::new(node.clone())], INITIALIZED, None, |_| true, |_| false, &TargetSet::default());
        let expected =
            TargetNode { node: node.name, provider_id: node.provider_id, addresses: node.addresses, draining: false };
        assert_eq!(targets.targets, TargetSet::from(vec![expected]));
    }

    #[test]
    fn every_excluded_node_has_its_reason() {
        let cases: [(&str, Edit); 7] = [
            ("n2 (not initialized)", uninitialized),
            ("n2 (no provider ID)", |node| node.provider_id = None),
            ("n2 (machine of another cloud)", |node| id(node, "b://1")),
            ("n2 (not selected by the Service)", |node| label(node, "spot", "")),
            ("n2 (being deleted)", deleting),
            ("n2 (taint ToBeDeletedByClusterAutoscaler)", autoscaler),
            ("n2 (label node.kubernetes.io/exclude-from-external-load-balancers)", exclude),
        ];
        for (expected, edit) in cases {
            assert_eq!(select(INITIALIZED, Some("!spot"), edit).excluded.to_string(), expected);
        }
        assert!(select(DRAINING, None, exclude).excluded.is_empty(), "it still drains");
    }

    #[test]
    fn above_the_maximum_existing_targets_are_kept_and_then_the_oldest_nodes_selected() {
        let names = |selection: &TargetSelection| {
            selection.targets.iter().map(|target| target.node.to_string()).collect::<Vec<_>>()
        };
        let aged = |name: &str, age: i64, edits: &[Edit]| {
            Arc::new(Node { name: name.into(), created: jiff::Timestamp::from_second(age).ok(), ..edited(edits) })
        };
        let select = |nodes: &[Arc<Node>], before: &TargetSet| {
            targets(nodes, TargetRules { max: Some(2), ..DRAINING }, None, |_| true, |_| true, before)
        };
        let [a, b, c] = [aged("a", 30, &[]), aged("b", 10, &[]), aged("c", 20, &[])];
        let nodes = [a.clone(), b.clone(), c.clone()];
        let first = select(&nodes, &TargetSet::default());
        assert_eq!(names(&first), ["b", "c"], "a new process selects the oldest");
        assert_eq!(first.excluded.to_string(), "a (the load balancer takes at most 2 targets)");
        let kept = select(&nodes, &select(&[a.clone(), c.clone()], &TargetSet::default()).targets);
        assert_eq!((names(&kept), kept.excluded.to_string().starts_with("b (")), (vec!["a".into(), "c".into()], true));
        let all_fit = select(&nodes[..2], &kept.targets);
        assert!(names(&all_fit) == ["a", "b"] && all_fit.excluded.is_empty());
        let leaving = [a, aged("b", 10, &[deleting]), c];
        assert_eq!(names(&select(&leaving, &first.targets)), ["b", "c"], "an existing target drains");
        assert_eq!(names(&select(&leaving, &TargetSet::default())), ["a", "c"], "a leaving Node is not added");
    }

    /// Description, edits of the Node before and after, and whether the targets need an update under two sets of rules.
    type Case = (&'static str, &'static [Edit], &'static [Edit], bool, bool);

    /// Returns a Node with these edits applied.
    fn edited(edits: &[Edit]) -> Node {
        edits.iter().fold(node("n"), |mut node, edit| {
            edit(&mut node);
            node
        })
    }

    fn needs_update(rules: TargetRules, old: &[Edit], new: &[Edit]) -> bool {
        needs_target_update(&edited(old), &edited(new), rules, &BTreeSet::new())
    }

    fn ready(node: &mut Node) {
        node.ready = Ready::True;
    }

    fn not_ready(node: &mut Node) {
        node.ready = Ready::False;
    }

    fn deleting(node: &mut Node) {
        node.deleting = true;
    }

    fn machine(node: &mut Node) {
        id(node, "a://1");
    }

    fn uninitialized(node: &mut Node) {
        node.taints.push(taint(UNINITIALIZED_TAINT, "NoSchedule"));
    }

    fn other_taint(node: &mut Node) {
        node.taints.push(taint("other", "NoExecute"));
    }

    fn other_label(node: &mut Node) {
        label(node, "other", "x");
    }

    #[test]
    fn y01_to_y12_node_changes_that_need_a_target_update() {
        // Columns: upstream; with draining. The Nodes have no provider ID unless an edit sets one.
        let cases: [Case; 26] = [
            ("Y1", &[], &[|node| node.resource_version = "2".into()], false, false),
            ("Y1, pods", &[], &[|node| node.pod_cidrs = vec!["10.0.0.0/24".into()]], false, false),
            ("Y2, added", &[], &[exclude], true, true),
            ("Y2, removed", &[exclude], &[], true, true),
            ("Y2, kept", &[exclude], &[exclude], false, false),
            ("Y2, value false", &[], &[|node| label(node, EXCLUDE_FROM_LOAD_BALANCERS, "false")], false, false),
            ("Y3, taint added", &[], &[other_taint], false, false),
            ("Y3, taint removed", &[other_taint], &[], false, false),
            ("Y3, label added", &[], &[other_label], false, false),
            ("Y3, label removed", &[other_label], &[], false, false),
            ("Y4, F to F", &[not_ready], &[not_ready], false, false),
            ("Y4, F to unset", &[not_ready], &[], false, false),
            ("Y4, unset to F", &[], &[not_ready], false, false),
            ("Y4, unset to unset", &[], &[], false, false),
            ("Y4, T to F", &[ready], &[not_ready], false, false),
            ("Y4, F to T", &[not_ready], &[ready], false, false),
            // Y5: other conditions are not read at all.
            ("Y6", &[machine], &[machine, deleting], false, true),
            ("Y7, gets one", &[], &[machine], true, true),
            ("Y7, another", &[machine], &[|node| id(node, "a://2")], true, true),
            ("Y8, added", &[machine, not_ready], &[machine, not_ready, autoscaler], false, true),
            ("Y8, removed", &[machine, not_ready, autoscaler], &[machine, not_ready], false, true),
            ("Y9", &[not_ready], &[not_ready, exclude], true, true),
            ("Y10", &[not_ready], &[not_ready, machine], true, true),
            ("Y11", &[exclude], &[], true, true),
            ("Y12", &[], &[autoscaler], false, true),
            ("leaving for one more reason", &[autoscaler], &[autoscaler, deleting], false, false),
        ];
        for (case, old, new, upstream, draining) in cases {
            assert_eq!(needs_update(UPSTREAM, old, new), upstream, "{case}");
            assert_eq!(needs_update(INITIALIZED, old, new), upstream, "{case}, initialised");
            assert_eq!(needs_update(DRAINING, old, new), draining, "{case}, draining");
        }
    }

    fn first_address(node: &mut Node) {
        node.addresses = addresses("I10.0.0.1");
    }

    fn other_address(node: &mut Node) {
        node.addresses = addresses("I10.0.0.2");
    }

    #[test]
    fn initialisation_and_new_addresses_need_an_update_if_only_initialised_nodes_are_selected() {
        // Columns: upstream; with initialised Nodes only.
        let cases: [Case; 6] = [
            ("Y3, is initialised", &[machine, uninitialized], &[machine], false, true),
            ("Y3, is uninitialised again", &[machine], &[machine, uninitialized], false, true),
            ("without a provider ID", &[uninitialized], &[], false, false),
            ("Y7, ID and taint at once", &[uninitialized], &[machine], true, true),
            ("moves", &[machine, first_address], &[machine, other_address], false, true),
            (
                "moves before its initialisation",
                &[uninitialized, first_address],
                &[uninitialized, other_address],
                false,
                false,
            ),
        ];
        for (case, old, new, upstream, initialized) in cases {
            assert_eq!(needs_update(UPSTREAM, old, new), upstream, "{case}");
            assert_eq!(needs_update(INITIALIZED, old, new), initialized, "{case}, initialised");
        }
    }

    #[test]
    fn a_label_change_needs_an_update_if_a_selector_uses_the_label() {
        let selected_labels = BTreeSet::from(["spot".to_owned(), "zone".to_owned()]);
        let zone = |zone: &str| Node { labels: [("zone".to_owned(), zone.to_owned())].into(), ..node("n") };
        for rules in ALL_RULES {
            assert!(needs_target_update(&node("n"), &zone("a"), rules, &selected_labels));
            assert!(needs_target_update(&zone("a"), &zone("b"), rules, &selected_labels));
            assert!(needs_target_update(&zone("a"), &node("n"), rules, &selected_labels));
            assert!(!needs_target_update(&zone("a"), &zone("a"), rules, &selected_labels));
            assert!(!needs_target_update(&node("n"), &edited(&[other_label]), rules, &selected_labels));
        }
    }
}
