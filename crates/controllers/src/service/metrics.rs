//! The controller's metrics: upstream's by their names, and ours.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};

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
    /// Passes over a balancer, by how they ended.
    passes: IntCounterVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        let passes = Opts::new("bowline_load_balancer_passes_total", "Passes over a load balancer, by how they ended.");
        let metrics = Metrics {
            node_updates: IntCounter::new(
                "service_controller_loadbalancer_sync_total",
                "[ALPHA] A metric counting the amount of times any load balancer has been configured, as an effect of \
                 service/node changes on the cluster",
            )?,
            node_update_errors: IntCounter::new(
                "service_controller_nodesync_error_total",
                "[ALPHA] A metric counting the amount of times any load balancer has been configured and errored, as an \
                 effect of node changes on the cluster",
            )?,
            node_sync_latency: seconds(
                "service_controller_nodesync_latency_seconds",
                "[ALPHA] A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node \
                 updates.",
            )?,
            node_update_latency: seconds(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "[ALPHA] A metric measuring the latency for updating each load balancer hosts.",
            )?,
            address_delay: seconds(
                "bowline_service_address_delay_seconds",
                "How long a Service waited, from when it was made until its address was written.",
            )?,
            passes: IntCounterVec::new(passes, &["outcome"])?,
        };
        registry.register(Box::new(metrics.node_updates.clone()))?;
        registry.register(Box::new(metrics.node_update_errors.clone()))?;
        registry.register(Box::new(metrics.node_sync_latency.clone()))?;
        registry.register(Box::new(metrics.node_update_latency.clone()))?;
        registry.register(Box::new(metrics.address_delay.clone()))?;
        registry.register(Box::new(metrics.passes.clone()))?;
        Ok(metrics)
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

/// Seconds.
// upstream: fifteen powers of two from one.
fn seconds(name: &str, help: &str) -> prometheus::Result<Histogram> {
    let buckets = prometheus::exponential_buckets(1.0, 2.0, 15)?;
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))
}
