//! Who works on which balancer: two Services that share one, or want to adopt the same one, take turns.
//!
//! The queue sees to it that one Service is never in two passes at once; this is about two Services and one balancer.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_core::ServiceKey;
use bowline_core::annotations::LoadBalancerSettings;
use bowline_runtime::{Priority, Queue};

/// A balancer that more than one Service may be about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SharedBalancer {
    cloud: String,
    name: String,
}

/// The balancers in work, and the Services that wait for each.
#[derive(Default)]
pub(super) struct Balancers(Mutex<HashMap<SharedBalancer, BTreeSet<ServiceKey>>>);

/// The right to work on a balancer, until it is dropped; then those that have waited for it are queued.
pub(super) struct Turn<'a> {
    balancers: &'a Balancers,
    balancer: SharedBalancer,
    queue: &'a Queue<ServiceKey>,
}

impl SharedBalancer {
    /// The balancer that these settings name beside the Service's own, if they name one.
    pub(super) fn of(cloud: &str, service: &ServiceKey, settings: &LoadBalancerSettings) -> Option<SharedBalancer> {
        // Groups are the namespace's own; what is adopted has one name for all.
        let group = settings.share_group.as_ref().map(|group| format!("group {}/{group}", service.namespace));
        let name = group.or_else(|| settings.adopt.as_ref().map(|name| format!("balancer {name}")))?;
        Some(SharedBalancer { cloud: cloud.to_owned(), name })
    }
}

impl Balancers {
    /// The right to work on this balancer; `None` if somebody else has it: the Service is queued when that one is done.
    pub(super) fn turn<'a>(
        &'a self,
        balancer: SharedBalancer,
        service: &ServiceKey,
        queue: &'a Queue<ServiceKey>,
    ) -> Option<Turn<'a>> {
        match self.lock().entry(balancer.clone()) {
            Entry::Vacant(free) => drop(free.insert(BTreeSet::new())),
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().insert(service.clone());
                return None;
            }
        }
        Some(Turn { balancers: self, balancer, queue })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SharedBalancer, BTreeSet<ServiceKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = self.balancers.lock().remove(&self.balancer);
        waiting.into_iter().flatten().for_each(|service| self.queue.add(service, Priority::High));
    }
}
