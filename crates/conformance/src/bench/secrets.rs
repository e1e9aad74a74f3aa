//! Controls for the Secrets that a provider needs.

use async_trait::async_trait;
use bowline_cloud::{SecretData, SecretRef};

/// Controls for Secrets. Required if the provider names Secrets. The bench delivers each Secret to every provider that it builds.
#[async_trait]
pub trait SecretBench: Send + Sync {
    /// Contents of this Secret that the cloud accepts now.
    async fn contents(&self, secret: &SecretRef) -> SecretData;

    /// Rotates the credentials: the cloud accepts only the new ones from now on.
    async fn rotate(&self);
}
