//! What is counted, under the names of the Go manager.

use std::time::Duration;

use bowline_cloud::{SyncMetricNames, SyncMetrics, SyncPurpose, share};
use bowline_runtime::{Bounds, Instrument, Metric, metrics};
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// As in the Go manager.
const CALL_SECONDS: Bounds = Bounds::Listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

/// As in the Go manager.
const RECONCILE_SECONDS: Bounds = Bounds::Listed(&[
    0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0, 50.0, 75.0, 100.0,
    1000.0,
]);

metrics! {
    /// What is counted of calls to OpenStack, and of what they were for.
    pub(crate) METRICS;
    CALL_DURATIONS = Metric::histogram(
        "openstack_api_request_duration_seconds", "Time that a call took; a list with all its pages is one.", CALL_SECONDS,
    ).labels(&["request"]);
    CALLS = Metric::counter("openstack_api_requests_total", "Calls to OpenStack; a list with all its pages is one.")
        .labels(&["request"]);
    CALL_ERRORS = Metric::counter(
        "openstack_api_request_errors_total", "Calls that failed; that nothing was there to delete is no failure.",
    ).labels(&["request"]);
    RECONCILE_DURATIONS = Metric::histogram(
        "cloudprovider_openstack_reconcile_duration_seconds", "Time that a change of a balancer took.", RECONCILE_SECONDS,
    ).labels(&["operation"]);
    RECONCILES = Metric::counter("cloudprovider_openstack_reconcile_total", "Changes of balancers.").labels(&["operation"]);
    RECONCILE_ERRORS = Metric::counter(
        "cloudprovider_openstack_reconcile_errors_total", "Changes of balancers that failed.",
    ).labels(&["operation"]);
}

/// The metrics of all providers that one factory makes. Clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    call_durations: HistogramVec,
    calls: IntCounterVec,
    call_errors: IntCounterVec,
    pub(crate) syncs: SyncMetrics,
}

const SYNCS: SyncMetricNames =
    SyncMetricNames { durations: &RECONCILE_DURATIONS, total: &RECONCILES, errors: &RECONCILE_ERRORS, label };

impl Metrics {
    /// At zero, and registered nowhere.
    pub(crate) fn new() -> Metrics {
        Metrics {
            call_durations: made(&CALL_DURATIONS),
            calls: made(&CALLS),
            call_errors: made(&CALL_ERRORS),
            syncs: valid(SyncMetrics::new(&SYNCS)),
        }
    }

    /// Shown by this registry too, however often that is said.
    pub(crate) fn register(&self, registry: &Registry) {
        let outcome = share(registry, &self.call_durations)
            .and_then(|()| share(registry, &self.calls))
            .and_then(|()| share(registry, &self.call_errors))
            .and_then(|()| self.syncs.register(registry));
        if let Err(error) = outcome {
            tracing::warn!(%error, "some metrics of OpenStack will be missing");
        }
    }

    /// A call took so long, and failed or not.
    pub(crate) fn called(&self, request: &str, took: Duration, failed: bool) {
        self.call_durations.with_label_values(&[request]).observe(took.as_secs_f64());
        self.calls.with_label_values(&[request]).inc();
        if failed {
            self.call_errors.with_label_values(&[request]).inc();
        }
    }
}

fn label(purpose: SyncPurpose) -> &'static str {
    match purpose {
        SyncPurpose::Ensure => "loadbalancer_ensure",
        SyncPurpose::UpdateTargets => "loadbalancer_update",
        SyncPurpose::Delete => "loadbalancer_delete",
    }
}

fn made<I: Instrument>(metric: &Metric) -> I {
    valid(I::make(metric, None))
}

/// What is made of constants alone either always works or never does, and the tests make it.
#[allow(clippy::expect_used)] // no input reaches it
fn valid<T>(made: prometheus::Result<T>) -> T {
    made.expect("names, labels and buckets of the metrics are valid")
}
