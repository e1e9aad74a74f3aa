//! Controls for the Secrets that a provider needs.

use async_trait::async_trait;
use bowline_cloud::{SecretData, SecretRef};

/// Controls for Secrets; a provider that names some brings them. The bench delivers each to every provider that it makes.
#[async_trait]
pub trait SecretBench: Send + Sync {
    /// Contents of this Secret with which the cloud accepts calls now.
    async fn contents(&self, secret: &SecretRef) -> SecretData;

    /// Makes the cloud accept other credentials from now on, and the former ones no longer.
    async fn rotate(&self);
}
