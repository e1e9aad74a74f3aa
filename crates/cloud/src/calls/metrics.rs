//! Measurements of the calls to one cloud, which are metrics as soon as the cloud has a name.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_runtime::{Bounds, Metric, metrics};
use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge};

use super::Call;
use crate::Error;
use crate::layers::observe::{SECONDS, made, outcome, share};

metrics! {
    /// Metrics of the calls to clouds.
    pub METRICS;
    CALLS = Metric::counter("bowline_cloud_calls_total", "HTTP calls to the cloud, each attempt counted, by how they ended.")
        .owned_by("provider").labels(&["call", "result"]);
    CALL_DURATIONS = Metric::histogram(
        "bowline_cloud_call_duration_seconds", "Duration of one HTTP call to the cloud.", SECONDS,
    ).owned_by("provider").labels(&["call"]);
    CALLS_UNDER_WAY = Metric::gauge("bowline_cloud_calls_under_way", "HTTP calls to the cloud that have not been answered yet.")
        .owned_by("provider");
    PAUSES = Metric::histogram(
        "bowline_cloud_pause_seconds",
        "Pauses that the cloud has asked for (Retry-After), cut to five minutes.",
        Bounds::Listed(&[1.0, 5.0, 15.0, 60.0, 300.0]),
    ).owned_by("provider");
    THROTTLE_WAIT = Metric::histogram(
        "bowline_cloud_throttle_wait_seconds", "Time that a call waited for its turn under our own limits.", SECONDS,
    ).owned_by("provider");
}

/// Measurements of the calls to one cloud.
#[derive(Default)]
pub(super) struct Measurements {
    named: OnceLock<Named>,
    under_way: AtomicUsize,
}

/// Metrics under the name of a cloud.
struct Named {
    cloud: String,
    calls: IntCounterVec,
    durations: HistogramVec,
    under_way: IntGauge,
    throttle_wait: Histogram,
    pauses: Histogram,
}

/// A call that is under way until this is dropped, however it ends.
pub(super) struct UnderWay<'a>(&'a Measurements);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.named.get().iter().for_each(|named| named.under_way.dec());
    }
}

impl Measurements {
    /// Registers the metrics; the name of the cloud is a constant label, so that the clouds of a process share the families.
    pub(super) fn register(&self, cloud: &str, registry: &prometheus::Registry) {
        let named = self.named.get_or_init(|| Named {
            cloud: cloud.to_owned(),
            calls: made(&CALLS, cloud),
            durations: made(&CALL_DURATIONS, cloud),
            under_way: made(&CALLS_UNDER_WAY, cloud),
            throttle_wait: made(&THROTTLE_WAIT, cloud),
            pauses: made(&PAUSES, cloud),
        });
        let registered = share(registry, &named.calls)
            .and_then(|()| share(registry, &named.durations))
            .and_then(|()| share(registry, &named.under_way))
            .and_then(|()| share(registry, &named.throttle_wait))
            .and_then(|()| share(registry, &named.pauses));
        if let Err(error) = registered {
            tracing::warn!(cloud, %error, "some metrics of calls to the cloud will be missing");
        }
    }

    /// Name of the cloud, if it has one.
    pub(super) fn cloud(&self) -> Option<&str> {
        self.named.get().map(|named| named.cloud.as_str())
    }

    /// Counts a call as under way.
    pub(super) fn under_way(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.named.get().iter().for_each(|named| named.under_way.inc());
        UnderWay(self)
    }

    /// Counts a call that has ended.
    pub(super) fn called(&self, call: Call, took: Duration, failure: Option<&Error>) {
        if let Some(named) = self.named.get() {
            named.calls.with_label_values(&[call.name, outcome(failure)]).inc();
            named.durations.with_label_values(&[call.name]).observe(took.as_secs_f64());
        }
    }

    /// Records how long a call waited for its turn.
    pub(super) fn waited(&self, wait: Duration) {
        self.named.get().iter().for_each(|named| named.throttle_wait.observe(wait.as_secs_f64()));
    }

    /// Records a pause that the cloud has asked for.
    pub(super) fn paused(&self, pause: Duration) {
        self.named.get().iter().for_each(|named| named.pauses.observe(pause.as_secs_f64()));
    }

    /// Number of calls that are under way.
    pub(super) fn calls_under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }
}
