//! Triggers of syncs: event handlers for Services and Nodes, the debounce of Node changes, the periodic refresh, and changes of the
//! configuration of a cloud.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockWriteGuard};
use std::time::Duration;

use bowline_core::annotations::{LoadBalancerSettings, NodeSelector};
use bowline_core::service::{self, NodeChanges, TargetRules, UpdateDue};
use bowline_core::{Node, Service, ServiceKey, ServiceType};
use bowline_kube::{Change, EventType, ObjectRef};
use bowline_runtime::Priority;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::{self, Need};
use super::state::OwnedLoadBalancer;
use super::{NAME, REVISION_PERIOD, Shared};

// ---- Services

impl Shared {
    /// Registers the event handlers.
    pub(super) fn watch(self: &Arc<Shared>) {
        self.context.services.listen_for(self, Shared::on_service_event);
        self.context.nodes.listen_for(self, Shared::on_node_event);
    }

    fn on_service_event(&self, change: &Change<Service>) {
        if let Change::Added(service) | Change::Updated { new: service, .. } = change
            && let Some(selector) = self.selector(service)
        {
            self.watch_selector(&selector);
        }
        match change {
            Change::Added(service) => self.check_class(service),
            Change::Updated { old, new } if (&old.class, old.kind) != (&new.class, new.kind) => self.check_class(new),
            _ => {}
        }
        match change {
            Change::Added(service) if self.is_relevant(service) => self.on_added(service),
            Change::Added(_) => {}
            Change::Updated { old, new } if self.needs_sync(old, new) => self.on_user_change(new),
            Change::Updated { new, .. } => self.check_status(new),
            Change::Deleted(service) => self.on_deleted(service),
        }
    }

    /// Requeues a Service whose status another controller has written. One in back-off is retried at its own time.
    fn check_status(&self, service: &Service) {
        let (key, now) = (service.key(), Instant::now().into_std());
        let delay = self.states.existing(&key, |state| state.writes.correct_status_after(service, now));
        if let Some(delay) = delay.flatten()
            && self.queue.failures(&key) == 0
            && self.wants_load_balancer(service)
        {
            self.queue.add_after(key, delay, Priority::Low);
        }
    }

    /// Warns of a misspelt class: no controller serves it, so that no other report would ever come.
    fn check_class(&self, service: &Service) {
        let is_load_balancer = service.kind == ServiceType::LoadBalancer && !service.deleting;
        let Some(meant) = self.routing.misspelt_class(service).filter(|_| is_load_balancer) else { return };
        let class = service.class.as_deref().unwrap_or_default();
        let message = format!(
            "No configured cloud has the load balancer class {class}. Did you mean bowline.dev/{meant}? The class of a Service cannot be \
             changed: delete the Service and create it again."
        );
        self.events.emit(&ObjectRef::service(service), EventType::Warning, "UnknownLoadBalancerClass", message);
    }

    /// Whether the Service may need a sync.
    pub(super) fn is_relevant(&self, service: &Service) -> bool {
        !matches!(plan::need(service, &self.routing, false), Need::Nothing)
    }

    /// Whether the Service is to have a load balancer of ours.
    pub(super) fn wants_load_balancer(&self, service: &Service) -> bool {
        matches!(plan::need(service, &self.routing, false), Need::LoadBalancer(_))
    }

    /// A Service that was ensured before this process began is no change by the user: it is synced with low priority.
    fn on_added(&self, service: &Service) {
        let was_ensured = service.has_finalizer() && !service.status.ingress.is_empty() && !service.deleting;
        if was_ensured {
            self.queue.add(service.key(), Priority::Low);
        } else {
            self.on_user_change(service);
        }
    }

