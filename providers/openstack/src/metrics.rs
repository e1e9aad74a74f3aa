//! Metrics, with the names of the Go manager.

use std::time::Duration;

use bowline_cloud::{SyncMetricNames, SyncMetrics, SyncPurpose, TimedCounter, register_or_replace};
use bowline_runtime::{Buckets, Instrument as _, Metric, metrics};
use prometheus::{IntCounterVec, Registry};

/// As in the Go manager.
const CALL_SECONDS: Buckets = Buckets::Listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

/// As in the Go manager.
const RECONCILE_SECONDS: Buckets = Buckets::Listed(&[
    0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0, 50.0, 75.0, 100.0,
    1000.0,
]);

metrics! {
    /// Metrics of OpenStack calls and load balancer syncs.
    pub(crate) METRICS;
    CALL_DURATIONS = Metric::histogram(
        "openstack_api_request_duration_seconds", "Duration of calls; a list with all its pages is one call.", CALL_SECONDS,
    ).labels(&["request"]);
    CALLS = Metric::counter("openstack_api_requests_total", "Calls to OpenStack; a list with all its pages is one call.")
        .labels(&["request"]);
    CALL_ERRORS = Metric::counter(
        "openstack_api_request_errors_total", "Failed calls; deleting a missing resource is not a failure.",
    ).labels(&["request"]);
    RECONCILE_DURATIONS = Metric::histogram(
        "cloudprovider_openstack_reconcile_duration_seconds", "Duration of load balancer syncs.", RECONCILE_SECONDS,
    ).labels(&["operation"]);
    RECONCILES = Metric::counter("cloudprovider_openstack_reconcile_total", "Load balancer syncs.").labels(&["operation"]);
    RECONCILE_ERRORS = Metric::counter(
        "cloudprovider_openstack_reconcile_errors_total", "Failed load balancer syncs.",
    ).labels(&["operation"]);
}

/// Metrics of all providers of one factory. Clones share their counters.
#[derive(Clone)]
pub(crate) struct Metrics {
    calls: TimedCounter,
    call_errors: IntCounterVec,
    pub(crate) syncs: SyncMetrics,
}

const SYNCS: SyncMetricNames =
    SyncMetricNames { durations: &RECONCILE_DURATIONS, total: &RECONCILES, errors: &RECONCILE_ERRORS, label };

impl Metrics {
    /// Creates unregistered metrics.
    pub(crate) fn new() -> Metrics {
        Metrics {
            calls: valid(TimedCounter::new(&CALLS, &CALL_DURATIONS)),
            call_errors: valid(IntCounterVec::make(&CALL_ERRORS, None)),
            syncs: valid(SyncMetrics::new(&SYNCS)),
        }
    }

    /// Registers them; repeated calls have no effect.
    pub(crate) fn register(&self, registry: &Registry) {
        let outcome = self
            .calls
            .register(registry)
            .and_then(|()| register_or_replace(registry, &self.call_errors))
            .and_then(|()| self.syncs.register(registry));
        if let Err(error) = outcome {
            tracing::warn!(%error, "some OpenStack metrics will be missing");
        }
    }

    /// Records the duration and outcome of a call.
    pub(crate) fn called(&self, request: &str, took: Duration, failed: bool) {
        self.calls.record(&[request], took);
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

/// Metrics of constants either always succeed or never, and the tests create them.
#[allow(clippy::expect_used)] // no input reaches it
fn valid<T>(create: prometheus::Result<T>) -> T {
    create.expect("names, labels and buckets of the metrics are valid")
}
