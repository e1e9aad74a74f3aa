//! The controller's metrics, the first two named as upstream names them.

use bowline_cloud::{Error, ErrorKind, Nobody, Sighting};
use bowline_core::InstanceState;
use bowline_core::lifecycle::Held;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGaugeVec, Opts, Registry};

pub(super) struct Metrics {
    pub(super) pass_duration: Histogram,
    calls: IntCounterVec,
    held: IntGaugeVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        let duration = HistogramOpts::new(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "[ALPHA] How long one look at all nodes took.",
        );
        let metrics = Metrics {
            // upstream: from a millisecond, doubling 14 times.
            pass_duration: Histogram::with_opts(duration.buckets(prometheus::exponential_buckets(0.001, 2.0, 15)?))?,
            calls: IntCounterVec::new(
                Opts::new(
                    "cloud_node_lifecycle_controller_cloud_provider_calls_total",
                    "[ALPHA] Questions to the cloud about nodes that are not ready, by how they were answered.",
                ),
                &["operation", "result"],
            )?,
            held: IntGaugeVec::new(
                Opts::new(
                    "bowline_node_deletions_held_back",
                    "Nodes that are kept although their machines are gone, by what speaks against deleting them.",
                ),
                &["provider", "reason"],
            )?,
        };
        registry.register(Box::new(metrics.pass_duration.clone()))?;
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.held.clone()))?;
        Ok(metrics)
    }

    /// Counts one answer (LIFE-10). One read of ours answers what are two questions upstream.
    pub(super) fn answered(&self, sighting: &Result<Sighting, Error>) {
        let exists = match sighting {
            Ok(Sighting::Owned { state: InstanceState::Gone, .. } | Sighting::Nobody(Nobody::Unclaimed)) => {
                "instance_not_found"
            }
            // The provider has nothing to say, which upstream counts as having said that it exists.
            Ok(Sighting::Owned { .. } | Sighting::Nobody(_)) => "success",
            Err(error) => match error.kind() {
                ErrorKind::Unsupported => "not_implemented",
                ErrorKind::NotFound => "instance_not_found",
                ErrorKind::Cancelled => "canceled",
                _ => "error",
            },
        };
        self.calls.with_label_values(&["instance_exists", exists]).inc();
        if matches!(sighting, Ok(Sighting::Owned { state, .. }) if state.instance().is_some()) {
            self.calls.with_label_values(&["instance_shutdown", "success"]).inc();
        }
    }

    /// What is held back now; what was held back before and is not any more vanishes.
    pub(super) fn held(&self, held: &[Held]) {
        self.held.reset();
        for held in held {
            self.held.with_label_values(&[&*held.provider, held.doubt.word()]).inc();
        }
    }
}
