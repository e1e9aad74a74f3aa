//! Metrics of the firewall loop, with the names of the Go manager.

use std::future::Future;
use std::time::Duration;

use bowline_cloud::{Error, Result, TimedCounter};
use bowline_runtime::{Buckets, Metric, metrics};
use prometheus::Registry;
use tokio::time::Instant;

// As in the Go manager.
const CALL_SECONDS: Buckets = Buckets::Linear { first: 1.0, width: 4.5, count: 21 };
const RUN_SECONDS: Buckets = Buckets::Linear { first: 1.0, width: 15.0, count: 21 };

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

/// An API operation on the firewall: its name, and the status of a successful response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation(&'static str, &'static str);

impl Operation {
    pub(crate) const GET_BY_ID: Operation = Operation("get_by_id", "200");
    pub(crate) const GET_BY_LIST: Operation = Operation("get_by_list", "200");
    pub(crate) const CREATE: Operation = Operation("create", "202");
    pub(crate) const UPDATE: Operation = Operation("update", "200");
}

/// Metrics of all providers of one factory. Clones share their counters.
#[derive(Clone)]
pub(crate) struct Metrics {
    calls: TimedCounter,
    refreshes: TimedCounter,
    reconciles: TimedCounter,
}

impl Metrics {
    /// Creates unregistered metrics.
    pub(crate) fn new() -> Metrics {
        Metrics {
            calls: create(&CALLS, &CALL_DURATIONS),
            refreshes: create(&REFRESHES, &REFRESH_DURATIONS),
            reconciles: create(&RECONCILES, &RECONCILE_DURATIONS),
        }
    }

    /// Registers them; repeated calls have no effect.
    pub(crate) fn register(&self, registry: &Registry) {
        for metrics in [&self.calls, &self.refreshes, &self.reconciles] {
            if let Err(error) = metrics.register(registry) {
                tracing::warn!(%error, "some metrics of the firewall loop will be missing");
            }
        }
    }

    /// Makes a call and records it. `is_found` decides whether a response counts as a success.
    pub(crate) async fn measure<T>(
        &self,
        Operation(operation, status): Operation,
        call: impl Future<Output = Result<T>>,
        is_found: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let begun = Instant::now();
        let outcome = call.await;
        let (result, code) = match &outcome {
            Ok(found) if is_found(found) => ("succeeded", status.to_owned()),
            Ok(_) => ("failed", "404".to_owned()),
            Err(error) => ("failed", error.status().map(|status| status.to_string()).unwrap_or_default()),
        };
        self.calls.record(&[operation, result, &code], begun.elapsed());
        outcome
    }

    /// Records a read of the firewall.
    pub(crate) fn refreshed(&self, took: Duration, succeeded: bool) {
        self.refreshes.record(&[if succeeded { "updated" } else { "failed" }], took);
    }

    /// Records a reconciliation.
    pub(crate) fn reconciled(&self, took: Duration, result: &str, error: Option<&Error>) {
        let error_type = match error {
            None => "",
            Some(error) if error.status().is_none() && error.message().contains("no response within") => "timeout",
            Some(_) => "generic",
        };
        self.reconciles.record(&[result, error_type], took);
    }
}

/// Creates collectors. The declarations are constants, and the tests create all of them.
#[allow(clippy::expect_used)] // no input reaches it
fn create(total: &Metric, durations: &Metric) -> TimedCounter {
    TimedCounter::new(total, durations).expect("names, labels and buckets of the metrics are valid")
}
