//! What is heard of Services and Nodes, and the work that comes of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};
use std::time::Duration;

use bowline_core::annotations::{LoadBalancerSettings, NodeSelector};
use bowline_core::service;
use bowline_core::{Node, Service, ServiceType};
use bowline_kube::{Change, EventType, ObjectRef};
use bowline_runtime::Priority;

use super::Shared;
use super::decide::{self, Need};

impl Shared {
    /// From now on, what is heard makes work.
    pub(super) fn listen(self: &Arc<Shared>) {
        self.context.services.listen_for(self, Shared::heard_service);
        self.context.nodes.listen_for(self, Shared::heard_node);
    }

    fn heard_service(&self, change: &Change<Service>) {
        if let Change::Added(service) | Change::Updated { new: service, .. } = change {
            self.note_selector(service);
        }
        match change {
            Change::Added(service) => self.check_class(service),
            Change::Updated { old, new } if (&old.class, old.kind) != (&new.class, new.kind) => self.check_class(new),
            _ => {}
        }
        match change {
            Change::Added(service) if self.concerns(service) => self.added(service),
            Change::Added(_) => {}
            Change::Updated { old, new } if self.calls_for_work(old, new) => self.changed(new),
            Change::Updated { new, .. } => self.check_status(new),
            Change::Deleted(service) => self.gone(service),
        }
    }

    /// Queues a Service whose status another controller has written. One in back-off has its own time.
    fn check_status(&self, service: &Service) {
        let key = service.key();
        if let Some(delay) = self.statuses.correct_after(service)
            && self.queue.failures(&key) == 0
            && self.wants_load_balancer(service)
        {
            self.queue.add_after(key, delay, Priority::Low);
        }
    }

    /// Warns of a class that no controller serves because of a typing mistake: nothing else would ever happen to the Service.
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

    /// There may be something to do about it.
    pub(super) fn concerns(&self, service: &Service) -> bool {
        !matches!(decide::need(service, &self.routing, false), Need::Nothing)
    }

    /// It is to have a balancer of ours.
    pub(super) fn wants_load_balancer(&self, service: &Service) -> bool {
        matches!(decide::need(service, &self.routing, false), Need::Balancer(_))
    }

    /// A Service that was served before this process began is no news: it is only looked at.
    fn added(&self, service: &Service) {
        let served = service.has_finalizer() && !service.status.ingress.is_empty() && !service.deleting;
        if served {
            self.queue.add(service.key(), Priority::Low);
        } else {
            self.changed(service);
        }
    }

    /// SVC-3, and what upstream sees at the next change only: our finalizer taken away, another policy for a balancer that
    /// is to go.
    fn calls_for_work(&self, old: &Service, new: &Service) -> bool {
        // What we have noted ourselves is no wish of the user's.
        let noted = self.memory.has_annotated(&new.key(), old, new);
        let noted = noted.then(|| Service { annotations: new.annotations.clone(), ..old.clone() });
        let old = noted.as_ref().unwrap_or(old);
        let scope = self.routing.scope();
        let cleanup = |service: &Service| service::needs_cleanup(service, scope);
        let lost = old.has_finalizer() && !new.has_finalizer() && self.wants_load_balancer(new);
        let going = cleanup(new) && (!cleanup(old) || old.annotations != new.annotations);
        service::needs_update(old, new, scope) || going || lost
    }

    fn changed(&self, service: &Service) {
        let key = service.key();
        self.memory.news(&key);
        self.metrics.waiting.add(key.clone(), Duration::ZERO);
        self.complaints.forget(&key);
        self.queue.forget(&key);
        self.queue.add(key, Priority::High);
    }

    fn gone(&self, service: &Service) {
        let key = service.key();
        self.metrics.waiting.remove(&key);
        self.complaints.forget(&key);
        self.remarks.forget(&key);
        self.left_out.forget(&key);
        self.statuses.forget(&key);
        self.paused.forget(&key);
        self.targetless.forget(&key);
        self.ailing.forget(&key);
        self.waiting.forget(&key);
        self.queue.forget(&key);
        if service.is_paused() {
            // Its finalizer was removed by force. The load balancer stays, and `bowline orphans` shows it.
            self.memory.released(&key, &service.uid);
        }
        if self.memory.gone(&key, &service.uid) {
            self.queue.add(key, Priority::High);
        }
    }

    /// Keeps the labels in mind that this Service chooses targets by. Those that it no longer does are forgotten
    /// [some time](Shared::forget_labels).
    fn note_selector(&self, service: &Service) {
        if let Some(selector) = self.selector(service) {
            self.watch_selector(&selector);
        }
    }

    /// From now on, Nodes that gain or lose these labels have moved. What a Service chooses by may be in a cloud's
    /// configuration as well, so what was true when the Service came need not be now.
    pub(super) fn watch_labels(&self, settings: &LoadBalancerSettings) {
        if let Some(selector) = &settings.target_nodes {
            self.watch_selector(selector);
        }
    }

    fn watch_selector(&self, selector: &NodeSelector) {
        let is_known = |known: &BTreeSet<String>| selector.keys().all(|label| known.contains(label));
        if !is_known(&self.selecting.read().unwrap_or_else(PoisonError::into_inner)) {
            self.selecting().extend(selector.keys().map(str::to_owned));
        }
    }

    /// Labels that nobody chooses by any more need not be watched. One that comes meanwhile waits for its turn.
    pub(super) fn forget_labels(&self) {
        let mut selecting = self.selecting();
        let services = self.context.services.all();
        let selectors = services.iter().filter_map(|service| self.selector(service));
        *selecting = selectors.flat_map(|selector| selector.keys().map(str::to_owned).collect::<Vec<_>>()).collect();
    }

    /// How this Service chooses its targets.
    fn selector(&self, service: &Service) -> Option<NodeSelector> {
        let cloud = self.routing.cloud(service)?;
        decide::settings(cloud, service, service::read(service)).ok()?.target_nodes
    }

    fn selecting(&self) -> RwLockWriteGuard<'_, BTreeSet<String>> {
        self.selecting.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard_node(&self, change: &Change<Node>) {
        self.crowd.heard(change, self.rules, &self.selecting.read().unwrap_or_else(PoisonError::into_inner));
        if is_target_change(change) {
            self.target_sets.outdate();
        }
        if self.starving.load(Ordering::Relaxed) {
            self.crowd.hurry();
        }
    }
}

/// Whether the change may make another target of the Node, or none.
fn is_target_change(change: &Change<Node>) -> bool {
    match change {
        Change::Added(_) | Change::Deleted(_) => true,
        Change::Updated { old, new } => service::may_change_targets(old, new),
    }
}
