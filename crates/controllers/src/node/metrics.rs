//! The controller's metrics, named as upstream names them.

use bowline_core::Node;
use jiff::Timestamp;
use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

/// Seconds.
// upstream: powers of four from one.
const DELAYS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

pub(super) struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    pub(super) address_updates: IntCounter,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        let metrics = Metrics {
            taint_removal_delay: delay(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "[ALPHA] Number of seconds after node creation when NodeController removed the cloud-provider taint of a \
                 single node.",
            )?,
            initial_sync_delay: delay(
                "node_controller_initial_node_sync_delay_seconds",
                "[ALPHA] Number of seconds after node creation when NodeController finished the initial synchronization \
                 of a single node.",
            )?,
            address_updates: IntCounter::new(
                "bowline_node_address_updates_total",
                "How often the addresses of a Node were rewritten because the cloud changed them.",
            )?,
        };
        registry.register(Box::new(metrics.taint_removal_delay.clone()))?;
        registry.register(Box::new(metrics.initial_sync_delay.clone()))?;
        registry.register(Box::new(metrics.address_updates.clone()))?;
        Ok(metrics)
    }

    /// The taint is off (NODE-16).
    pub(super) fn taint_removed(&self, node: &Node, now: Timestamp) {
        observe_age(&self.taint_removal_delay, node, now);
    }

    /// Everything is written (NODE-16).
    pub(super) fn initialized(&self, node: &Node, now: Timestamp) {
        observe_age(&self.initial_sync_delay, node, now);
    }
}

fn delay(name: &str, help: &str) -> prometheus::Result<Histogram> {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(DELAYS.to_vec()))
}

fn observe_age(histogram: &Histogram, node: &Node, now: Timestamp) {
    if let Some(created) = node.created {
        histogram.observe(now.duration_since(created).as_secs_f64().max(0.0));
    }
}
