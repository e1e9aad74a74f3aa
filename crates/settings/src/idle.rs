//! Provider without behaviour, for tests.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Capabilities, CloudProvider, ProviderInfo, Result, Webhook};

/// A provider that reports this information, these capabilities and these webhooks.
pub(crate) struct Idle {
    pub(crate) info: ProviderInfo,
    pub(crate) capabilities: Capabilities,
    pub(crate) webhooks: Vec<Arc<dyn Webhook>>,
}

impl Default for Idle {
    fn default() -> Idle {
        let info = ProviderInfo { name: "idle".to_owned(), id_prefixes: Vec::new() };
        Idle { info, capabilities: Capabilities::default(), webhooks: Vec::new() }
    }
}

#[async_trait]
impl CloudProvider for Idle {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        self.webhooks.clone()
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}
