//! A TCP and UDP load balancer as a library. It knows sockets, not Kubernetes.
//!
//! ```text
//!  DataPlane ── balancer "a" ── frontend 127.0.5.1:80/TCP ── pool ── target 127.0.1.1:30080  healthy, 3 connections
//!      │                            │ accept, source filter         └─ target 127.0.1.2:30080  draining
//!      │                            └ pick (round robin, least connections, by source) ──► connect ──► copy both ways
//!      └─ set(name, BalancerConfig): what is the same goes on; what is new is opened; what is gone is drained
//! ```
//!
//! * [`DataPlane::set`] is level-triggered: it is told what a balancer is to be, whole, and works out what changes. A
//!   connection that was established stays with its target, whatever is set, until one of its ends closes it, it idles too
//!   long, its target is removed, or the listener is removed and its drain time is up.
//! * If an address cannot be bound, the rest of the balancer works, and [`BalancerStatus`] says which one and why; it is
//!   tried again at the next `set`.
//! * Memory is bounded: connections, UDP flows and affinity entries per balancer have limits ([`Limits`]), and a slow
//!   reader slows the writer down.

#[allow(dead_code)] // Until listeners use it; so below.
mod affinity;
mod config;
#[allow(dead_code)]
mod filter;
#[allow(dead_code)]
mod health;
#[allow(dead_code)]
mod pick;
#[allow(dead_code)]
mod probe;
#[allow(dead_code)]
mod proxy;
mod status;

pub use config::{
    Algorithm, BalancerConfig, HealthCheck, HealthProbe, Limits, ListenerConfig, ProxyProtocol, Target, Transport,
};
pub use status::{BalancerStatus, Counters, Health, ListenerStatus, TargetStatus};

use std::time::Duration;

/// All balancers of this process. Clones are the same data plane; when the last one is dropped, everything is closed.
#[derive(Clone)]
pub struct DataPlane {}

/// Why a configuration is refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    /// The field.
    pub place: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl DataPlane {
    /// Without balancers. Must be called on a Tokio runtime, on which everything then runs.
    pub fn new(limits: Limits) -> DataPlane {
        let _ = limits;
        todo!()
    }

    /// From now on the balancer of this name is like this. Sockets are bound when this returns; those that could not be
    /// are told in the status.
    pub async fn set(&self, name: &str, config: BalancerConfig) -> Result<BalancerStatus, ConfigError> {
        let _ = (name, config);
        todo!()
    }

    /// Stops listening at once, lets established connections go on for `drain` at most, and forgets the balancer. One that
    /// is not there is removed already. Returns once nothing listens any more; the drain goes on behind.
    pub async fn remove(&self, name: &str, drain: Duration) {
        let _ = (name, drain);
        todo!()
    }

    /// How a balancer is doing.
    pub fn status(&self, name: &str) -> Option<BalancerStatus> {
        let _ = name;
        todo!()
    }

    /// The names of all balancers, sorted.
    pub fn names(&self) -> Vec<String> {
        todo!()
    }

    /// Removes all balancers, waits for their connections for at most `patience`, and closes the rest.
    pub async fn shutdown(&self, patience: Duration) {
        let _ = patience;
        todo!()
    }
}
