//! Metrics of the controller; the first two have upstream's names.

use bowline_cloud::{Error, ErrorKind, NoOwner, Ownership};
use bowline_core::InstanceState;
use bowline_core::lifecycle::Held;
use bowline_runtime::{Buckets, Metric, metrics};
use prometheus::{Histogram, IntCounterVec, IntGaugeVec, Registry};

metrics! {
    /// Metrics of the controller.
    pub METRICS;
    SYNC_DURATION = Metric::histogram(
        "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
        "Duration of one sync of all nodes of a cloud.",
        // upstream: from a millisecond, doubling 14 times.
        Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 },
    );
    CALLS = Metric::counter(
        "cloud_node_lifecycle_controller_cloud_provider_calls_total",
        "Cloud provider calls for nodes that are not ready, by operation and result.",
    ).labels(&["operation", "result"]);
    HELD = Metric::gauge(
        "bowline_node_deletions_held_back",
        "Nodes whose machines are gone and whose deletion is held back, by reason.",
    ).labels(&["provider", "reason"]);
}

pub(super) struct Metrics {
    pub(super) sync_duration: Histogram,
    calls: IntCounterVec,
    held: IntGaugeVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics {
            sync_duration: SYNC_DURATION.register(registry)?,
            calls: CALLS.register(registry)?,
            held: HELD.register(registry)?,
        })
    }

    /// Counts one answer (LIFE-10). One read here replaces two calls upstream.
    pub(super) fn count_answer(&self, observation: &Result<Ownership, Error>) {
        let exists = match observation {
            Ok(Ownership::Owned { state: InstanceState::Gone, .. } | Ownership::NoOwner(NoOwner::Unclaimed)) => {
                "instance_not_found"
            }
            // upstream: a provider without an answer counts as one that found the instance.
            Ok(Ownership::Owned { .. } | Ownership::NoOwner(_)) => "success",
            Err(error) if error.known_state().is_some() => "success",
            Err(error) => match error.kind() {
                ErrorKind::Unsupported => "not_implemented",
                ErrorKind::NotFound => "instance_not_found",
                ErrorKind::Cancelled => "canceled",
                _ => "error",
            },
        };
        self.calls.with_label_values(&["instance_exists", exists]).inc();
        let is_seen = match observation {
            Ok(Ownership::Owned { state, .. }) => state.instance().is_some(),
            Ok(Ownership::NoOwner(_)) => false,
            Err(error) => error.known_state().is_some(),
        };
        if is_seen {
            self.calls.with_label_values(&["instance_shutdown", "success"]).inc();
        }
    }

    /// Sets the gauge to the Nodes that are held back now.
    pub(super) fn set_held<'a>(&self, held: impl Iterator<Item = &'a Held>) {
        self.held.reset();
        for held in held {
            self.held.with_label_values(&[&*held.provider, held.reason.as_str()]).inc();
        }
    }
}
