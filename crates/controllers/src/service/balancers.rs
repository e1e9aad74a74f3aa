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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use bowline_runtime::{Backoff, QueueMetrics};

    fn key(text: &str) -> ServiceKey {
        text.parse().unwrap_or_else(|_| ServiceKey { namespace: "".into(), name: text.into() })
    }

    fn group(service: &str, group: &str) -> Option<SharedBalancer> {
        let settings = LoadBalancerSettings { share_group: Some(group.to_owned()), ..LoadBalancerSettings::default() };
        SharedBalancer::of("cloud", &key(service), &settings)
    }

    #[tokio::test]
    async fn a_balancer_is_in_one_pass_at_a_time_and_those_who_waited_are_queued() -> Result<(), prometheus::Error> {
        let metrics = QueueMetrics::register(&prometheus::Registry::new())?;
        let backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(1) };
        let (queue, balancers) = (Queue::new("test", backoff, &metrics), Balancers::default());
        let Some(front) = group("web/a", "front") else { unreachable!("it names a group") };
        let turn = balancers.turn(front.clone(), &key("web/a"), &queue);
        assert!(turn.is_some());
        assert!(balancers.turn(front.clone(), &key("web/b"), &queue).is_none());
        assert!(balancers.turn(front.clone(), &key("web/b"), &queue).is_none());
        assert!(queue.is_empty());
        drop(turn);
        assert_eq!(queue.len(), 1);
        assert!(balancers.turn(front, &key("web/b"), &queue).is_some());
        Ok(())
    }

    #[test]
    fn groups_are_a_namespaces_own_and_most_services_are_in_none() {
        assert_eq!(SharedBalancer::of("cloud", &key("web/a"), &LoadBalancerSettings::default()), None);
        assert_eq!(group("web/a", "front"), group("web/b", "front"));
        assert_ne!(group("web/a", "front"), group("shop/a", "front"));
        assert_ne!(group("web/a", "front"), group("web/a", "back"));
    }
}
