//! Inputs of a sync: the current Service, its targets, and the state of the cloud.
//!
//! [`TargetSets`] has one target set for each cloud and selection of Nodes, shared by all Services with the same targets. A set is
//! built when it is first needed after a change of the Nodes, and only then: a sync of 200 Services with 5,000 Nodes reads the
//! Nodes once, and refers to one list (docs/adr/0020-shared-targets.md).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::{Cloud, Error};
use bowline_core::annotations::{LoadBalancerSettings, NodeSelector};
use bowline_core::service::{self, TargetRules, TargetSelection};
use bowline_core::{DesiredLoadBalancer, Node, Service, ServiceKey, TargetSet};
use tokio::time::Instant;

use super::apply::stopping;
use super::plan::{self, Execution, Need, Planned};
use super::state::OwnedLoadBalancer;
use super::sync::ServiceSync;
use super::{Shared, Trigger};

/// All criteria for targets, apart from the Nodes.
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
        Selection { cloud: cloud_name, selector, drains: plan::can_drain(cloud), max: rules.max }
    }
}

/// The current target set of each selection.
#[derive(Default)]
pub(crate) struct TargetSets {
    /// Changes with the Nodes.
    generation: AtomicU64,
    sets: Mutex<HashMap<Selection, (u64, TargetSelection)>>,
}

impl TargetSets {
    /// Marks all sets as outdated: a Node has changed, or its drain period is over.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the set of a selection; `build` makes it from its predecessor if that is outdated.
    pub(crate) fn get(
        &self,
        selection: Selection,
        build: impl FnOnce(&TargetSelection) -> TargetSelection,
    ) -> TargetSelection {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the Nodes are: a change that comes while the set is being built makes it outdated.
        let now = self.generation.load(Ordering::SeqCst);
        let (generation, set) =
            sets.entry(selection).or_insert_with(|| (now.wrapping_sub(1), TargetSelection::default()));
        if *generation != now {
            (*generation, *set) = (now, build(set));
        }
        set.clone()
    }

    /// Drops the sets of all other selections.
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
        is_draining: impl Fn(&Node) -> bool,
    ) -> TargetSelection {
        self.get(Selection::new(cloud, settings, rules), |before| {
            plan::select_targets(&nodes(), cloud, rules, settings, is_draining, &before.targets)
        })
    }
}

// ---- the cluster

impl Shared {
    /// Rules for the targets of this Service.
    pub(super) fn target_rules(
        &self,
        cloud: &Cloud,
        service: &Service,
        settings: &LoadBalancerSettings,
    ) -> TargetRules {
        plan::target_rules(cloud, &self.options.cluster, service, settings, self.rules)
    }

    /// Targets of a load balancer in this cloud, as of now (SVC-23).
    pub(super) fn targets(
        &self,
        cloud: &Cloud,
        settings: &LoadBalancerSettings,
        rules: TargetRules,
    ) -> TargetSelection {
        let nodes = || self.context.nodes.all();
        self.target_sets.targets(cloud, settings, rules, nodes, |node| self.node_changes.is_draining(node))
    }

    /// Returns the Services whose targets differ from those of their last sync. One in back-off is retried at its own time, unless it
    /// had no targets: their lack may be why it failed.
    pub(super) fn with_changed_targets(&self) -> Vec<ServiceKey> {
        let mut used = HashSet::new();
        let services = self.context.services.all().into_iter().filter(|service| self.wants_load_balancer(service));
        let changed = services.filter(|service| {
            let key = service.key();
            let Some(before) = self.last_targets(&key) else { return false };
            let targets = self.targets_of(service, &mut used);
            (self.queue.failures(&key) == 0 || before.is_empty()) && before != targets
        });
        let changed = changed.map(|service| service.key()).collect();
        self.target_sets.retain(&used);
        changed
    }

    /// Targets of the last sync of this Service.
    pub(super) fn last_targets(&self, key: &ServiceKey) -> Option<TargetSet> {
        self.states.existing(key, |state| state.targets.clone())?
    }

    /// Returns the targets of a Service, reports the other Nodes, and adds its selection to those in use.
    fn targets_of(&self, service: &Service, used: &mut HashSet<Selection>) -> TargetSet {
        let Some(cloud) = self.routing.cloud(service) else { return TargetSet::default() };
        let Ok(settings) = plan::settings(cloud, service, service::read(service)) else {
            return TargetSet::default();
        };
        let rules = self.target_rules(cloud, service, &settings);
        used.insert(Selection::new(cloud, &settings, rules));
        let choice = self.targets(cloud, &settings, rules);
        // A Node that is excluded changes no target, so that no sync would report it.
        self.report_excluded_nodes(service, &choice.excluded);
        self.states.existing(&service.key(), |state| state.excluded = choice.excluded);
        choice.targets
    }

