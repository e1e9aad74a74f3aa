//! Controls for the background loops of a provider. They look at the cloud itself, past the provider.

use async_trait::async_trait;
use bowline_cloud::ClusterSnapshot;
use bowline_core::Instance;

/// Controls for loops; a provider that has loops brings them.
#[async_trait]
pub trait LoopBench: Send + Sync {
    /// Number of calls so far that changed something in the cloud, or would have.
    async fn writes(&self) -> u64;

    /// Whether the cloud is as all loops together should have left it for this snapshot; if not, why.
    async fn check(&self, cluster: &ClusterSnapshot) -> Result<(), String>;

    /// Leaves in the cloud what a loop of another cluster, or the user, could have left there, at this machine where that makes
    /// sense.
    async fn put_foreign(&self, machine: &Instance);

    /// Everything that loops could change and that does not belong to the cluster of the suite, in a form that can be compared.
    async fn foreign(&self) -> Vec<String>;
}
