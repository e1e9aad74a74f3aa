//! What is heard of Services and Nodes, and the work that comes of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use bowline_core::annotations::TARGET_NODES;
use bowline_core::service;
use bowline_core::{Node, Service};
use bowline_kube::Change;
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
        let may_select_less = match change {
            // At the start all of them come like this, one after the other.
            Change::Added(service) => return self.selecting().extend(labels_chosen_by(service)),
            Change::Updated { old, new } => old.annotations != new.annotations && (selects(old) || selects(new)),
            Change::Deleted(service) => selects(service),
        };
        if may_select_less {
            let services = self.context.services.all();
            *self.selecting() = services.iter().flat_map(|service| labels_chosen_by(service)).collect();
        }
    }

    fn selecting(&self) -> RwLockWriteGuard<'_, BTreeSet<String>> {
        self.selecting.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard_node(&self, change: &Change<Node>) {
        self.crowd.heard(change, self.rules, &self.selecting.read().unwrap_or_else(PoisonError::into_inner));
        if self.starving.load(Ordering::Relaxed) {
            self.crowd.hurry();
        }
    }
}

/// The labels of Nodes that this Service chooses its targets by.
fn labels_chosen_by(service: &Service) -> Vec<String> {
    if !service.annotations.contains_key(TARGET_NODES) {
        return Vec::new();
    }
    let selector = service::read(service).settings.ok().and_then(|settings| settings.target_nodes);
    selector.iter().flat_map(|selector| selector.keys()).map(str::to_owned).collect()
}
