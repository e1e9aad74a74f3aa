//! Providers that the local cloud cannot be told to be.

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

/// A provider of which one part is another one's, as whatever stands between it and the story has it.
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

    /// With other machines.
    pub(crate) fn instances(inner: Arc<dyn CloudProvider>, instances: impl Instances + 'static) -> Arc<Wrapped> {
        Arc::new(Wrapped { instances: Some(Box::new(instances)), ..Wrapped::new(inner) })
    }

    /// With other balancers.
    pub(crate) fn balancers(inner: Arc<dyn CloudProvider>, balancers: impl LoadBalancers + 'static) -> Arc<Wrapped> {
        Arc::new(Wrapped { balancers: Some(Box::new(balancers)), ..Wrapped::new(inner) })
    }

    /// With other routes.
    pub(crate) fn routes(inner: Arc<dyn CloudProvider>, routes: impl Routes + 'static) -> Arc<Wrapped> {
        Arc::new(Wrapped { routes: Some(Box::new(routes)), ..Wrapped::new(inner) })
    }

    /// With other routes, which are written this many at once.
    pub(crate) fn batches(inner: Arc<dyn CloudProvider>, routes: impl Routes + 'static, batch: usize) -> Arc<Wrapped> {
        let mut wrapped = Wrapped { routes: Some(Box::new(routes)), ..Wrapped::new(inner) };
        wrapped.capabilities.routes.iter_mut().for_each(|routes| routes.batch = batch);
        Arc::new(wrapped)
    }

    /// With this number of configurations.
    pub(crate) fn revised(inner: Arc<dyn CloudProvider>, revision: Arc<AtomicU64>) -> Arc<Wrapped> {
        Arc::new(Wrapped { revision, ..Wrapped::new(inner) })
    }

    /// With these loops.
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

/// The balancers of a provider that has them.
pub(crate) fn balancers_of(provider: &Arc<dyn CloudProvider>) -> &dyn LoadBalancers {
    provider.load_balancers().expect("the local cloud has balancers")
}

/// Says of every machine that it is not for it to say.
pub(crate) struct Declining;

/// Gives every machine this provider ID, or none.
pub(crate) struct Retold {
    inner: Arc<dyn CloudProvider>,
    id: Option<&'static str>,
}

/// Has seen every machine, and cannot tell more of it as long as the story says so.
pub(crate) struct Blurred {
    inner: Arc<dyn CloudProvider>,
    is_blurred: Arc<AtomicBool>,
}

impl Blurred {
    pub(crate) fn around(inner: Arc<dyn CloudProvider>, is_blurred: Arc<AtomicBool>) -> Arc<dyn CloudProvider> {
        Wrapped::instances(inner.clone(), Blurred { inner, is_blurred })
    }

    fn blur(&self, state: InstanceState) -> Result<InstanceState> {
        let seen = match &state {
            InstanceState::Running(_) => KnownState::Running,
            InstanceState::Stopped(_) => KnownState::Stopped,
            InstanceState::Gone | InstanceState::NotMine => return Ok(state),
        };
        let error = Error::new(ErrorKind::PermissionDenied, "list ports", "the ports may not be read");
        if self.is_blurred.load(Ordering::SeqCst) { Err(error.with_known_state(seen)) } else { Ok(state) }
    }
}

#[async_trait]
impl Instances for Blurred {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let Some(instances) = self.inner.instances() else { return Vec::new() };
        instances.find(asked).await.into_iter().map(|answer| self.blur(answer?)).collect()
    }
}

#[async_trait]
impl Instances for Declining {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        asked.iter().map(|_| Ok(InstanceState::NotMine)).collect()
    }
}

#[async_trait]
impl Instances for Retold {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let Some(instances) = self.inner.instances() else { return Vec::new() };
        instances.find(asked).await.into_iter().map(|answer| answer.map(|state| self.retell(state))).collect()
    }
}

impl Retold {
    pub(crate) fn around(inner: Arc<dyn CloudProvider>, id: Option<&'static str>) -> Arc<dyn CloudProvider> {
        Wrapped::instances(inner.clone(), Retold { inner, id })
    }

    fn retell(&self, state: InstanceState) -> InstanceState {
        let provider_id = self.id.and_then(ProviderId::new);
        let retold = |instance: Arc<Instance>| Arc::new(Instance { provider_id, ..Instance::clone(&instance) });
        match state {
            InstanceState::Running(instance) => InstanceState::Running(retold(instance)),
            InstanceState::Stopped(instance) => InstanceState::Stopped(retold(instance)),
            other => other,
        }
    }
}

/// Balancers that fail when the story wants them to.
pub(crate) struct Steered {
    inner: Arc<dyn CloudProvider>,
    steer: Steer,
}

/// What goes wrong with this operation now, if anything.
pub(crate) type Steer = Arc<dyn Fn(&'static str) -> Option<Error> + Send + Sync>;

impl Steered {
    /// `steer` is asked before each `observe`, `plan` and `apply`.
    pub(crate) fn around(inner: Arc<dyn CloudProvider>, steer: Steer) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), Steered { inner, steer })
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        (self.steer)(operation).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl LoadBalancers for Steered {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        match self.check("observe") {
            Ok(()) => balancers_of(&self.inner).observe(wanted).await,
            Err(error) => wanted.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.check("plan")?;
        balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        self.check("apply")?;
        balancers_of(&self.inner).apply(key, step, polled).await
    }
}

/// A balancer that is never there, and about which there is never anything to do.
pub(crate) struct Forgetful;

#[async_trait]
impl LoadBalancers for Forgetful {
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

/// Balancers whose ports do not work, however well they are made, as long as the story says so.
pub(crate) struct Ailing {
    inner: Arc<dyn CloudProvider>,
    ails: Arc<AtomicBool>,
}

impl Ailing {
    pub(crate) fn around(inner: Arc<dyn CloudProvider>, ails: Arc<AtomicBool>) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), Ailing { inner, ails })
    }

    fn ailing(&self, mut state: LoadBalancerState) -> LoadBalancerState {
        if self.ails.load(Ordering::SeqCst) {
            state.errors = vec!["port 80/TCP: no permission to listen".to_owned()];
        }
        state
    }
}

#[async_trait]
impl LoadBalancers for Ailing {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let seen = balancers_of(&self.inner).observe(wanted).await.into_iter();
        seen.map(|state| Ok(state?.map(|state| self.ailing(state)))).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        balancers_of(&self.inner).apply(key, step, polled).await?;
        Ok(Applied::Done)
    }
}

/// Balancers of which nothing is heard, once they are to be changed, as long as the story says so.
pub(crate) struct Hanging {
    inner: Arc<dyn CloudProvider>,
    hangs: tokio::sync::watch::Receiver<bool>,
}

impl Hanging {
    pub(crate) fn around(
        inner: Arc<dyn CloudProvider>,
        hangs: tokio::sync::watch::Receiver<bool>,
    ) -> Arc<dyn CloudProvider> {
        Wrapped::balancers(inner.clone(), Hanging { inner, hangs })
    }
}

#[async_trait]
impl LoadBalancers for Hanging {
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
        self.hangs.clone().wait_for(|hangs| !hangs).await.expect("the story lasts longer than its manager");
        balancers_of(&self.inner).apply(key, step, polled).await
    }
}