    /// SVC-3, and two changes that upstream notices with the next change only: our finalizer was removed, and the policy of a load
    /// balancer that is to be deleted has changed.
    fn needs_sync(&self, old: &Service, new: &Service) -> bool {
        // Annotations that this controller wrote are no change by the user.
        let is_own = self.states.existing(&new.key(), |state| state.writes.is_own_annotation(old, new));
        let is_own = is_own.unwrap_or_default();
        let annotated = is_own.then(|| Service { annotations: new.annotations.clone(), ..old.clone() });
        let old = annotated.as_ref().unwrap_or(old);
        let scope = self.routing.scope();
        let cleanup = |service: &Service| service::needs_cleanup(service, scope);
        let lost_finalizer = old.has_finalizer() && !new.has_finalizer() && self.wants_load_balancer(new);
        let is_deleted = cleanup(new) && (!cleanup(old) || old.annotations != new.annotations);
        service::needs_update(old, new, scope) || is_deleted || lost_finalizer
    }

    fn on_user_change(&self, service: &Service) {
        let key = service.key();
        self.states.update(&key, |state| {
            state.change.begin();
            state.reported.failure.clear();
        });
        self.metrics.waiting.add(key.clone(), Duration::ZERO);
        self.queue.forget(&key);
        self.queue.add(key, Priority::High);
    }

    fn on_deleted(&self, service: &Service) {
        let key = service.key();
        self.metrics.waiting.remove(&key);
        self.queue.forget(&key);
        // Its finalizer was removed by force. The load balancer stays, and `bowline orphans` shows it.
        let stays = |owned: &OwnedLoadBalancer| service.is_paused() || plan::is_unmanaged(&owned.cloud, service);
        self.states.existing(&key, |state| {
            if state.owned.as_ref().is_some_and(stays) {
                state.load_balancer_deleted(&service.uid);
            }
        });
        if self.states.service_deleted(&key, &service.uid) {
            self.queue.add(key, Priority::High);
        }
    }
}

// ---- labels in node selectors

impl Shared {
    /// Watches the labels of Nodes that these settings select targets by. The configuration of a cloud may select by labels as
    /// well, so that those of the last event need not be complete.
    pub(super) fn watch_labels(&self, settings: &LoadBalancerSettings) {
        if let Some(selector) = &settings.target_nodes {
            self.watch_selector(selector);
        }
    }

    fn watch_selector(&self, selector: &NodeSelector) {
        let is_known = |known: &BTreeSet<String>| selector.keys().all(|label| known.contains(label));
        if !is_known(&self.selector_labels.read().unwrap_or_else(PoisonError::into_inner)) {
            self.selector_labels().extend(selector.keys().map(str::to_owned));
        }
    }

    /// Drops the labels that no Service selects by any more. An event meanwhile waits for the lock.
    fn drop_unused_labels(&self) {
        let mut labels = self.selector_labels();
        let services = self.context.services.all();
        let selectors = services.iter().filter_map(|service| self.selector(service));
        *labels = selectors.flat_map(|selector| selector.keys().map(str::to_owned).collect::<Vec<_>>()).collect();
    }

    fn selector(&self, service: &Service) -> Option<NodeSelector> {
        let cloud = self.routing.cloud(service)?;
        plan::settings(cloud, service, service::read(service)).ok()?.target_nodes
    }

    fn selector_labels(&self) -> RwLockWriteGuard<'_, BTreeSet<String>> {
        self.selector_labels.write().unwrap_or_else(PoisonError::into_inner)
    }
}

// ---- Nodes

/// [`NodeChanges`] with the time and a wake-up.
pub(super) struct NodeDebounce {
    changes: Mutex<NodeChanges>,
    changed: Notify,
}

impl NodeDebounce {
    pub(super) fn new(debounce: Duration, drain: Duration) -> NodeDebounce {
        NodeDebounce { changes: Mutex::new(NodeChanges::new(debounce, drain)), changed: Notify::new() }
    }

    /// Whether the Node is leaving and its drain period is not over.
    pub(super) fn is_draining(&self, node: &Node) -> bool {
        self.lock().is_draining(node, Instant::now().into_std())
    }