    /// Trigger of a sync with these targets.
    pub(super) fn trigger(&self, key: &ServiceKey, before: Option<&TargetSet>, targets: &TargetSet) -> Trigger {
        if self.has_open_change(key) {
            Trigger::UserChange
        } else if before.is_some_and(|before| before != targets) {
            Trigger::Nodes
        } else {
            Trigger::Drift
        }
    }

    /// Whether the user has changed the Service since its load balancer was last as desired.
    pub(super) fn has_open_change(&self, key: &ServiceKey) -> bool {
        self.states.existing(key, |state| state.change.is_open()).unwrap_or_default()
    }
}

impl ServiceSync<'_> {
    /// The Service as of now.
    pub(super) fn current(&self) -> Option<Arc<Service>> {
        let stored = self.shared.context.services.get(&self.key.to_string())?;
        Some(self.shared.states.latest(self.key, stored))
    }

    /// Whether the Service with this UID is not deleted.
    pub(super) fn is_stored(&self, service: &Service) -> bool {
        self.current().is_some_and(|now| now.uid == service.uid)
    }

    /// Desired outcome for the Service.
    pub(super) fn need(&self, service: &Service) -> Need<'_> {
        plan::need(service, &self.shared.routing, self.owned(service).is_some())
    }

    /// Load balancer that a sync has begun to create for this Service.
    pub(super) fn owned(&self, service: &Service) -> Option<OwnedLoadBalancer> {
        let owned = self.shared.states.existing(self.key, |state| state.owned.clone())??;
        Some(owned).filter(|owned| owned.service.uid == service.uid)
    }

    // ---- the cloud

    /// Observes the load balancer and plans its change.
    pub(super) async fn observe(
        &self,
        cloud: &Cloud,
        desired: DesiredLoadBalancer,
        execution: &mut Execution,
    ) -> Result<Planned, Error> {
        let requested = (Instant::now(), cloud.layers().locks().now());
        let observed = self.shutdown.or(cloud.layers().observe_load_balancer(&desired)).await;
        let state = observed.ok_or_else(stopping)??;
        self.shared.queue.record_progress();
        self.record_observation(state.as_ref());
        plan::plan(cloud, desired, state, requested, execution)
    }

    /// Observes a load balancer whose plan has failed half-way: the annotations that identify it are written all the same.
    pub(super) async fn observe_annotations(
        &self,
        cloud: &Cloud,
        desired: &DesiredLoadBalancer,
        execution: &mut Execution,
    ) {
        let observed = self.shutdown.or(cloud.layers().observe_load_balancer(desired)).await;
        if let Some(Ok(Some(state))) = observed {
            execution.annotate(desired, &state.annotations);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
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
                TargetSelection { targets: before.targets.updated(nodes(count)), ..TargetSelection::default() }
            })
            .targets
        };
        let shared: Vec<TargetSet> = (0..200).map(|_| get(5_000)).collect();
        let versions: HashSet<u64> = shared.iter().map(TargetSet::version).collect();
        assert_eq!((versions.len(), built.get(), shared[0].len()), (1, 1, 5_000));
        sets.invalidate();
        assert!(get(5_000).is_same(&shared[0]), "nothing has changed in it");
        sets.invalidate();
        let joined: Vec<TargetSet> = (0..200).map(|_| get(5_001)).collect();
        assert!(joined.iter().all(|set| set.is_same(&joined[0])));
        assert_eq!((built.get(), joined[0].changes_from(&shared[0]).added.len()), (3, 1));
    }

    #[test]
    fn every_selection_has_its_own_set_until_no_service_has_it() {
        let sets = TargetSets::default();
        let build = |count| TargetSelection {
            targets: TargetSet::default().updated(nodes(count)),
            ..TargetSelection::default()
        };
        let get = |selector, count| sets.get(selection(selector), |_| build(count)).targets;
        assert_eq!((get(None, 2).len(), get(Some("pool=a"), 1).len()), (2, 1));
        sets.retain(&HashSet::from([selection(None)]));
        assert_eq!((get(None, 5).len(), get(Some("pool=a"), 5).len()), (2, 5));
    }
}
