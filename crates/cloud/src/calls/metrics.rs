//! Measurements of the calls to one cloud. They become metrics once the cloud has a name.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_runtime::{Buckets, Metric, metrics};
use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::Call;
use crate::Error;
use crate::layers::observe::{SECONDS, create, outcome, register_or_replace};

metrics! {
    /// Metrics of the calls to clouds.
    pub METRICS;
    CALLS = Metric::counter("bowline_cloud_calls_total", "HTTP calls to the cloud by result; each attempt counts.")
        .const_label("provider").labels(&["call", "result"]);
    CALL_DURATIONS = Metric::histogram(
        "bowline_cloud_call_duration_seconds", "Duration of one HTTP call to the cloud.", SECONDS,
    ).const_label("provider").labels(&["call"]);
    CALLS_UNDER_WAY = Metric::gauge("bowline_cloud_calls_under_way", "HTTP calls to the cloud in progress.")
        .const_label("provider");
    PAUSES = Metric::histogram(
        "bowline_cloud_pause_seconds",
        "Pauses that the cloud requested (Retry-After), limited to five minutes.",
        Buckets::Listed(&[1.0, 5.0, 15.0, 60.0, 300.0]),
    ).const_label("provider");
    THROTTLE_WAIT = Metric::histogram(
        "bowline_cloud_throttle_wait_seconds", "Time that a call waited for the client-side rate limit.", SECONDS,
    ).const_label("provider");
    BUDGET = Metric::gauge(
        "bowline_cloud_call_budget_remaining", "HTTP calls that the cloud still accepts in this period, as it reports it.",
    ).const_label("provider").labels(&["service"]);
}

/// Measurements of the calls to one cloud.
#[derive(Default)]
pub(super) struct Measurements {
    named: OnceLock<Named>,
    in_progress: AtomicUsize,
}

/// Metrics under the name of a cloud.
struct Named {
    cloud: String,
    calls: IntCounterVec,
    durations: HistogramVec,
    in_progress: IntGauge,
    throttle_wait: Histogram,
    pauses: Histogram,
    budget: IntGaugeVec,
}

/// Counts a call as in progress until it is dropped.
pub(super) struct InProgress<'a>(&'a Measurements);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
        self.0.named.get().iter().for_each(|named| named.in_progress.dec());
    }
}

impl Measurements {
    /// Registers the metrics. The name of the cloud is a constant label, so all clouds of a process share the metric families.
    pub(super) fn register(&self, cloud: &str, registry: &prometheus::Registry) {
        let named = self.named.get_or_init(|| Named {
            cloud: cloud.to_owned(),
            calls: create(&CALLS, cloud),
            durations: create(&CALL_DURATIONS, cloud),
            in_progress: create(&CALLS_UNDER_WAY, cloud),
            throttle_wait: create(&THROTTLE_WAIT, cloud),
            pauses: create(&PAUSES, cloud),
            budget: create(&BUDGET, cloud),
        });
        let registered = register_or_replace(registry, &named.calls)
            .and_then(|()| register_or_replace(registry, &named.durations))
            .and_then(|()| register_or_replace(registry, &named.in_progress))
            .and_then(|()| register_or_replace(registry, &named.throttle_wait))
            .and_then(|()| register_or_replace(registry, &named.pauses))
            .and_then(|()| register_or_replace(registry, &named.budget));
        if let Err(error) = registered {
            tracing::warn!(cloud, %error, "cannot register some metrics of cloud calls");
        }
    }

    /// Returns the name of the cloud, if it has one.
    pub(super) fn cloud(&self) -> Option<&str> {
        self.named.get().map(|named| named.cloud.as_str())
    }

    /// Counts a call as in progress.
    pub(super) fn begin(&self) -> InProgress<'_> {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        self.named.get().iter().for_each(|named| named.in_progress.inc());
        InProgress(self)
    }

    /// Records a finished call.
    pub(super) fn record_call(&self, call: Call, took: Duration, failure: Option<&Error>) {
        if let Some(named) = self.named.get() {
            named.calls.with_label_values(&[call.name, outcome(failure)]).inc();
            named.durations.with_label_values(&[call.name]).observe(took.as_secs_f64());
        }
    }

    /// Records the time that a call waited for the rate limit.
    pub(super) fn record_wait(&self, wait: Duration) {
        self.named.get().iter().for_each(|named| named.throttle_wait.observe(wait.as_secs_f64()));
    }

    /// Records a pause that the cloud requested.
    pub(super) fn record_pause(&self, pause: Duration) {
        self.named.get().iter().for_each(|named| named.pauses.observe(pause.as_secs_f64()));
    }

    /// Records the number of calls that remain.
    pub(super) fn record_budget(&self, service: &str, remaining: u64) {
        let remaining = i64::try_from(remaining).unwrap_or(i64::MAX);
        self.named.get().iter().for_each(|named| named.budget.with_label_values(&[service]).set(remaining));
    }

    /// Returns the number of calls in progress.
    pub(super) fn calls_in_progress(&self) -> usize {
        self.in_progress.load(Ordering::Relaxed)
    }
}
