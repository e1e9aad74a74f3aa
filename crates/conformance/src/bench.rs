//! Test bench that a provider implements: the provider itself, and controls for its cloud.

mod load_balancers;
mod loops;
mod routes;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_core::{Address, ClusterName, Instance, ProviderId};
use ipnet::IpNet;

pub use load_balancers::{
    ForeignLoadBalancer, LoadBalancerBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget,
};
pub use loops::LoopBench;
pub use routes::{ForeignRoute, RouteBench, SeenRoute};
pub use secrets::SecretBench;

/// A machine that the suite creates. The bench makes up everything else that a machine has (type, zone, labels, …); none of it may
/// be empty if the provider claims to report it.
#[derive(Debug, Clone, Default)]
pub struct WantedMachine {
    /// Name of the machine and of its Node.
    pub name: String,
    /// Addresses, in this order, if the cloud lets the user choose them.
    pub addresses: Vec<Address>,
    /// Pod CIDRs that the cloud itself routes to the machine, in this order, if the cloud lets the user choose them.
    pub pod_cidrs: Vec<IpNet>,
}

/// A failure of the cloud that the suite requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InducedFault {
    /// The cloud rejects the credentials.
    Unauthenticated,
    /// The cloud denies permission.
    Forbidden,
    /// The cloud throttles the calls and asks for this delay.
    Throttled(Duration),
    /// The cloud is unavailable.
    Broken,
    /// The cloud answers as if it had no resources at all.
    Empty,
    /// The cloud answers with a body that cannot be parsed.
    Garbled,
    /// A proxy or a wrong endpoint answers in place of the cloud: 404 with this body.
    NotFound(&'static str),
    /// The cloud answers each call after this delay.
    Slow(Duration),
}

/// Result of a request to the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchResult {
    /// The bench did it.
    Done,
    /// It never happens in this cloud, so there is nothing to test.
    Never,
    /// It may happen in this cloud, but the bench cannot cause it.
    Cannot,
}

/// A provider and controls for its cloud. Every case gets a new bench, with a cloud that has no machines.
#[async_trait]
pub trait Bench: Send + Sync {
    /// The provider, without layers.
    fn provider(&self) -> Arc<dyn CloudProvider>;

    /// Timeout of one case. A cloud that really creates resources needs more than a simulator.
    fn timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// A new provider with the same configuration on the same cloud, as after a restart of the manager.
    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        self.provider()
    }

    /// A provider on the same cloud that is configured for this cluster. [`provider`](Bench::provider) is the one for the cluster
    /// `conformance`. By default it serves every cluster: it reads the cluster from the keys alone.
    fn of_cluster(&self, cluster: &ClusterName) -> Arc<dyn CloudProvider> {
        let _ = cluster;
        self.provider()
    }

    /// Passwords, tokens and keys that the provider was configured with. Empty only if it has none.
    fn secrets(&self) -> Vec<String>;

    /// Controls for load balancers. Required if the provider claims load balancers.
    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        None
    }

    /// Controls for routes. Required if the provider claims routes.
    fn routes(&self) -> Option<&dyn RouteBench> {
        None
    }

    /// Controls for background loops. Required if the provider has loops.
    fn loops(&self) -> Option<&dyn LoopBench> {
        None
    }

    /// Controls for Secrets. Required if the provider names Secrets.
    fn secret_store(&self) -> Option<&dyn SecretBench> {
        None
    }

    /// Creates a machine and returns the instance that the provider should report.
    async fn add(&self, machine: &WantedMachine) -> Instance;

    /// Stops the machine.
    async fn stop(&self, instance: &Instance);

    /// Starts the machine.
    async fn start(&self, instance: &Instance);

    /// Deletes the machine.
    async fn delete(&self, instance: &Instance);

    /// Renames the machine. Returns `false` if the cloud cannot.
    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        let _ = (instance, name);
        false
    }

    /// Makes the cloud omit an existing machine from its listings, like one that is about to be deleted or has moved to another
    /// project. Returns `Never` if the cloud lists every machine that exists.
    async fn unlist(&self, instance: &Instance) -> BenchResult {
        let _ = instance;
        BenchResult::Never
    }

    /// Returns whether this fault can occur in the cloud at all; cases do not inject others. A cloud of local files and commands has no
    /// credentials and does not throttle.
    fn can_occur(&self, fault: InducedFault) -> bool {
        let _ = fault;
        true
    }

    /// Returns whether this fault can occur in calls about machines, which a cloud may read from files while its load balancers have a
    /// server.
    fn can_affect_machines(&self, fault: InducedFault) -> bool {
        self.can_occur(fault)
    }

    /// Makes every call fail with this fault from now on; `None` ends it. Returns `false` if the bench cannot.
    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool;

    /// Simulates a crash of the manager: the cloud executes this many more calls, reads and writes. The response to the last one is
    /// lost, and every later call fails without effect. `None` is the restart: all calls work again.
    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        let _ = calls;
        BenchResult::Cannot
    }

    /// Number of calls made to the cloud so far, if the cloud counts them.
    async fn calls(&self) -> Option<u64>;

    /// Other spellings of this machine's provider ID that a Node may have: without the region, in upper case, as written by an
    /// older version.
    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        let _ = instance;
        Vec::new()
    }

    /// Malformed IDs with the right prefix. An empty rest is malformed in every cloud.
    fn malformed_ids(&self) -> Vec<ProviderId> {
        self.provider().info().id_prefixes.iter().map(|prefix| ProviderId::of(prefix, "")).collect()
    }
}
