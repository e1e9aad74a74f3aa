//! The balancers that Nodes move when they come and go, and how long it takes until all of them know.

use std::collections::{BTreeSet, HashSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bowline_cloud::Cloud;
use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::service::{Choice, TargetRules};
use bowline_core::{Service, ServiceKey, TargetSet, service};
use bowline_runtime::Priority;
use tokio::time::Instant;

use super::target_sets::Selection;
use super::{NAME, Shared, decide};

/// Balancers that have not heard of the Nodes' last movement.
pub(super) struct NodeSync {
    began: Instant,
    open: BTreeSet<ServiceKey>,
}

impl Shared {
    /// Queues the balancers whose targets differ, whenever Nodes have come or gone and it is quiet again.
    pub(super) async fn follow_nodes(&self) {
        loop {
            self.crowd.settled().await;
            // A Node whose drain period is over is no target any more.
            self.target_sets.outdate();
            self.starving.store(false, Ordering::Relaxed);
            self.forget_labels();
            let moved = self.moved();
            tracing::debug!(controller = NAME, balancers = moved.len(), "nodes have come or gone");
            self.node_sync_begins(&moved);
            moved.into_iter().for_each(|key| self.queue.add(key, Priority::Low));
        }
    }

    /// The Services that were in a pass with other targets than they would have now. One in back-off has its own time.
    fn moved(&self) -> Vec<ServiceKey> {
        let mut used = HashSet::new();
        let wanting = self.context.services.all().into_iter().filter(|service| self.wants_load_balancer(service));
        let moved = wanting.filter(|service| {
            let key = service.key();
            let Some(tried) = self.memory.tried(&key) else { return false };
            let targets = self.targets_of(service, &mut used);
            self.queue.failures(&key) == 0 && tried != targets
        });
        let moved = moved.map(|service| service.key()).collect();
        self.target_sets.retain(&used);
        moved
    }

    /// Returns the targets of a Service, reports the other Nodes, and adds its selection to those in use.
    fn targets_of(&self, service: &Service, used: &mut HashSet<Selection>) -> TargetSet {
        let Some(cloud) = self.routing.cloud(service) else { return TargetSet::default() };
        let Ok(settings) = decide::settings(cloud, service, service::read(service)) else {
            return TargetSet::default();
        };
        let rules = self.rules_of(cloud, service, &settings);
        used.insert(Selection::new(cloud, &settings, rules));
        let choice = self.targets(cloud, &settings, rules);
        // A Node that is left out changes no target, so that no pass would report it.
        self.report_left_out(service, &choice.left_out);
        choice.targets
    }

    /// Rules for the targets of this Service.
    pub(super) fn rules_of(&self, cloud: &Cloud, service: &Service, settings: &LoadBalancerSettings) -> TargetRules {
        decide::target_rules(cloud, &self.options.cluster, service, settings, self.rules)
    }

    /// The Nodes behind a balancer in this cloud, now (SVC-23).
    pub(super) fn targets(&self, cloud: &Cloud, settings: &LoadBalancerSettings, rules: TargetRules) -> Choice {
        let nodes = || self.context.nodes.all();
        self.target_sets.targets(cloud, settings, rules, nodes, |node| self.crowd.drains(node))
    }

    fn node_sync_begins(&self, moved: &[ServiceKey]) {
        if moved.is_empty() {
            return;
        }
        let mut sync = self.node_sync.lock().unwrap_or_else(PoisonError::into_inner);
        let sync = sync.get_or_insert_with(|| NodeSync { began: Instant::now(), open: BTreeSet::new() });
        sync.open.extend(moved.iter().cloned());
    }

    /// This balancer has heard of the Nodes' last movement, or failed to (SVC-27).
    pub(super) fn node_sync_goes_on(&self, key: &ServiceKey) {
        let mut sync = self.node_sync.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = sync.as_mut()
            && under_way.open.remove(key)
            && under_way.open.is_empty()
        {
            self.metrics.node_sync_latency.observe(under_way.began.elapsed().as_secs_f64());
            *sync = None;
        }
    }
}
