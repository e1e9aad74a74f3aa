//! Recorder for the load balancer observations and writes of a provider.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bowline_cloud::{Applied, CloudProvider, LoadBalancers, Result};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Plan, Step};

use crate::test_providers::{Wrapped, load_balancers_of};

/// Records the applied steps in order, how many run concurrently, and the sizes of the observed batches.
#[derive(Default)]
pub(crate) struct Recorder {
    concurrent: AtomicUsize,
    pub(crate) max_concurrent: AtomicUsize,
    pub(crate) overlaps: AtomicUsize,
    busy: Mutex<BTreeMap<String, usize>>,
    /// Service and step.
    steps: Mutex<Vec<(String, String)>>,
    observed: Mutex<Vec<usize>>,
}

/// Load balancers of a provider, recorded.
struct Recorded {
    inner: Arc<dyn CloudProvider>,
    recorder: Arc<Recorder>,
}

#[async_trait]
impl LoadBalancers for Recorded {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        self.recorder.observed.lock().unwrap().push(wanted.len());
        load_balancers_of(&self.inner).observe(wanted).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        load_balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        load_balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let concurrent = self.recorder.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
        self.recorder.max_concurrent.fetch_max(concurrent, Ordering::SeqCst);
        // Services of a share group have one load balancer, identified by the group; others are identified by UID.
        let balancer = if key.service.starts_with("shared") { "shared".to_owned() } else { key.uid.clone() };
        let working = {
            let mut busy = self.recorder.busy.lock().unwrap();
            let working = busy.entry(balancer.clone()).or_default();
            *working += 1;
            *working
        };
        if working > 1 {
            self.recorder.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let service = format!("{}/{}", key.namespace, key.service);
        self.recorder.steps.lock().unwrap().push((service, step.to_string()));
        let applied = load_balancers_of(&self.inner).apply(key, step, polled).await;
        *self.recorder.busy.lock().unwrap().entry(balancer).or_default() -= 1;
        self.recorder.concurrent.fetch_sub(1, Ordering::SeqCst);
        applied
    }
}

impl Recorder {
    /// Wraps a provider so that its load balancer observations and writes are recorded.
    pub(crate) fn wrap(self: &Arc<Recorder>, inner: Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), Recorded { inner, recorder: self.clone() })
    }

    /// Position of the first step for this Service.
    pub(crate) fn position(&self, service: &str) -> usize {
        self.steps().iter().position(|(name, _)| name == service).expect("the Service has a step")
    }

    /// Number of load balancers in each observation so far.
    pub(crate) fn observed(&self) -> Vec<usize> {
        self.observed.lock().unwrap().clone()
    }

    /// Forgets all recorded steps and observations.
    pub(crate) fn forget(&self) {
        self.steps.lock().unwrap().clear();
        self.observed.lock().unwrap().clear();
    }

    /// All steps so far.
    pub(crate) fn steps(&self) -> Vec<(String, String)> {
        self.steps.lock().unwrap().clone()
    }
}
