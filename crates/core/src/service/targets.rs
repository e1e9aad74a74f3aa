//! Which Nodes are behind a balancer, which of those are leaving, and which changes of a Node matter.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::annotations::NodeSelector;
use crate::service::{Exclusion, LeftOut};
use crate::well_known::{AUTOSCALER_TAINT, EXCLUDE_FROM_LOAD_BALANCERS};
use crate::{Node, NodeName, TargetNode, TargetSet, parse_bool};

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
    /// Maximum number of targets of a load balancer, if the cloud has one.
    pub max: Option<usize>,
}

/// Nodes behind a load balancer, and those that are not.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The Nodes behind it.
    pub targets: TargetSet,
    /// The others, with the reason for each.
    pub left_out: Arc<LeftOut>,
}

/// Why a Node is leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
/// * `before` is the set that this one succeeds: entries that have not changed are shared with it, and if none has, it is returned.
///
/// If there are more Nodes than the load balancer takes, those of `before` stay, and then the oldest ones are taken: a new process,
/// which has no `before`, chooses the same ones, and a Node that joins replaces none.
pub fn targets(
    nodes: &[Arc<Node>],
    rules: TargetRules,
    selector: Option<&NodeSelector>,
    is_local: impl Fn(&Node) -> bool,
    drains: impl Fn(&Node) -> bool,
    before: &TargetSet,
) -> Choice {
    let exclusion = |node: &Node| {
        let absent = absence(node, &is_local).filter(|_| rules.nodes == NodeSet::Initialized);
        let is_chosen = || selector.is_none_or(|selector| selector.matches(&node.labels));
        let gone = || leaving(node).filter(|_| !rules.drain || !drains(node)).map(Exclusion::Leaving);
        absent.or_else(|| (!is_chosen()).then_some(Exclusion::NotSelected)).or_else(gone)
    };
    let (mut taken, mut left_out) = (Vec::new(), Vec::new());
    for node in nodes {
        match exclusion(node) {
            None => taken.push(&**node),
            Some(why) => left_out.push((why, node.name.clone())),
        }
    }
    if let Some(max) = rules.max {
        left_out.extend(split_off_excess(&mut taken, max, before));
    }
    let targets = before.updated(taken.into_iter().map(target));
    Choice { targets, left_out: Arc::new(left_out.into_iter().collect()) }
}

/// Why a Node is not known to be a machine of this cloud.
fn absence(node: &Node, is_local: impl Fn(&Node) -> bool) -> Option<Exclusion> {
    if node.is_uninitialized() {
        return Some(Exclusion::Uninitialized);
    }
    if node.provider_id.is_none() {
        return Some(Exclusion::NoProviderId);
    }
    (!is_local(node)).then_some(Exclusion::OtherCloud)
}

