//! The manager: one watch, one store and one sink of Events, shared by the controllers that are switched on.

use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_runtime::{Clock, Shutdown, TaskFailure};

use crate::{node, node_lifecycle};

/// Which controllers run, and how.
#[derive(Debug, Clone, Default)]
pub struct ManagerOptions {
    /// The cloud-node-controller; `None` switches it off.
    pub node: Option<node::Options>,
    /// The cloud-node-lifecycle-controller; `None` switches it off.
    pub node_lifecycle: Option<node_lifecycle::Options>,
    /// How long the writes in hand may take once shutdown is requested.
    pub patience: Duration,
}

/// Why the manager ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A task ended.
    #[error(transparent)]
    Task(#[from] TaskFailure),
    /// A metric is registered twice.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs the controllers until shutdown is requested, and then finishes what is in hand.
pub async fn run(
    client: kube::Client,
    clouds: Clouds,
    options: ManagerOptions,
    clock: Clock,
    metrics: prometheus::Registry,
    shutdown: Shutdown,
) -> Result<(), ManagerError> {
    let _ = (client, clouds, options, clock, metrics, shutdown);
    todo!()
}
