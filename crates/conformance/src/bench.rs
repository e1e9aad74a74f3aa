//! What a provider brings: itself, and hands to prepare its cloud with.

mod balancers;
mod loops;
mod routes;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_core::{Address, Instance, ProviderId};
use ipnet::IpNet;

pub use balancers::{
    ForeignLoadBalancer, LoadBalancerBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget,
};
pub use loops::LoopBench;
pub use routes::{ForeignRoute, RouteBench, SeenRoute};
pub use secrets::SecretBench;

/// A machine that the suite wants to exist. What else a machine has (its type, zone, labels, …) the bench makes up; where
/// the provider claims that the cloud tells it, it must not be empty.
#[derive(Debug, Clone, Default)]
pub struct WantedMachine {
    /// Its name, as a Node would have it.
    pub name: String,
    /// Its addresses, in this order, if the cloud lets one choose.
    pub addresses: Vec<Address>,
    /// The pod ranges that the cloud leads to it by itself, in this order, if it lets one choose.
    pub pod_ranges: Vec<IpNet>,
}

/// How the cloud goes wrong when the suite wants it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InducedFault {
    /// Credentials are refused.
    Unauthenticated,
    /// Rights are refused.
    Forbidden,
    /// Too many calls; come back after this long.
    Throttled(Duration),
    /// The cloud is broken.
    Broken,
    /// The cloud answers and shows nothing at all.
    Empty,
    /// The cloud answers something that makes no sense.
    Garbled,
    /// Something else answers in place of the cloud: 404 with this body. A proxy does so, and so does a wrong endpoint.
    NotFound(&'static str),
    /// The cloud answers, and takes this long for each call.
    Slow(Duration),
}

/// What came of asking a bench to do something to its cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchResult {
    /// It is done.
    Done,
    /// This can never happen in this cloud, so there is nothing to show.
    Never,
    /// It may happen, and the bench cannot bring it about.
    Cannot,
}

/// A provider, and hands to prepare its cloud with. Every case gets a new one, with a cloud that has no machines.
#[async_trait]
pub trait Bench: Send + Sync {
    /// The provider, without layers.
    fn provider(&self) -> Arc<dyn CloudProvider>;

    /// How long one case may take. A cloud that really makes things needs more than one that only says so.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// A new provider of the same configuration, on the same cloud: what a manager has after a restart.
    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        self.provider()
    }

    /// The secrets that the provider was configured with: passwords, tokens, keys. Empty only if it has none.
    fn secrets(&self) -> Vec<String>;

    /// Hands for balancers; a provider that claims them has to bring some.
    fn balancers(&self) -> Option<&dyn LoadBalancerBench> {
        None
    }

    /// Hands for routes; a provider that claims them has to bring some.
    fn routes(&self) -> Option<&dyn RouteBench> {
        None
    }

    /// Controls for background loops; a provider that has loops has to bring some.
    fn loops(&self) -> Option<&dyn LoopBench> {
        None
    }

    /// Controls for Secrets; a provider that names some has to bring them.
    fn secret_store(&self) -> Option<&dyn SecretBench> {
        None
    }

    /// Makes a machine and returns what the provider should say of it.
    async fn add(&self, machine: &WantedMachine) -> Instance;

    /// Stops it.
    async fn stop(&self, instance: &Instance);

    /// Starts it.
    async fn start(&self, instance: &Instance);

    /// Removes it.
    async fn delete(&self, instance: &Instance);

    /// Gives it another name. `false` if this cloud cannot.
    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        let _ = (instance, name);
        false
    }

    /// Makes the cloud leave a machine out of its listings that still exists: as one that is about to be deleted, or that
    /// moved to another project. `Never` if the cloud lists each machine that exists.
    async fn unlist(&self, instance: &Instance) -> BenchResult {
        let _ = instance;
        BenchResult::Never
    }

    /// From now on the cloud goes wrong like this; `None` mends it. `false` if this cloud cannot.
    async fn trouble(&self, trouble: Option<InducedFault>) -> bool;

    /// The manager crashes: from now on, the cloud carries out this many calls, reading or writing. The answer of the last
    /// one is lost, and every call after it fails and does nothing. `None` is the restart: all calls work again.
    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        let _ = calls;
        BenchResult::Cannot
    }

    /// Calls made so far to the cloud, if it counts them.
    async fn calls(&self) -> Option<u64>;

    /// Other ways in which the provider ID of this machine may stand on a Node: without the region, in capitals, as an
    /// older version wrote it.
    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        let _ = instance;
        Vec::new()
    }

    /// IDs with the right prefix that make no sense. Behind the prefix nothing at all is nonsense everywhere.
    fn malformed_ids(&self) -> Vec<ProviderId> {
        self.provider().info().id_prefixes.iter().map(|prefix| ProviderId::of(prefix, "")).collect()
    }
}
