//! Provider behaviour that the local cloud cannot be configured for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, Error, ErrorKind, Instances, KnownState, LoadBalancers, ProviderInfo,
    ProviderLoop, Result, Routes,
};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Instance, InstanceRef, InstanceState, LoadBalancerKey, LoadBalancerState, Opaque,
    Plan, ProviderId, Step,
};

/// Provider with one part replaced.
pub(crate) struct Wrapped {
    inner: Arc<dyn CloudProvider>,
    capabilities: Capabilities,
    instances: Option<Box<dyn Instances>>,
    balancers: Option<Box<dyn LoadBalancers>>,
    routes: Option<Box<dyn Routes>>,
    loops: Vec<Arc<dyn ProviderLoop>>,
    revision: Arc<AtomicU64>,
}

impl Wrapped {
    fn new(inner: Arc<dyn CloudProvider>) -> Wrapped {
        let capabilities = inner.capabilities().clone();
        let (loops, revision) = (Vec::new(), Arc::default());
        Wrapped { inner, capabilities, instances: None, balancers: None, routes: None, loops, revision }
    }

    /// Replaces the instances.
    pub(crate) fn instances(inner: Arc<dyn CloudProvider>, instances: impl Instances + 'static) -> Arc<Wrapped> {
        Arc::new(Wrapped { instances: Some(Box::new(instances)), ..Wrapped::new(inner) })
    }

    /// Replaces the load balancers.
    pub(crate) fn balancers(inner: Arc<dyn CloudProvider>, balancers: impl LoadBalancers + 'static) -> Arc<Wrapped> {
        Arc::new(Wrapped { balancers: Some(Box::new(balancers)), ..Wrapped::new(inner) })
    }

    /// Replaces the routes.
    pub(crate) fn routes(inner: Arc<dyn CloudProvider>, routes: impl Routes + 'static) -> Arc<Wrapped> {
        Arc::new(Wrapped { routes: Some(Box::new(routes)), ..Wrapped::new(inner) })
    }

    /// Replaces the routes with ones that are written in batches of this size.
    pub(crate) fn batches(inner: Arc<dyn CloudProvider>, routes: impl Routes + 'static, batch: usize) -> Arc<Wrapped> {
        let mut wrapped = Wrapped { routes: Some(Box::new(routes)), ..Wrapped::new(inner) };
        wrapped.capabilities.routes.iter_mut().for_each(|routes| routes.batch = batch);
        Arc::new(wrapped)
    }

    /// Sets the configuration revision.
    pub(crate) fn revised(inner: Arc<dyn CloudProvider>, revision: Arc<AtomicU64>) -> Arc<Wrapped> {
        Arc::new(Wrapped { revision, ..Wrapped::new(inner) })
    }

    /// Sets the background loops.
    pub(crate) fn loops(inner: Arc<dyn CloudProvider>, loops: Vec<Arc<dyn ProviderLoop>>) -> Arc<Wrapped> {
        Arc::new(Wrapped { loops, ..Wrapped::new(inner) })
    }
}

#[async_trait]
impl CloudProvider for Wrapped {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.instances.as_deref().or_else(|| self.inner.instances())
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.balancers.as_deref().or_else(|| self.inner.load_balancers())
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.routes.as_deref().or_else(|| self.inner.routes())
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        if self.loops.is_empty() { self.inner.loops() } else { self.loops.clone() }
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

/// Load balancers of a provider that has them.
pub(crate) fn load_balancers_of(provider: &Arc<dyn CloudProvider>) -> &dyn LoadBalancers {
    provider.load_balancers().expect("the local cloud has load balancers")
}

/// Declines every machine.
pub(crate) struct Declining;

/// Replaces the provider ID of every machine, or removes it.
pub(crate) struct WithProviderId {
    inner: Arc<dyn CloudProvider>,
    id: Option<&'static str>,
}

/// Knows the state of every machine, and fails to read its details while the flag is set.
pub(crate) struct WithoutDetails {
    inner: Arc<dyn CloudProvider>,
    is_failing: Arc<AtomicBool>,
}

impl WithoutDetails {
    pub(crate) fn wrap(inner: Arc<dyn CloudProvider>, is_failing: Arc<AtomicBool>) -> Arc<dyn CloudProvider> {
        Wrapped::instances(inner.clone(), WithoutDetails { inner, is_failing })
    }

    fn fail(&self, state: InstanceState) -> Result<InstanceState> {
        let seen = match &state {
            InstanceState::Running(_) => KnownState::Running,
            InstanceState::Stopped(_) => KnownState::Stopped,
            InstanceState::Gone | InstanceState::NotMine => return Ok(state),
        };
        let error = Error::new(ErrorKind::PermissionDenied, "list ports", "the ports may not be read");
        if self.is_failing.load(Ordering::SeqCst) { Err(error.with_known_state(seen)) } else { Ok(state) }
    }
}

#[async_trait]
impl Instances for WithoutDetails {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let Some(instances) = self.inner.instances() else { return Vec::new() };
        instances.find(asked).await.into_iter().map(|answer| self.fail(answer?)).collect()
    }
}

