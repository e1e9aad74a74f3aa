//! What is heard of Services and Nodes, and the work that comes of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bowline_core::service;
use bowline_core::{Node, Service};
use bowline_kube::Change;
use bowline_runtime::Priority;

use super::decide::{self, Need};
use super::{Shared, TARGET_NODES};

impl Shared {
    /// From now on, what is heard makes work.
    pub(super) fn listen(self: &Arc<Shared>) {
        let listener = Arc::downgrade(self);
        self.context.services.listen(move |change| {
            if let Some(shared) = listener.upgrade() {
                shared.heard_service(change);
            }
        });
        let listener = Arc::downgrade(self);
        self.context.nodes.listen(move |change| {
            if let Some(shared) = listener.upgrade() {
                shared.heard_node(change);
            }
        });
    }

    fn heard_service(&self, change: &Change<Service>) {
        self.note_selectors(change);
        match change {
            Change::Added(service) if self.concerns(service) => self.added(service),
            Change::Added(_) => {}
            Change::Updated { old, new } if self.calls_for_work(old, new) => self.changed(new),
            Change::Updated { .. } => {}
            Change::Deleted(service) => self.gone(service),
        }
    }

    /// There may be something to do about it.
    pub(super) fn concerns(&self, service: &Service) -> bool {
        !matches!(decide::need(service, &self.routing, false), Need::Nothing)
    }

    /// It is to have a balancer of ours.
    pub(super) fn wants_balancer(&self, service: &Service) -> bool {
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
        let scope = self.routing.scope();
        let cleanup = |service: &Service| service::needs_cleanup(service, scope);
        let lost = old.has_finalizer() && !new.has_finalizer() && self.wants_balancer(new);
        let going = cleanup(new) && (!cleanup(old) || old.annotations != new.annotations);
        service::needs_update(old, new, scope) || going || lost
    }

    fn changed(&self, service: &Service) {
        let key = service.key();
        self.memory.news(&key);
        self.complaints.forget(&key);
        self.queue.forget(&key);
        self.queue.add(key, Priority::High);
    }

    fn gone(&self, service: &Service) {
        let key = service.key();
        self.complaints.forget(&key);
        self.remarks.forget(&key);
        self.targetless.forget(&key);
        self.ailing.forget(&key);
        self.waiting.forget(&key);
        self.queue.forget(&key);
        if self.memory.gone(&key, &service.uid) {
            self.queue.add(key, Priority::High);
        }
    }

    /// Keeps the labels in mind that Services choose targets by.
    fn note_selectors(&self, change: &Change<Service>) {
        let selects = |service: &Service| service.annotations.contains_key(TARGET_NODES);
        let concerned = match change {
            Change::Added(service) | Change::Deleted(service) => selects(service),
            Change::Updated { old, new } => selects(old) || selects(new),
        };
        if concerned {
            let services = self.context.services.all().into_iter().filter(|service| selects(service));
            let selectors = services.filter_map(|service| service::read(&service).settings.ok()?.target_nodes);
            let labels =
                selectors.flat_map(|selector| selector.keys().map(str::to_owned).collect::<Vec<_>>()).collect();
            *self.selecting.write().unwrap_or_else(PoisonError::into_inner) = labels;
        }
    }

    fn heard_node(&self, change: &Change<Node>) {
        self.crowd.heard(change, self.rules, &self.selecting.read().unwrap_or_else(PoisonError::into_inner));
        if self.starving.load(Ordering::Relaxed) {
            self.crowd.hurry();
        }
    }
}
