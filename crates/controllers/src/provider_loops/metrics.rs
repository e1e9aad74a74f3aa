//! Metrics of the controller.

use std::time::Duration;

use bowline_runtime::{Buckets, Metric, metrics};
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// Seconds: some loops make two calls, others one per machine.
const DURATIONS: Buckets = Buckets::Listed(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0]);

metrics! {
    /// Metrics of background loops.
    pub METRICS;
    RUNS = Metric::counter(
        "bowline_provider_loop_runs_total",
        "Runs of a provider's background loop, by cloud, loop and result.",
    ).labels(&["cloud", "loop", "result"]);
    DURATION = Metric::histogram(
        "bowline_provider_loop_duration_seconds",
        "Duration of a run of a provider's background loop, by cloud and loop.",
        DURATIONS,
    ).labels(&["cloud", "loop"]);
}

pub(super) struct Metrics {
    runs: IntCounterVec,
    duration: HistogramVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics { runs: RUNS.register(registry)?, duration: DURATION.register(registry)? })
    }

    pub(super) fn ran(&self, cloud: &str, name: &str, took: Duration, succeeded: bool) {
        let result = if succeeded { "success" } else { "failure" };
        self.runs.with_label_values(&[cloud, name, result]).inc();
        self.duration.with_label_values(&[cloud, name]).observe(took.as_secs_f64());
    }
}