#[async_trait]
impl Instances for Declining {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        asked.iter().map(|_| Ok(InstanceState::NotMine)).collect()
    }
}

#[async_trait]
impl Instances for WithProviderId {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let Some(instances) = self.inner.instances() else { return Vec::new() };
        instances.find(asked).await.into_iter().map(|answer| answer.map(|state| self.replace(state))).collect()
    }
}

impl WithProviderId {
    pub(crate) fn wrap(inner: Arc<dyn CloudProvider>, id: Option<&'static str>) -> Arc<dyn CloudProvider> {
        Wrapped::instances(inner.clone(), WithProviderId { inner, id })
    }

    fn replace(&self, state: InstanceState) -> InstanceState {
        let provider_id = self.id.and_then(ProviderId::new);
        let replaced = |instance: Arc<Instance>| Arc::new(Instance { provider_id, ..Instance::clone(&instance) });
        match state {
            InstanceState::Running(instance) => InstanceState::Running(replaced(instance)),
            InstanceState::Stopped(instance) => InstanceState::Stopped(replaced(instance)),
            other => other,
        }
    }
}

/// Load balancers with injected errors.
pub(crate) struct FaultInjector {
    inner: Arc<dyn CloudProvider>,
    error_source: ErrorSource,
}

/// Returns the error of this operation, if any.
pub(crate) type ErrorSource = Arc<dyn Fn(&'static str) -> Option<Error> + Send + Sync>;

impl FaultInjector {
    /// Calls `error_source` before each `observe`, `plan` and `apply`.
    pub(crate) fn wrap(inner: Arc<dyn CloudProvider>, error_source: ErrorSource) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), FaultInjector { inner, error_source })
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        (self.error_source)(operation).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl LoadBalancers for FaultInjector {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        match self.check("observe") {
            Ok(()) => load_balancers_of(&self.inner).observe(wanted).await,
            Err(error) => wanted.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        load_balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.check("plan")?;
        load_balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        self.check("apply")?;
        load_balancers_of(&self.inner).apply(key, step, polled).await
    }
}

/// Load balancer that never exists and whose plans are empty.
pub(crate) struct NeverCreated;

#[async_trait]
impl LoadBalancers for NeverCreated {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        wanted.iter().map(|_| Ok(None)).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(Vec::new())
    }

    fn plan(&self, _: &DesiredLoadBalancer, _: Option<&LoadBalancerState>) -> Result<Plan> {
        Ok(Plan::default())
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step, _: Option<&Opaque>) -> Result<Applied> {
        Ok(Applied::Done)
    }
}

/// Load balancers with failed ports while the flag is set.
pub(crate) struct FailedPorts {
    inner: Arc<dyn CloudProvider>,
    is_failing: Arc<AtomicBool>,
}

impl FailedPorts {
    pub(crate) fn wrap(inner: Arc<dyn CloudProvider>, is_failing: Arc<AtomicBool>) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), FailedPorts { inner, is_failing })
    }

    fn with_failed_ports(&self, mut state: LoadBalancerState) -> LoadBalancerState {
        if self.is_failing.load(Ordering::SeqCst) {
            state.errors = vec!["port 80/TCP: no permission to listen".to_owned()];
        }
        state
    }
}

#[async_trait]
impl LoadBalancers for FailedPorts {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let seen = load_balancers_of(&self.inner).observe(wanted).await.into_iter();
        seen.map(|state| Ok(state?.map(|state| self.with_failed_ports(state)))).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        load_balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        load_balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        load_balancers_of(&self.inner).apply(key, step, polled).await?;
        Ok(Applied::Done)
    }
}

/// Load balancers whose writes hang while the flag is set.
pub(crate) struct Hanging {
    inner: Arc<dyn CloudProvider>,
    hangs: tokio::sync::watch::Receiver<bool>,
}

impl Hanging {
    pub(crate) fn wrap(
        inner: Arc<dyn CloudProvider>,
        hangs: tokio::sync::watch::Receiver<bool>,
    ) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), Hanging { inner, hangs })
    }
}

#[async_trait]
impl LoadBalancers for Hanging {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        load_balancers_of(&self.inner).observe(wanted).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        load_balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        load_balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        self.hangs.clone().wait_for(|hangs| !hangs).await.expect("the sender outlives the manager");
        load_balancers_of(&self.inner).apply(key, step, polled).await
    }
}
