//! Metrics of the firewall loop, with the names of the Go manager.

use std::future::Future;
use std::time::Duration;

use bowline_cloud::{Error, Result, register_or_replace};
use bowline_runtime::{Buckets, Instrument, Metric, metrics};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use tokio::time::Instant;

/// As in the Go manager: 21 linear buckets of 4.5 s.
const CALL_SECONDS: Buckets = Buckets::Listed(&[
    1.0, 5.5, 10.0, 14.5, 19.0, 23.5, 28.0, 32.5, 37.0, 41.5, 46.0, 50.5, 55.0, 59.5, 64.0, 68.5, 73.0, 77.5, 82.0,
    86.5, 91.0,
]);

/// As in the Go manager: 21 linear buckets of 15 s.
const RUN_SECONDS: Buckets = Buckets::Listed(&[
    1.0, 16.0, 31.0, 46.0, 61.0, 76.0, 91.0, 106.0, 121.0, 136.0, 151.0, 166.0, 181.0, 196.0, 211.0, 226.0, 241.0,
    256.0, 271.0, 286.0, 301.0,
]);

metrics! {
    /// Metrics of the firewall loop.
    pub(crate) METRICS;
    CALL_DURATIONS = Metric::histogram(
        "firewall_api_operation_duration_seconds", "Duration of API operations on the managed firewall.", CALL_SECONDS,
    ).labels(&["operation", "result", "http_response_code"]);
    CALLS = Metric::counter("firewall_api_operations_total", "API operations on the managed firewall.")
        .labels(&["operation", "result", "http_response_code"]);
    REFRESH_DURATIONS = Metric::histogram(
        "firewall_resource_sync_duration_seconds", "Duration of reading the managed firewall.", RUN_SECONDS,
    ).labels(&["result"]);
    REFRESHES = Metric::counter("firewall_resource_syncs_total", "Reads of the managed firewall.").labels(&["result"]);
    RECONCILE_DURATIONS = Metric::histogram(
        "firewall_reconcile_duration_seconds", "Duration of reconciling the managed firewall.", RUN_SECONDS,
    ).labels(&["result", "error_type"]);
    RECONCILES = Metric::counter("firewall_reconciles_total", "Reconciliations of the managed firewall.")
        .labels(&["result", "error_type"]);
}

/// An API operation on the firewall.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    GetById,
    GetByList,
    Create,
    Update,
}

impl Operation {
    fn label(self) -> &'static str {
        match self {
            Operation::GetById => "get_by_id",
            Operation::GetByList => "get_by_list",
            Operation::Create => "create",
            Operation::Update => "update",
        }
    }

    /// Returns the status of a successful response.
    fn success(self) -> &'static str {
        match self {
            Operation::Create => "202",
            _ => "200",
        }
    }
}

/// Metrics of all providers of one factory. Clones share their counters.
#[derive(Clone)]
pub(crate) struct Metrics {
    call_durations: HistogramVec,
    calls: IntCounterVec,
    refresh_durations: HistogramVec,
    refreshes: IntCounterVec,
    reconcile_durations: HistogramVec,
    reconciles: IntCounterVec,
}

impl Metrics {
    /// Creates unregistered metrics.
    pub(crate) fn new() -> Metrics {
        Metrics {
            call_durations: create(&CALL_DURATIONS),
            calls: create(&CALLS),
            refresh_durations: create(&REFRESH_DURATIONS),
            refreshes: create(&REFRESHES),
            reconcile_durations: create(&RECONCILE_DURATIONS),
            reconciles: create(&RECONCILES),
        }
    }

    /// Registers them; repeated calls have no effect.
    pub(crate) fn register(&self, registry: &Registry) {
        let histograms = [&self.call_durations, &self.refresh_durations, &self.reconcile_durations];
        let counters = [&self.calls, &self.refreshes, &self.reconciles];
        let registered = histograms.into_iter().try_for_each(|histogram| register_or_replace(registry, histogram));
        let registered = registered
            .and_then(|()| counters.into_iter().try_for_each(|counter| register_or_replace(registry, counter)));
        if let Err(error) = registered {
            tracing::warn!(%error, "some metrics of the firewall loop will be missing");
        }
    }

    /// Makes a call and records it. A firewall that is not found by its ID counts as a failure.
    pub(crate) async fn measure<T: IsFound>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let outcome = call.await;
        let (result, code) = match &outcome {
            Ok(found) if found.is_found() || matches!(operation, Operation::GetByList) => {
                ("succeeded", operation.success().to_owned())
            }
            Ok(_) => ("failed", "404".to_owned()),
            Err(error) => ("failed", error.status().map(|status| status.to_string()).unwrap_or_default()),
        };
        let labels = [operation.label(), result, code.as_str()];
        self.calls.with_label_values(&labels).inc();
        self.call_durations.with_label_values(&labels).observe(begun.elapsed().as_secs_f64());
        outcome
    }

    /// Records a read of the firewall.
    pub(crate) fn refreshed(&self, took: Duration, succeeded: bool) {
        let result = if succeeded { "updated" } else { "failed" };
        self.refreshes.with_label_values(&[result]).inc();
        self.refresh_durations.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Records a reconciliation.
    pub(crate) fn reconciled(&self, took: Duration, result: &str, error: Option<&Error>) {
        let error_type = match error {
            None => "",
            Some(error) if error.status().is_none() && error.message().contains("no response within") => "timeout",
            Some(_) => "generic",
        };
        self.reconciles.with_label_values(&[result, error_type]).inc();
        self.reconcile_durations.with_label_values(&[result, error_type]).observe(took.as_secs_f64());
    }
}

/// Whether the response to a call has what was looked for.
pub(crate) trait IsFound {
    fn is_found(&self) -> bool;
}

impl<T> IsFound for Option<T> {
    fn is_found(&self) -> bool {
        self.is_some()
    }
}

impl IsFound for crate::api::Firewall {
    fn is_found(&self) -> bool {
        true
    }
}

/// Creates a collector. The declarations are constants, and the tests create all of them.
#[allow(clippy::expect_used)] // no input reaches it
fn create<I: Instrument>(metric: &Metric) -> I {
    I::make(metric, None).expect("names, labels and buckets of the metrics are valid")
}
