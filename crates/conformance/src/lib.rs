//! The behaviour suite that every provider runs.
//!
//! A case is named after a rule of the contract. Whether it runs is decided by the provider's capabilities; a case that
//! does not run is reported as skipped, with the capability that it lacks, and the skips must be exactly those that the
//! capabilities call for.
//!
//! A provider's `tests/conformance.rs` builds its simulator, wraps it in a [`Bench`] and hands it to [`run`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_core::Instance;

/// A machine that the suite wants to exist.
#[derive(Debug, Clone, Default)]
pub struct WantedMachine {
    /// Its name, as a Node would have it.
    pub name: String,
}

/// How the cloud goes wrong when the suite wants it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
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
}

/// A provider, and hands to prepare its cloud with.
#[async_trait]
pub trait Bench: Send + Sync {
    /// The provider, without layers.
    fn provider(&self) -> Arc<dyn CloudProvider>;

    /// Makes a machine and returns what the provider should say of it.
    async fn add(&self, machine: &WantedMachine) -> Instance;

    /// Stops it.
    async fn stop(&self, instance: &Instance);

    /// Starts it.
    async fn start(&self, instance: &Instance);

    /// Removes it.
    async fn delete(&self, instance: &Instance);

    /// From now on the cloud goes wrong like this; `None` mends it. `false` if this cloud cannot.
    async fn trouble(&self, trouble: Option<Trouble>) -> bool;

    /// Calls made so far to the cloud, if it counts them.
    async fn calls(&self) -> Option<u64>;
}
