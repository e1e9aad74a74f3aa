//! Providers that the local cloud cannot be told to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bowline_cloud::{Applied, Capabilities, CloudProvider, Error, Instances, LoadBalancers, ProviderInfo, Result};
use bowline_core::{
    ClusterName, Instance, InstanceRef, InstanceState, LoadBalancerKey, LoadBalancerState, LoadBalancerWish, Plan,
    ProviderId, Step,
};

/// Says of every machine that it is not for it to say.
pub(crate) struct Declining(pub(crate) Arc<dyn CloudProvider>);

/// Gives every machine this provider ID, or none.
pub(crate) struct Retold {
    pub(crate) inner: Arc<dyn CloudProvider>,
    pub(crate) id: Option<&'static str>,
}

#[async_trait]
impl CloudProvider for Declining {
    fn info(&self) -> &ProviderInfo {
        self.0.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.0.check().await
    }
}

#[async_trait]
impl Instances for Declining {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        asked.iter().map(|_| Ok(InstanceState::NotMine)).collect()
    }
}

#[async_trait]
impl CloudProvider for Retold {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
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
    pub(crate) inner: Arc<dyn CloudProvider>,
    /// Asked before each `observe`, `plan` and `apply`.
    pub(crate) steer: Steer,
}

/// What goes wrong with this operation now, if anything.
pub(crate) type Steer = Arc<dyn Fn(&'static str) -> Option<Error> + Send + Sync>;

impl Steered {
    fn balancers(&self) -> &dyn LoadBalancers {
        self.inner.load_balancers().expect("the local cloud has balancers")
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        (self.steer)(operation).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl CloudProvider for Steered {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

#[async_trait]
impl LoadBalancers for Steered {
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        match Steered::check(self, "observe") {
            Ok(()) => self.balancers().observe(wishes).await,
            Err(error) => wishes.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.balancers().list(cluster).await
    }

    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan> {
        Steered::check(self, "plan")?;
        self.balancers().plan(wish, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
        Steered::check(self, "apply")?;
        self.balancers().apply(key, step).await
    }
}

/// A balancer that is never there, and about which there is never anything to do.
pub(crate) struct Forgetful(pub(crate) Arc<dyn CloudProvider>);

#[async_trait]
impl CloudProvider for Forgetful {
    fn info(&self) -> &ProviderInfo {
        self.0.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.0.instances()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.0.check().await
    }
}

#[async_trait]
impl LoadBalancers for Forgetful {
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        wishes.iter().map(|_| Ok(None)).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(Vec::new())
    }

    fn plan(&self, _: &LoadBalancerWish, _: Option<&LoadBalancerState>) -> Result<Plan> {
        Ok(Plan::default())
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step) -> Result<Applied> {
        Ok(Applied::Done)
    }
}

/// Balancers whose ports do not work, however well they are made, as long as the story says so.
pub(crate) struct Ailing {
    pub(crate) inner: Arc<dyn CloudProvider>,
    pub(crate) ails: Arc<AtomicBool>,
}

impl Ailing {
    fn balancers(&self) -> &dyn LoadBalancers {
        self.inner.load_balancers().expect("the local cloud has balancers")
    }

    fn ailing(&self, mut state: LoadBalancerState) -> LoadBalancerState {
        if self.ails.load(Ordering::SeqCst) {
            state.problems = vec!["port 80/TCP: no permission to listen".to_owned()];
        }
        state
    }
}

#[async_trait]
impl CloudProvider for Ailing {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

#[async_trait]
impl LoadBalancers for Ailing {
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        let seen = self.balancers().observe(wishes).await.into_iter();
        seen.map(|state| Ok(state?.map(|state| self.ailing(state)))).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.balancers().list(cluster).await
    }

    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.balancers().plan(wish, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
        self.balancers().apply(key, step).await?;
        Ok(Applied::Done)
    }
}
