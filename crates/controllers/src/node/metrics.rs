//! The controller's metrics: upstream's by their names, and ours.

use std::time::Duration;

use bowline_core::{Node, NodeName};
use bowline_runtime::{Bounds, Metric, metrics};
use jiff::Timestamp;
use prometheus::{Histogram, IntCounter, Registry};

use crate::backlog::{Backlog, LABELS};

/// Seconds.
// upstream: powers of four from one.
const DELAYS: Bounds = Bounds::Listed(&[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);

/// Seconds: a machine that the cloud knows is a matter of a moment, one that it does not know yet of minutes.
const WAITS: Bounds = Bounds::Listed(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0]);

metrics! {
    /// What the controller counts.
    pub METRICS;
    TAINT_REMOVAL_DELAY = Metric::histogram(
        "node_controller_cloud_provider_taint_removal_delay_seconds",
        "Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
        DELAYS,
    );
    INITIAL_SYNC_DELAY = Metric::histogram(
        "node_controller_initial_node_sync_delay_seconds",
        "Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
        DELAYS,
    );
    SEEN_TO_INITIALIZED = Metric::histogram(
        "bowline_node_seen_to_initialized_seconds",
        "How long it took from when an uninitialised Node was first seen by this process until it was initialised.",
        WAITS,
    );
    WAITING = Metric::gauge(
        "bowline_nodes_waiting",
        "Nodes that wait to be initialised, by the cloud and the reason of their last Event, or Pending.",
    ).labels(LABELS);
    WAITING_OLDEST = Metric::gauge(
        "bowline_nodes_waiting_oldest_seconds",
        "Age of the oldest Node that waits to be initialised, by cloud and reason.",
    ).labels(LABELS);
    ADDRESS_UPDATES = Metric::counter(
        "bowline_node_address_updates_total",
        "How often the addresses of a Node were rewritten because the cloud changed them.",
    );
}

pub(super) struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    seen_to_initialized: Histogram,
    pub(super) address_updates: IntCounter,
    /// Nodes that wait to be initialised.
    pub(super) waiting: Backlog<NodeName>,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics {
            taint_removal_delay: TAINT_REMOVAL_DELAY.register(registry)?,
            initial_sync_delay: INITIAL_SYNC_DELAY.register(registry)?,
            seen_to_initialized: SEEN_TO_INITIALIZED.register(registry)?,
            address_updates: ADDRESS_UPDATES.register(registry)?,
            waiting: Backlog::register(registry, &WAITING, &WAITING_OLDEST)?,
        })
    }

    /// The taint is off (NODE-16).
    pub(super) fn taint_removed(&self, node: &Node, now: Timestamp) {
        observe_age(&self.taint_removal_delay, node, now);
    }

    /// Everything is written (NODE-16), so long after we first saw it.
    pub(super) fn initialized(&self, node: &Node, now: Timestamp, seen: Option<Duration>) {
        observe_age(&self.initial_sync_delay, node, now);
        if let Some(seen) = seen {
            self.seen_to_initialized.observe(seen.as_secs_f64());
        }
    }
}

fn observe_age(histogram: &Histogram, node: &Node, now: Timestamp) {
    if let Some(age) = node.age(now) {
        histogram.observe(age.as_secs_f64());
    }
}
