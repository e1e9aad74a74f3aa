//! The controller's metrics, the first two named as upstream names them.

use bowline_cloud::{Error, ErrorKind, NoOwner, Ownership};
use bowline_core::InstanceState;
use bowline_core::lifecycle::Held;
use bowline_runtime::{Bounds, Metric, metrics};
use prometheus::{Histogram, IntCounterVec, IntGaugeVec, Registry};

metrics! {
    /// What the controller counts.
    pub METRICS;
    PASS_DURATION = Metric::histogram(
        "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
        "How long one look at all nodes took.",
        // upstream: from a millisecond, doubling 14 times.
        Bounds::Powers { first: 0.001, factor: 2.0, count: 15 },
    );
    CALLS = Metric::counter(
        "cloud_node_lifecycle_controller_cloud_provider_calls_total",
        "Questions to the cloud about nodes that are not ready, by how they were answered.",
    ).labels(&["operation", "result"]);
    HELD = Metric::gauge(
        "bowline_node_deletions_held_back",
        "Nodes that are kept although their machines are gone, by what speaks against deleting them.",
    ).labels(&["provider", "reason"]);
}

pub(super) struct Metrics {
    pub(super) pass_duration: Histogram,
    calls: IntCounterVec,
    held: IntGaugeVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics {
            pass_duration: PASS_DURATION.register(registry)?,
            calls: CALLS.register(registry)?,
            held: HELD.register(registry)?,
        })
    }

    /// Counts one answer (LIFE-10). One read of ours answers what are two questions upstream.
    pub(super) fn answered(&self, sighting: &Result<Ownership, Error>) {
        let exists = match sighting {
            Ok(Ownership::Owned { state: InstanceState::Gone, .. } | Ownership::NoOwner(NoOwner::Unclaimed)) => {
                "instance_not_found"
            }
            // The provider has nothing to say, which upstream counts as having said that it exists.
            Ok(Ownership::Owned { .. } | Ownership::NoOwner(_)) => "success",
            Err(error) if error.seen().is_some() => "success",
            Err(error) => match error.kind() {
                ErrorKind::Unsupported => "not_implemented",
                ErrorKind::NotFound => "instance_not_found",
                ErrorKind::Cancelled => "canceled",
                _ => "error",
            },
        };
        self.calls.with_label_values(&["instance_exists", exists]).inc();
        let is_seen = match sighting {
            Ok(Ownership::Owned { state, .. }) => state.instance().is_some(),
            Ok(Ownership::NoOwner(_)) => false,
            Err(error) => error.seen().is_some(),
        };
        if is_seen {
            self.calls.with_label_values(&["instance_shutdown", "success"]).inc();
        }
    }

    /// What is held back now; what was held back before and is not any more vanishes.
    pub(super) fn held<'a>(&self, held: impl Iterator<Item = &'a Held>) {
        self.held.reset();
        for held in held {
            self.held.with_label_values(&[&*held.provider, held.doubt.word()]).inc();
        }
    }
}
