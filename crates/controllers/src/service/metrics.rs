//! The controller's metrics: upstream's by their names, and ours.

use std::time::Duration;

use bowline_core::ServiceKey;
use bowline_runtime::{Bounds, Metric, metrics};
use prometheus::{Histogram, IntCounter, IntCounterVec, Registry};

use crate::backlog::{Backlog, LABELS};

/// Seconds.
// upstream: fifteen powers of two from one.
const SECONDS: Bounds = Bounds::Powers { first: 1.0, factor: 2.0, count: 15 };

/// Seconds: a balancer is there at once, or takes a cloud some minutes.
const WAITS: Bounds = Bounds::Listed(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0]);

metrics! {
    /// What the controller counts.
    pub METRICS;
    NODE_UPDATES = Metric::counter(
        "service_controller_loadbalancer_sync_total",
        "A metric counting the amount of times any load balancer has been configured, as an effect of service/node changes \
         on the cluster",
    );
    NODE_UPDATE_ERRORS = Metric::counter(
        "service_controller_nodesync_error_total",
        "A metric counting the amount of times any load balancer has been configured and errored, as an effect of node \
         changes on the cluster",
    );
    NODE_SYNC_LATENCY = Metric::histogram(
        "service_controller_nodesync_latency_seconds",
        "A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
        SECONDS,
    );
    NODE_UPDATE_LATENCY = Metric::histogram(
        "service_controller_update_loadbalancer_host_latency_seconds",
        "A metric measuring the latency for updating each load balancer hosts.",
        SECONDS,
    );
    ADDRESS_DELAY = Metric::histogram(
        "bowline_service_address_delay_seconds",
        "How long a Service waited, from when it was made until its address was written.",
        SECONDS,
    );
    SEEN_TO_ADDRESS = Metric::histogram(
        "bowline_service_seen_to_address_seconds",
        "How long it took from when a Service that wants a load balancer was first seen by this process until its address \
         was written.",
        WAITS,
    );
    WAITING = Metric::gauge(
        "bowline_services_waiting",
        "Services whose load balancer is not as wanted yet, by the cloud and what is in the way, or Pending.",
    ).labels(LABELS);
    WAITING_OLDEST = Metric::gauge(
        "bowline_services_waiting_oldest_seconds",
        "Time for which the Service that waits longest has waited, by cloud and reason.",
    ).labels(LABELS);
    ENSURES = Metric::counter(
        "bowline_load_balancer_ensures_total",
        "How often a load balancer was made or changed for another reason than its Nodes, by how that ended.",
    ).labels(&["result"]);
    PASSES = Metric::counter("bowline_load_balancer_passes_total", "Passes over a load balancer, by how they ended.")
        .labels(&["outcome"]);
}

pub(super) struct Metrics {
    /// Updates of a balancer because of its Nodes.
    pub(super) node_updates: IntCounter,
    /// Those that failed.
    pub(super) node_update_errors: IntCounter,
    /// How long it took until every balancer had heard of Nodes that came and went.
    pub(super) node_sync_latency: Histogram,
    /// How long one of those updates took.
    pub(super) node_update_latency: Histogram,
    /// How long a Service waited for its address.
    pub(super) address_delay: Histogram,
    /// How long of that we knew of it.
    pub(super) seen_to_address: Histogram,
    /// What was made or changed for another reason than Nodes.
    ensures: IntCounterVec,
    /// Passes over a balancer, by how they ended.
    passes: IntCounterVec,
    /// Services whose load balancer is not as wanted yet.
    pub(super) waiting: Backlog<ServiceKey>,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics {
            node_updates: NODE_UPDATES.register(registry)?,
            node_update_errors: NODE_UPDATE_ERRORS.register(registry)?,
            node_sync_latency: NODE_SYNC_LATENCY.register(registry)?,
            node_update_latency: NODE_UPDATE_LATENCY.register(registry)?,
            address_delay: ADDRESS_DELAY.register(registry)?,
            seen_to_address: SEEN_TO_ADDRESS.register(registry)?,
            ensures: ENSURES.register(registry)?,
            passes: PASSES.register(registry)?,
            waiting: Backlog::register(registry, &WAITING, &WAITING_OLDEST)?,
        })
    }

    /// A balancer was made or changed, or was to be.
    pub(super) fn ensured(&self, failed: bool) {
        self.ensures.with_label_values(&[if failed { "failure" } else { "success" }]).inc();
    }

    /// A pass has ended like this.
    pub(super) fn passed(&self, outcome: &str) {
        self.passes.with_label_values(&[outcome]).inc();
    }

    /// A balancer was told of its Nodes, and it took so long.
    pub(super) fn node_update(&self, took: Duration, failed: bool) {
        self.node_updates.inc();
        self.node_update_latency.observe(took.as_secs_f64());
        if failed {
            self.node_update_errors.inc();
        }
    }
}
