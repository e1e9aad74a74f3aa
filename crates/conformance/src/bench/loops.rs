//! Controls for the background loops of a provider. They read the cloud directly and not through the provider.

use async_trait::async_trait;
use bowline_cloud::ClusterSnapshot;
use bowline_core::Instance;

/// Controls for loops. Required if the provider has loops.
#[async_trait]
pub trait LoopBench: Send + Sync {
    /// Number of write calls so far, including failed ones.
    async fn writes(&self) -> u64;

    /// Checks that the cloud is in the state that all loops together should have produced for this snapshot.
    async fn check(&self, cluster: &ClusterSnapshot) -> Result<(), String>;

    /// Creates in the cloud what a loop of another cluster, or the user, could have created, at this machine if that applies.
    async fn put_foreign(&self, machine: &Instance);

    /// Everything that loops could change and that does not belong to the suite's cluster, in a comparable form.
    async fn foreign(&self) -> Vec<String>;
}
