//! Controls for the background loops of a provider. They read the cloud directly and not through the provider.

use async_trait::async_trait;
use bowline_cloud::ClusterSnapshot;
use bowline_core::{Instance, Service};

/// Controls for loops. Required if the provider has loops.
#[async_trait]
pub trait LoopBench: Send + Sync {
    /// Number of write calls so far, including failed ones.
    async fn writes(&self) -> u64;

    /// Creates in the cloud what this Service has there before a loop runs, such as a load balancer that a loop tags, and returns
    /// the Service with the annotations and the status that the manager would have written. By default a Service has nothing in
    /// the cloud. The suite then adds the Service to the snapshot, changes its ports, and removes it from the snapshot.
    async fn add_service(&self, service: Service) -> Service {
        service
    }

    /// Checks that the cloud is in the state that all loops together should have produced for the Nodes and Services of this
    /// snapshot.
    async fn check(&self, cluster: &ClusterSnapshot) -> Result<(), String>;

    /// Creates in the cloud what a loop of another cluster, or the user, could have created, at this machine if that applies.
    async fn put_foreign(&self, machine: &Instance);

    /// Everything that loops could change and that does not belong to the suite's cluster, in a comparable form.
    async fn foreign(&self) -> Vec<String>;
}
