//! Providers that the local cloud cannot be told to be.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Capabilities, CloudProvider, Instances, ProviderInfo, Result};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};

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