/// Cuts these Nodes down to the number that fits, and returns the others.
fn split_off_excess(nodes: &mut Vec<&Node>, max: usize, before: &TargetSet) -> Vec<(Exclusion, NodeName)> {
    if nodes.len() <= max {
        return Vec::new();
    }
    let rank = |node: &Node| (before.get(&node.name).is_none(), leaving(node).is_some(), node.created);
    nodes.sort_by_cached_key(|node| (rank(node), node.name.clone()));
    nodes.split_off(max).into_iter().map(|node| (Exclusion::OverLimit(max), node.name.clone())).collect()
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

/// Whether [`targets`] may choose differently after this change of a Node, or describe the Node differently. Kubelets update
/// their Nodes all the time in ways that change nothing of this.
pub fn may_change_targets(old: &Node, new: &Node) -> bool {
    old.provider_id != new.provider_id
        || old.addresses != new.addresses
        || old.labels != new.labels
        || leaving(old).is_some() != leaving(new).is_some()
        || is_initialized(old) != is_initialized(new)
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
    fn b1_and_b2_the_exclusion_label_excludes_unless_it_says_false() {
        let cases = [
            ("B1", Some(""), true),
            ("B1", Some("foo"), true),
            ("B2", Some("false"), false),
            ("B2", Some("0"), false),
            ("B2", Some("F"), false),
            ("B2", Some("True"), true),
            ("B1, no boolean of Go", Some("fALSE"), true),
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
    fn a_node_leaves_for_the_first_reason_there_is() {
        assert_eq!(leaving(&after(&[deleting])), Some(Leaving::Deleting));
        assert_eq!(leaving(&after(&[autoscaler])), Some(Leaving::Autoscaler));
        let effect = after(&[|node| node.taints.push(taint(AUTOSCALER_TAINT, "PreferNoSchedule"))]);
        assert_eq!(leaving(&effect), Some(Leaving::Autoscaler), "by key alone");
        assert_eq!(leaving(&after(&[exclude, autoscaler, deleting])), Some(Leaving::Deleting));
    }

    /// Three Nodes with machines, the second of them edited; and who of them becomes a target, `*` if draining.
    fn chosen(rules: TargetRules, edit: Edit) -> Vec<String> {
        chosen_by(rules, None, edit)
    }

    fn chosen_by(rules: TargetRules, selector: Option<&str>, edit: Edit) -> Vec<String> {
        let targets = choice(rules, selector, edit).targets;
        targets.iter().map(|target| format!("{}{}", target.node, if target.draining { "*" } else { "" })).collect()
    }

    fn choice(rules: TargetRules, selector: Option<&str>, edit: Edit) -> Choice {
        let mut nodes = ["n3", "n2", "n1"].map(|name| Node { provider_id: ProviderId::new("a://1"), ..node(name) });
        edit(&mut nodes[1]);
        let selector = selector.map(|text| NodeSelector::parse(text).unwrap());
        let is_local = |node: &Node| node.provider_id.as_ref().is_some_and(|id| id.prefix() == Some("a"));
        targets(&nodes.map(Arc::new), rules, selector.as_ref(), is_local, |_| true, &TargetSet::default())
    }

    #[test]
    fn the_go_managers_take_all_nodes_that_are_not_leaving_by_name() {
        let (all, without) = (["n1", "n2", "n3"], ["n1", "n3"]);
        assert_eq!(chosen(UPSTREAM, |_| ()), all, "B3");
        assert_eq!(chosen(UPSTREAM, autoscaler), without, "Q8");
        assert_eq!(chosen(UPSTREAM, exclude), without, "Q9");
        assert_eq!(chosen(UPSTREAM, deleting), without);
        assert_eq!(chosen(UPSTREAM, not_ready), all, "Q7");
        assert_eq!(chosen(UPSTREAM, other_taint), all, "Q11");
        assert_eq!(chosen(UPSTREAM, uninitialized), all);
        assert_eq!(chosen(UPSTREAM, |node| node.provider_id = None), all);
        assert_eq!(chosen(UPSTREAM, |node| id(node, "b://1")), all);
    }

    #[test]
    fn only_initialised_nodes_of_the_balancers_cloud_are_taken_if_so_set() {
        let without = ["n1", "n3"];
        assert_eq!(chosen(INITIALIZED, |_| ()), ["n1", "n2", "n3"]);
        assert_eq!(chosen(INITIALIZED, uninitialized), without);
        assert_eq!(chosen(INITIALIZED, |node| node.provider_id = None), without);
        assert_eq!(chosen(INITIALIZED, |node| id(node, "b://1")), without);
        assert_eq!(chosen(INITIALIZED, autoscaler), without);
    }

    #[test]
    fn a_leaving_node_drains_where_that_is_set_and_as_long_as_it_may() {
        let leaving: [Edit; 3] = [autoscaler, exclude, deleting];
        for edit in leaving {
            assert_eq!(chosen(DRAINING, edit), ["n1", "n2*", "n3"]);
            assert_eq!(chosen(UPSTREAM, edit), ["n1", "n3"], "whatever the clock says");
            let over = targets(&[Arc::new(after(&[edit]))], DRAINING, None, |_| true, |_| false, &TargetSet::default());
            assert!(over.targets.is_empty());
        }
    }

    #[test]
    fn a_selector_narrows_the_choice_and_never_widens_it() {
        let spot: Edit = |node| label(node, "spot", "");
        assert_eq!(chosen_by(UPSTREAM, Some("spot"), spot), ["n2"]);
        assert_eq!(chosen_by(UPSTREAM, Some("!spot"), spot), ["n1", "n3"]);
        let both: Edit = |node| {
            label(node, "spot", "");
            exclude(node);
        };
        assert_eq!(chosen_by(UPSTREAM, Some("spot"), both), [""; 0]);
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
    fn every_node_that_is_left_out_has_its_reason() {
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
            assert_eq!(choice(INITIALIZED, Some("!spot"), edit).left_out.to_string(), expected);
        }
        assert!(choice(DRAINING, None, exclude).left_out.is_empty(), "it still drains");
    }

    #[test]
    fn of_more_nodes_than_fit_those_already_there_stay_then_the_oldest_are_taken() {
        let names = |choice: &Choice| choice.targets.iter().map(|target| target.node.to_string()).collect::<Vec<_>>();
        let aged = |name: &str, age: i64, edits: &[Edit]| {
            Arc::new(Node { name: name.into(), created: jiff::Timestamp::from_second(age).ok(), ..after(edits) })
        };
        let choose = |nodes: &[Arc<Node>], before: &TargetSet| {
            targets(nodes, TargetRules { max: Some(2), ..DRAINING }, None, |_| true, |_| true, before)
        };
        let [a, b, c] = [aged("a", 30, &[]), aged("b", 10, &[]), aged("c", 20, &[])];
        let nodes = [a.clone(), b.clone(), c.clone()];
        let first = choose(&nodes, &TargetSet::default());
        assert_eq!(names(&first), ["b", "c"], "a new process takes the oldest");
        assert_eq!(first.left_out.to_string(), "a (the load balancer takes at most 2 targets)");
        let kept = choose(&nodes, &choose(&[a.clone(), c.clone()], &TargetSet::default()).targets);
        assert_eq!((names(&kept), kept.left_out.to_string().starts_with("b (")), (vec!["a".into(), "c".into()], true));
        let all_fit = choose(&nodes[..2], &kept.targets);
        assert!(names(&all_fit) == ["a", "b"] && all_fit.left_out.is_empty());
        let leaving = [a, aged("b", 10, &[deleting]), c];
        assert_eq!(names(&choose(&leaving, &first.targets)), ["b", "c"], "it drains where it is");
        assert_eq!(names(&choose(&leaving, &TargetSet::default())), ["a", "c"], "it is not taken in");
    }

    /// What happens, the Node before and after, and whether that matters under two sets of rules.
    type Case = (&'static str, &'static [Edit], &'static [Edit], bool, bool);

    /// A node after all these edits.
    fn after(edits: &[Edit]) -> Node {
        edits.iter().fold(node("n"), |mut node, edit| {
            edit(&mut node);
            node
        })
    }

    fn is_triggered(rules: TargetRules, old: &[Edit], new: &[Edit]) -> bool {
        triggers(&after(old), &after(new), rules, &BTreeSet::new())
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
    fn y01_to_y12_whether_a_change_of_a_node_matters() {
        // The columns: what the Go managers do; with draining. The Nodes have no provider ID unless they get one.
        let cases: [Case; 26] = [
            ("Y1", &[], &[|node| node.resource_version = "2".into()], false, false),
            ("Y1, pods", &[], &[|node| node.pod_cidrs = vec!["10.0.0.0/24".into()]], false, false),
            ("Y2, added", &[], &[exclude], true, true),
            ("Y2, removed", &[exclude], &[], true, true),
            ("Y2, kept", &[exclude], &[exclude], false, false),
            ("Y2, says false", &[], &[|node| label(node, EXCLUDE_FROM_LOAD_BALANCERS, "false")], false, false),
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
            // Y5: other conditions are not even read.
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
            assert_eq!(is_triggered(UPSTREAM, old, new), upstream, "{case}");
            assert_eq!(is_triggered(INITIALIZED, old, new), upstream, "{case}, initialised");
            assert_eq!(is_triggered(DRAINING, old, new), draining, "{case}, draining");
        }
    }

    fn first_address(node: &mut Node) {
        node.addresses = addresses("I10.0.0.1");
    }

    fn other_address(node: &mut Node) {
        node.addresses = addresses("I10.0.0.2");
    }

    #[test]
    fn becoming_a_target_and_moving_matter_where_only_initialised_nodes_are_taken() {
        // The columns: what the Go managers do; where only initialised Nodes are taken.
        let cases: [Case; 6] = [
            ("Y3, is initialised", &[machine, uninitialized], &[machine], false, true),
            ("Y3, starts anew", &[machine], &[machine, uninitialized], false, true),
            ("nobody knows the machine", &[uninitialized], &[], false, false),
            ("Y7, ID and taint at once", &[uninitialized], &[machine], true, true),
            ("moves", &[machine, first_address], &[machine, other_address], false, true),
            (
                "moves before anybody needs it",
                &[uninitialized, first_address],
                &[uninitialized, other_address],
                false,
                false,
            ),
        ];
        for (case, old, new, upstream, initialized) in cases {
            assert_eq!(is_triggered(UPSTREAM, old, new), upstream, "{case}");
            assert_eq!(is_triggered(INITIALIZED, old, new), initialized, "{case}, initialised");
        }
    }

    #[test]
    fn a_label_matters_if_a_selector_looks_at_it() {
        let looked_at = BTreeSet::from(["spot".to_owned(), "zone".to_owned()]);
        let zone = |zone: &str| Node { labels: [("zone".to_owned(), zone.to_owned())].into(), ..node("n") };
        for rules in ALL_RULES {
            assert!(triggers(&node("n"), &zone("a"), rules, &looked_at));
            assert!(triggers(&zone("a"), &zone("b"), rules, &looked_at));
            assert!(triggers(&zone("a"), &node("n"), rules, &looked_at));
            assert!(!triggers(&zone("a"), &zone("a"), rules, &looked_at));
            assert!(!triggers(&node("n"), &after(&[other_label]), rules, &looked_at));
        }
    }
}
