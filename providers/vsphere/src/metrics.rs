//! Metrics of API calls and of lookups, with the names of the Go manager, which declares them and never fills them.

use std::time::Duration;

use bowline_cloud::{Result, register_or_replace};
use bowline_runtime::{Buckets, Instrument as _, Metric, metrics};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use tokio::time::Instant;

/// As in the Go manager.
const SECONDS: Buckets = Buckets::Listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

metrics! {
    /// Metrics of API calls and of lookups.
    pub(crate) METRICS;
    REQUESTS = Metric::histogram(
        "cloudprovider_vsphere_api_request_duration_seconds", "Duration of successful calls of vCenter.", SECONDS,
    ).labels(&["request"]);
    REQUEST_ERRORS = Metric::counter("cloudprovider_vsphere_api_request_errors", "Failed calls of vCenter.")
        .labels(&["request"]);
    OPERATIONS = Metric::histogram(
        "cloudprovider_vsphere_operation_duration_seconds", "Duration of successful lookups in one vCenter.", SECONDS,
    ).labels(&["operation"]);
    OPERATION_ERRORS = Metric::counter("cloudprovider_vsphere_operation_errors", "Failed lookups in one vCenter.")
        .labels(&["operation"]);
}

/// Metrics of all providers of one factory. Clones share their counters.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Timed,
    operations: Timed,
}

/// Durations of what succeeded, and the number of failures.
#[derive(Clone)]
struct Timed {
    durations: HistogramVec,
    errors: IntCounterVec,
}

impl Metrics {
    /// Creates unregistered metrics.
    pub(crate) fn new() -> Metrics {
        let timed = |durations, errors| Timed {
            durations: valid(HistogramVec::make(durations, None)),
            errors: valid(IntCounterVec::make(errors, None)),
        };
        Metrics { requests: timed(&REQUESTS, &REQUEST_ERRORS), operations: timed(&OPERATIONS, &OPERATION_ERRORS) }
    }

    /// Registers them; repeated calls have no effect.
    pub(crate) fn register(&self, registry: &Registry) {
        for Timed { durations, errors } in [&self.requests, &self.operations] {
            let outcome = register_or_replace(registry, durations).and_then(|()| register_or_replace(registry, errors));
            if let Err(error) = outcome {
                tracing::warn!(%error, "some vSphere metrics will be missing");
            }
        }
    }

    /// Makes a call and records it, with all its attempts.
    pub(crate) async fn request<T>(&self, name: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.requests.measure(name, call).await
    }

    /// Runs a lookup in one vCenter and records it.
    pub(crate) async fn operation<T>(&self, name: &str, lookup: impl Future<Output = Result<T>>) -> Result<T> {
        self.operations.measure(name, lookup).await
    }
}

impl Timed {
    async fn measure<T>(&self, name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let begun = Instant::now();
        let outcome = work.await;
        self.record(name, begun.elapsed(), outcome.is_ok());
        outcome
    }

    fn record(&self, name: &str, took: Duration, succeeded: bool) {
        match succeeded {
            true => self.durations.with_label_values(&[name]).observe(took.as_secs_f64()),
            false => self.errors.with_label_values(&[name]).inc(),
        }
    }
}

/// Metrics of constants either always succeed or never, and the tests create them.
#[allow(clippy::expect_used)] // no input reaches it
fn valid<T>(created: prometheus::Result<T>) -> T {
    created.expect("names, labels and buckets of the metrics are valid")
}

#[cfg(test)]
mod tests {
    use bowline_cloud::{Error, ErrorKind};

    use super::*;

    #[tokio::test]
    async fn calls_and_lookups_are_recorded_with_the_names_of_the_go_manager() {
        let (metrics, registry) = (Metrics::new(), Registry::new());
        metrics.register(&registry);
        metrics.register(&registry);
        let failed = || async { Err::<(), _>(Error::new(ErrorKind::Unavailable, "x", "y")) };
        let _ = metrics.request("Login", async { Ok(()) }).await;
        let _ = metrics.request("Login", failed()).await;
        let _ = metrics.operation("list", async { Ok(()) }).await;
        let _ = metrics.operation("search", failed()).await;
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let is_counter =
            |line: &&str| line.starts_with("cloudprovider") && !line.contains("_bucket") && !line.contains("_sum");
        let counts: Vec<_> = text.lines().filter(is_counter).collect();
        assert_eq!(
            counts,
            [
                r#"cloudprovider_vsphere_api_request_duration_seconds_count{request="Login"} 1"#,
                r#"cloudprovider_vsphere_api_request_errors{request="Login"} 1"#,
                r#"cloudprovider_vsphere_operation_duration_seconds_count{operation="list"} 1"#,
                r#"cloudprovider_vsphere_operation_errors{operation="search"} 1"#,
            ]
        );
    }
}
