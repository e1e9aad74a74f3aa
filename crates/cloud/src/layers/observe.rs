//! The outermost layer: every operation is traced, counted and timed. Also the metrics of the cache.

use std::future::Future;

use bowline_runtime::{Bounds, Instrument, Metric, metrics};
use prometheus::{HistogramVec, IntCounter, IntCounterVec};
use tokio::time::Instant;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

use crate::Error;
use crate::layers::operation::Operation;
pub(crate) use crate::sync_metrics::share;

/// From quick local answers to the time after which a call is given up.
pub(crate) const SECONDS: Bounds =
    Bounds::Listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0]);

metrics! {
    /// What the layers around clouds count.
    pub METRICS;
    REQUESTS = Metric::counter("bowline_cloud_requests_total", "Questions and wishes put to a provider, by how they ended.")
        .owned_by("provider").labels(&["operation", "result"]);
    DURATIONS = Metric::histogram(
        "bowline_cloud_request_duration_seconds", "Time from question to answer, waits and retries included.", SECONDS,
    ).owned_by("provider").labels(&["operation"]);
    HITS = Metric::counter("bowline_cloud_cache_hits_total", "Questions answered from memory.").owned_by("provider");
    MISSES = Metric::counter("bowline_cloud_cache_misses_total", "Questions that memory could have answered and did not.")
        .owned_by("provider");
}

/// What the layers around one provider count.
pub(crate) struct Metrics {
    provider: String,
    requests: IntCounterVec,
    durations: HistogramVec,
    hits: IntCounter,
    misses: IntCounter,
}

impl Metrics {
    /// Registered with `registry`. The provider's name is a constant label: so each provider has collectors of its own,
    /// and the registry joins them into one family.
    pub(crate) fn new(provider: &str, registry: &prometheus::Registry) -> Metrics {
        let metrics = Metrics {
            provider: provider.to_owned(),
            requests: made(&REQUESTS, provider),
            durations: made(&DURATIONS, provider),
            hits: made(&HITS, provider),
            misses: made(&MISSES, provider),
        };
        if let Err(error) = metrics.register(registry) {
            tracing::warn!(cloud = provider, %error, "some metrics of the provider will be missing");
        }
        metrics
    }

    fn register(&self, registry: &prometheus::Registry) -> prometheus::Result<()> {
        share(registry, &self.requests)?;
        share(registry, &self.durations)?;
        share(registry, &self.hits)?;
        share(registry, &self.misses)
    }

    /// Whose these are.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Counts and times one question; `failure` finds the error in its answer.
    pub(crate) async fn observe<T>(
        &self,
        operation: Operation,
        question: impl Future<Output = T>,
        failure: impl Fn(&T) -> Option<&Error>,
    ) -> T {
        let begun = Instant::now();
        let (cloud, op) = (self.provider.as_str(), operation.label());
        let span = tracing::info_span!("cloud", otel.kind = "client", cloud, op, result = Empty, error = Empty);
        let answer = question.instrument(span.clone()).await;
        let took = begun.elapsed();
        let result = outcome(failure(&answer));
        span.record("result", result);
        if let Some(error) = failure(&answer) {
            span.record("error", display(error));
        }
        self.requests.with_label_values(&[operation.label(), result]).inc();
        self.durations.with_label_values(&[operation.label()]).observe(took.as_secs_f64());
        tracing::debug!(cloud, op, result, duration = ?took, "asked the cloud");
        answer
    }

    /// Memory answered a question, or could not.
    pub(crate) fn remembered(&self, hit: bool) {
        if hit { self.hits.inc() } else { self.misses.inc() }
    }
}

pub(crate) fn outcome(failure: Option<&Error>) -> &'static str {
    failure.map_or("ok", |error| error.kind().as_str())
}

/// What is made of constants alone either always works or never does, and the tests make it.
#[allow(clippy::expect_used)] // no input reaches it
pub(crate) fn made<I: Instrument>(metric: &Metric, provider: &str) -> I {
    I::make(metric, Some(provider)).expect("names, labels and buckets of the metrics are valid")
}
