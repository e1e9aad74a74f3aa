//! Target sets, one for each cloud and selection, shared by all Services that have the same targets.
//!
//! A set is built when it is first needed after a change of the Nodes, and only then: a sync of 200 Services with 5,000 Nodes
//! reads the Nodes once, and refers to one list.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::Cloud;
use bowline_core::Node;
use bowline_core::annotations::{LoadBalancerSettings, NodeSelector};
use bowline_core::service::{Choice, TargetRules};

use super::decide;

/// Everything that decides which Nodes are targets, apart from the Nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Selection {
    cloud: Arc<str>,
    selector: Option<NodeSelector>,
    drains: bool,
    max: Option<usize>,
}

impl Selection {
    /// Selection of a Service with these settings and rules.
    pub(crate) fn new(cloud: &Cloud, settings: &LoadBalancerSettings, rules: TargetRules) -> Selection {
        let (cloud_name, selector) = (cloud.name().clone(), settings.target_nodes.clone());
        Selection { cloud: cloud_name, selector, drains: decide::can_drain(cloud), max: rules.max }
    }
}

/// The current set of each selection.
#[derive(Default)]
pub(crate) struct TargetSets {
    /// Changes with the Nodes.
    generation: AtomicU64,
    sets: Mutex<HashMap<Selection, (u64, Choice)>>,
}

impl TargetSets {
    /// Marks all sets as outdated: a Node has changed, or its drain period is over.
    pub(crate) fn outdate(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the set of a selection; `build` makes it from its predecessor if that is outdated.
    pub(crate) fn get(&self, selection: Selection, build: impl FnOnce(&Choice) -> Choice) -> Choice {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the Nodes are: a change that comes while the set is being built outdates it.
        let now = self.generation.load(Ordering::SeqCst);
        let (generation, set) = sets.entry(selection).or_insert_with(|| (now.wrapping_sub(1), Choice::default()));
        if *generation != now {
            (*generation, *set) = (now, build(set));
        }
        set.clone()
    }

    /// Drops the sets of other selections than these.
    pub(crate) fn retain(&self, used: &HashSet<Selection>) {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner).retain(|selection, _| used.contains(selection));
    }

    /// Returns the targets among `nodes` for a Service with these settings. `nodes` is called only if Nodes have changed.
    pub(crate) fn targets(
        &self,
        cloud: &Cloud,
        settings: &LoadBalancerSettings,
        rules: TargetRules,
        nodes: impl FnOnce() -> Vec<Arc<Node>>,
        has_time: impl Fn(&Node) -> bool,
    ) -> Choice {
        self.get(Selection::new(cloud, settings, rules), |before| {
            decide::targets(&nodes(), cloud, rules, settings, has_time, &before.targets)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use bowline_core::TargetSet;
    use bowline_core::testing::target;

    fn selection(selector: Option<&str>) -> Selection {
        let selector = selector.and_then(|text| NodeSelector::parse(text).ok());
        Selection { cloud: "a".into(), selector, drains: true, max: None }
    }

    fn nodes(count: u32) -> impl Iterator<Item = bowline_core::TargetNode> {
        (0..count).map(|number| target(&format!("n{number:05}")))
    }

    #[test]
    fn two_hundred_services_share_one_set_that_is_built_once() {
        let (sets, built) = (TargetSets::default(), Cell::new(0));
        let get = |count| {
            sets.get(selection(None), |before| {
                built.set(built.get() + 1);
                Choice { targets: before.targets.updated(nodes(count)), ..Choice::default() }
            })
            .targets
        };
        let shared: Vec<TargetSet> = (0..200).map(|_| get(5_000)).collect();
        let versions: HashSet<u64> = shared.iter().map(TargetSet::version).collect();
        assert_eq!((versions.len(), built.get(), shared[0].len()), (1, 1, 5_000));
        sets.outdate();
        assert!(get(5_000).is_same(&shared[0]), "nothing has changed in it");
        sets.outdate();
        let joined: Vec<TargetSet> = (0..200).map(|_| get(5_001)).collect();
        assert!(joined.iter().all(|set| set.is_same(&joined[0])));
        assert_eq!((built.get(), joined[0].changes_from(&shared[0]).added.len()), (3, 1));
    }

    #[test]
    fn every_selection_has_its_own_set_until_no_service_has_it() {
        let sets = TargetSets::default();
        let build = |count| Choice { targets: TargetSet::default().updated(nodes(count)), ..Choice::default() };
        let get = |selector, count| sets.get(selection(selector), |_| build(count)).targets;
        assert_eq!((get(None, 2).len(), get(Some("pool=a"), 1).len()), (2, 1));
        sets.retain(&HashSet::from([selection(None)]));
        assert_eq!((get(None, 5).len(), get(Some("pool=a"), 5).len()), (2, 5));
    }
}
