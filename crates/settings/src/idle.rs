//! For tests: a provider that says what it can do, and does nothing.

use async_trait::async_trait;
use bowline_cloud::{Capabilities, CloudProvider, ProviderInfo, Result};

/// What it is, and what it can do.
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
