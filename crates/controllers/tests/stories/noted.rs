//! A cloud that somebody takes notes about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bowline_cloud::{Applied, CloudProvider, LoadBalancers, Result};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Plan, Step};

use crate::wrappers::{Wrapped, balancers_of};

/// Notes who applies, in which order, and how many at once.
#[derive(Default)]
pub(crate) struct Notes {
    at_once: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
    pub(crate) doubled: AtomicUsize,
    busy: Mutex<BTreeMap<String, usize>>,
    /// For which Service, and what.
    steps: Mutex<Vec<(String, String)>>,
}

/// Balancers that somebody takes notes about.
struct Noted {
    inner: Arc<dyn CloudProvider>,
    notes: Arc<Notes>,
}

#[async_trait]
impl LoadBalancers for Noted {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        balancers_of(&self.inner).observe(wanted).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let at_once = self.notes.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.notes.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        // Services of a group are about one balancer: told by the group here, by the UID otherwise.
        let balancer = if key.service.starts_with("shared") { "shared".to_owned() } else { key.uid.clone() };
        let working = {
            let mut busy = self.notes.busy.lock().unwrap();
            let working = busy.entry(balancer.clone()).or_default();
            *working += 1;
            *working
        };
        if working > 1 {
            self.notes.doubled.fetch_add(1, Ordering::SeqCst);
        }
        let service = format!("{}/{}", key.namespace, key.service);
        self.notes.steps.lock().unwrap().push((service, step.to_string()));
        let applied = balancers_of(&self.inner).apply(key, step, polled).await;
        *self.notes.busy.lock().unwrap().entry(balancer).or_default() -= 1;
        self.notes.at_once.fetch_sub(1, Ordering::SeqCst);
        applied
    }
}

impl Notes {
    /// The provider, with notes taken about its balancers.
    pub(crate) fn about(self: &Arc<Notes>, inner: Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), Noted { inner, notes: self.clone() })
    }

    /// The place of the first step for this Service.
    pub(crate) fn place(&self, service: &str) -> usize {
        self.steps().iter().position(|(name, _)| name == service).expect("it had its turn")
    }

    /// From here on.
    pub(crate) fn forget(&self) {
        self.steps.lock().unwrap().clear();
    }

    /// All steps so far.
    pub(crate) fn steps(&self) -> Vec<(String, String)> {
        self.steps.lock().unwrap().clone()
    }
}
