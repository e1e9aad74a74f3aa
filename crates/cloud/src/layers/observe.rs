//! The outermost layer: traces, counts and times every operation. Also has the metrics of the cache.

use std::future::Future;

use bowline_runtime::{Buckets, Instrument, Metric, metrics};
use prometheus::{HistogramVec, IntCounter, IntCounterVec};
use tokio::time::Instant;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

use crate::Error;
use crate::layers::operation::Operation;
pub(crate) use crate::sync_metrics::register_or_replace;

/// Histogram buckets from fast local responses to the timeout of a call.
pub(crate) const SECONDS: Buckets =
    Buckets::Listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0]);

metrics! {
    /// Metrics of the layers.
    pub METRICS;
    REQUESTS = Metric::counter("bowline_cloud_requests_total", "Operations of a provider by result.")
        .const_label("provider").labels(&["operation", "result"]);
    DURATIONS = Metric::histogram(
        "bowline_cloud_request_duration_seconds", "Duration of an operation of a provider, including waits and retries.", SECONDS,
    ).const_label("provider").labels(&["operation"]);
    HITS = Metric::counter("bowline_cloud_cache_hits_total", "Lookups answered from the cache.").const_label("provider");
    MISSES = Metric::counter("bowline_cloud_cache_misses_total", "Lookups that the cache could not answer although a cached result was acceptable.")
        .const_label("provider");
}

/// Metrics of the layers of one provider.
pub(crate) struct Metrics {
    provider: String,
    requests: IntCounterVec,
    durations: HistogramVec,
    hits: IntCounter,
    misses: IntCounter,
}

impl Metrics {
    /// Creates and registers the metrics. The provider's name is a constant label, so each provider has its own collectors, and the
    /// registry joins them into one family.
    pub(crate) fn new(provider: &str, registry: &prometheus::Registry) -> Metrics {
        let metrics = Metrics {
            provider: provider.to_owned(),
            requests: create(&REQUESTS, provider),
            durations: create(&DURATIONS, provider),
            hits: create(&HITS, provider),
            misses: create(&MISSES, provider),
        };
        if let Err(error) = metrics.register(registry) {
            tracing::warn!(cloud = provider, %error, "cannot register some metrics of the provider");
        }
        metrics
    }

    fn register(&self, registry: &prometheus::Registry) -> prometheus::Result<()> {
        register_or_replace(registry, &self.requests)?;
        register_or_replace(registry, &self.durations)?;
        register_or_replace(registry, &self.hits)?;
        register_or_replace(registry, &self.misses)
    }

    /// Returns the name of the provider.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Counts and times one operation; `failure` returns the error in its output.
    pub(crate) async fn observe<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = T>,
        failure: impl Fn(&T) -> Option<&Error>,
    ) -> T {
        let begun = Instant::now();
        let (cloud, op) = (self.provider.as_str(), operation.label());
        let span = tracing::info_span!("cloud", otel.kind = "client", cloud, op, result = Empty, error = Empty);
        let output = work.instrument(span.clone()).await;
        let took = begun.elapsed();
        let result = outcome(failure(&output));
        span.record("result", result);
        if let Some(error) = failure(&output) {
            span.record("error", display(error));
        }
        self.requests.with_label_values(&[operation.label(), result]).inc();
        self.durations.with_label_values(&[operation.label()]).observe(took.as_secs_f64());
        tracing::debug!(cloud, op, result, duration = ?took, "cloud operation finished");
        output
    }

    /// Counts a cache hit or miss.
    pub(crate) fn record_cache_lookup(&self, hit: bool) {
        if hit { self.hits.inc() } else { self.misses.inc() }
    }
}

pub(crate) fn outcome(failure: Option<&Error>) -> &'static str {
    failure.map_or("ok", |error| error.kind().as_str())
}

/// Creates a collector. The declarations are constants, and the tests create all of them.
#[allow(clippy::expect_used)] // no input reaches it
pub(crate) fn create<I: Instrument>(metric: &Metric, provider: &str) -> I {
    I::make(metric, Some(provider)).expect("names, labels and buckets of the metrics are valid")
}
