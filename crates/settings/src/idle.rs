//! Provider without behaviour, for tests.

use async_trait::async_trait;
use bowline_cloud::{Capabilities, CloudProvider, ProviderInfo, Result};

/// A provider that reports this information and these capabilities.
pub(crate) struct Idle(pub(crate) ProviderInfo, pub(crate) Capabilities);

#[async_trait]
impl CloudProvider for Idle {
    fn info(&self) -> &ProviderInfo {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}
