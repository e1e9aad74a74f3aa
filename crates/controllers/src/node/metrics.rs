//! Metrics of the controller: upstream's names are kept, ours are added.

use std::time::Duration;

use bowline_core::{Node, NodeName};
use bowline_runtime::{Buckets, Metric, metrics};
use jiff::Timestamp;
use prometheus::{Histogram, IntCounter, Registry};

use crate::backlog::{Backlog, LABELS};

/// Seconds.
// upstream: powers of four from one.
const DELAYS: Buckets = Buckets::Listed(&[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);

/// Seconds: a machine that the cloud lists is initialised at once; one that it does not list yet takes minutes.
const WAITS: Buckets = Buckets::Listed(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0]);

metrics! {
    /// Metrics of the controller.
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
        "Time from when this process first saw an uninitialised Node until the Node was initialised.",
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
        "Number of updates of a Node's addresses because the cloud changed them.",
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

    /// Records the removal of the taint (NODE-16).
    pub(super) fn taint_removed(&self, node: &Node, now: Timestamp) {
        observe_age(&self.taint_removal_delay, node, now);
    }

    /// Records that everything is written (NODE-16); `seen` is the time since this process first saw the Node.
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