    fn on_change(&self, change: &Change<Node>, rules: TargetRules, labels: &BTreeSet<String>) {
        let (old, new) = match change {
            Change::Added(new) => (None, Some(&**new)),
            Change::Updated { old, new } => (Some(&**old), Some(&**new)),
            Change::Deleted(old) => (Some(&**old), None),
        };
        if self.lock().on_change((old, new), rules, labels, Instant::now().into_std()) {
            self.changed.notify_one();
        }
    }

    fn hurry(&self) {
        if self.lock().expedite(Instant::now().into_std()) {
            self.changed.notify_one();
        }
    }

    /// Waits until the load balancers are to be updated.
    async fn due(&self) {
        loop {
            // Created before the poll, so that a change between the poll and the wait is noticed.
            let changed = self.changed.notified();
            let due = self.lock().poll(Instant::now().into_std());
            match due {
                UpdateDue::Now => return,
                UpdateDue::At(at) => drop(tokio::time::timeout_at(at.into(), changed).await),
                UpdateDue::AfterChange => changed.await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, NodeChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn on_node_event(&self, change: &Change<Node>) {
        let labels = self.selector_labels.read().unwrap_or_else(PoisonError::into_inner);
        self.node_changes.on_change(change, self.rules, &labels);
        drop(labels);
        if may_change_targets(change) {
            self.target_sets.invalidate();
        }
        if self.lacks_targets.load(Ordering::Relaxed) {
            self.node_changes.hurry();
        }
    }

    /// Queues the Services whose targets differ, whenever Nodes have joined or left and the debounce period is over.
    pub(super) async fn follow_nodes(&self) {
        loop {
            self.node_changes.due().await;
            // A Node whose drain period is over is no target any more.
            self.target_sets.invalidate();
            self.lacks_targets.store(false, Ordering::Relaxed);
            self.drop_unused_labels();
            let changed = self.with_changed_targets();
            tracing::debug!(controller = NAME, balancers = changed.len(), "nodes have come or gone");
            self.states.begin_node_sync(&changed);
            changed.into_iter().for_each(|key| self.queue.add(key, Priority::Low));
        }
    }
}

/// Whether the change of a Node may change a target.
fn may_change_targets(change: &Change<Node>) -> bool {
    match change {
        Change::Added(_) | Change::Deleted(_) => true,
        Change::Updated { old, new } => service::may_change_targets(old, new),
    }
}

// ---- time and configuration

impl Shared {
    /// Syncs all Services periodically. Those that wait for a change are among them: the cause may be in the cloud, which sends no
    /// events.
    pub(super) async fn refresh(&self) {
        if self.options.refresh.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.options.refresh).await;
            // One in back-off is retried at its own time.
            let keys = self.relevant_keys().filter(|key| self.queue.failures(key) == 0);
            keys.for_each(|key| self.queue.add(key, Priority::Low));
        }
    }

    /// Keys of all Services that may need a sync, and of deleted ones that have left a load balancer.
    fn relevant_keys(&self) -> impl Iterator<Item = ServiceKey> {
        let services = self.context.services.all().into_iter().filter(|service| self.is_relevant(service));
        services.map(|service| service.key()).chain(self.states.with_orphans())
    }

    /// Syncs all Services when the configuration of a cloud changes, those in back-off as well.
    pub(super) async fn follow_configuration(&self) {
        let revisions = || self.context.clouds.iter().map(|cloud| cloud.layers().revision()).collect::<Vec<_>>();
        let mut known = revisions();
        loop {
            tokio::time::sleep(REVISION_PERIOD).await;
            let now = revisions();
            if std::mem::replace(&mut known, now.clone()) != now {
                for key in self.relevant_keys() {
                    self.queue.forget(&key);
                    self.queue.add(key, Priority::Low);
                }
            }
        }
    }
}
