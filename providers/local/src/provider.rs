//! The root of the provider.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Capabilities, CloudProvider, Factory, ProviderInfo, Result};

use crate::{Config, LocalCloud};

/// The provider for a [`LocalCloud`], in this process or over HTTP.
pub struct LocalProvider {
    info: ProviderInfo,
    capabilities: Capabilities,
}

impl LocalProvider {
    /// For a cloud in this process.
    pub fn in_process(cloud: LocalCloud, config: &Config) -> LocalProvider {
        let _ = (cloud, config);
        todo!()
    }

    /// For a cloud behind HTTP, at the configured endpoint.
    pub fn over_http(config: &Config) -> Result<LocalProvider> {
        let _ = config;
        todo!()
    }
}

#[async_trait]
impl CloudProvider for LocalProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn check(&self) -> Result<()> {
        todo!()
    }
}

/// The kind `local`, for a [`Registry`](bowline_cloud::Registry): reads its [`Config`], speaks HTTP.
pub fn factory() -> Factory {
    todo!()
}

/// The kind `local`, for a cloud in this process.
pub fn factory_for(cloud: LocalCloud) -> Factory {
    let _ = cloud;
    let _: Option<Arc<dyn CloudProvider>> = None;
    todo!()
}
