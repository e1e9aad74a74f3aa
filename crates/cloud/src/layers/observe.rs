//! The outermost layer: every question is traced, counted and timed. Also the metrics of the layers below it.

use std::future::Future;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::{Empty, display};

use crate::Error;
use crate::layers::operation::Operation;

/// From quick local answers to the time after which a call is given up.
const SECONDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// What the layers around one provider count.
pub(crate) struct Metrics {
    provider: String,
    requests: IntCounterVec,
    durations: HistogramVec,
    calls: IntCounterVec,
    throttle_wait: Histogram,
    hits: IntCounter,
    misses: IntCounter,
}

impl Metrics {
    /// Registered with `registry`. The provider's name is a constant label: so each provider has collectors of its own,
    /// and the registry joins them into one family.
    pub(crate) fn new(provider: &str, registry: &prometheus::Registry) -> Metrics {
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("provider", provider);
        let seconds = |name: &str, help: &str| HistogramOpts::from(opts(name, help)).buckets(SECONDS.to_vec());
        let requests =
            opts("bowline_cloud_requests_total", "Questions and wishes put to a provider, by how they ended");
        let durations =
            seconds("bowline_cloud_request_duration_seconds", "Time from question to answer, retries included");
        let calls = opts("bowline_cloud_calls_total", "Attempts that reached the provider, by how they ended");
        let waits =
            seconds("bowline_cloud_throttle_wait_seconds", "Time a call waited for its turn under our own limits");
        let hits = opts("bowline_cloud_cache_hits_total", "Questions answered from memory");
        let misses = opts("bowline_cloud_cache_misses_total", "Questions that memory could have answered and did not");
        let metrics = Metrics {
            provider: provider.to_owned(),
            requests: valid(IntCounterVec::new(requests, &["operation", "result"])),
            durations: valid(HistogramVec::new(durations, &["operation"])),
            calls: valid(IntCounterVec::new(calls, &["operation", "result"])),
            throttle_wait: valid(Histogram::with_opts(waits)),
            hits: valid(IntCounter::with_opts(hits)),
            misses: valid(IntCounter::with_opts(misses)),
        };
        if let Err(error) = metrics.register(registry) {
            tracing::warn!(cloud = provider, %error, "some metrics of the provider will be missing");
        }
        metrics
    }

    fn register(&self, registry: &prometheus::Registry) -> prometheus::Result<()> {
        share(registry, &self.requests)?;
        share(registry, &self.durations)?;
        share(registry, &self.calls)?;
        share(registry, &self.throttle_wait)?;
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

    /// Counts one attempt that reached the provider.
    pub(crate) fn called(&self, operation: Operation, failure: Option<&Error>) {
        self.calls.with_label_values(&[operation.label(), outcome(failure)]).inc();
    }

    /// An attempt waited this long for its turn.
    pub(crate) fn waited(&self, wait: Duration) {
        self.throttle_wait.observe(wait.as_secs_f64());
    }

    /// Memory answered a question, or could not.
    pub(crate) fn remembered(&self, hit: bool) {
        if hit { self.hits.inc() } else { self.misses.inc() }
    }
}

fn outcome(failure: Option<&Error>) -> &'static str {
    failure.map_or("ok", |error| error.kind().as_str())
}

/// What is made of constants alone either always works or never does, and the tests make it.
#[allow(clippy::expect_used)] // no input reaches it
fn valid<T>(built: prometheus::Result<T>) -> T {
    built.expect("names, labels and buckets of the metrics are valid")
}

/// Registers, and takes the place of what a former provider of the same name has left there.
fn share<C: Collector + Clone + 'static>(registry: &prometheus::Registry, collector: &C) -> prometheus::Result<()> {
    match registry.register(Box::new(collector.clone())) {
        Err(prometheus::Error::AlreadyReg) => {
            registry.unregister(Box::new(collector.clone()))?;
            registry.register(Box::new(collector.clone()))
        }
        result => result,
    }
}
