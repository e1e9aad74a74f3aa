//! Metrics of load balancer syncs under names that a provider declares, usually those of the Go manager that it replaces.

use std::time::Duration;

use bowline_runtime::{Instrument, Metric};
use prometheus::core::Collector;
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// Purpose of a load balancer sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncPurpose {
    /// Create or update the load balancer.
    Ensure,
    /// Update its targets after a change of the Nodes.
    UpdateTargets,
    /// Delete it.
    Delete,
}

/// Metrics in which syncs are recorded. Each has one label, the purpose.
#[derive(Debug, Clone, Copy)]
pub struct SyncMetricNames {
    /// Histogram of the seconds from the first observation to the end, including the time spent waiting for the cloud.
    pub durations: &'static Metric,
    /// Counter of syncs.
    pub total: &'static Metric,
    /// Counter of failed syncs.
    pub errors: &'static Metric,
    /// Returns the value of the label.
    pub label: fn(SyncPurpose) -> &'static str,
}

/// Collectors of the declared metrics. Clones share their values, and so do all clouds whose providers share one instance.
#[derive(Clone)]
pub struct SyncMetrics {
    durations: HistogramVec,
    total: IntCounterVec,
    errors: IntCounterVec,
    label: fn(SyncPurpose) -> &'static str,
}

impl SyncMetrics {
    /// Creates unregistered metrics. Fails if a declaration is invalid.
    pub fn new(names: &SyncMetricNames) -> prometheus::Result<SyncMetrics> {
        Ok(SyncMetrics {
            durations: HistogramVec::make(names.durations, None)?,
            total: IntCounterVec::make(names.total, None)?,
            errors: IntCounterVec::make(names.errors, None)?,
            label: names.label,
        })
    }

    /// Registers the metrics, and replaces others of the same names.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        register_or_replace(registry, &self.durations)?;
        register_or_replace(registry, &self.total)?;
        register_or_replace(registry, &self.errors)
    }

    /// Records a finished sync.
    pub fn record(&self, purpose: SyncPurpose, took: Duration, failed: bool) {
        let label = &[(self.label)(purpose)];
        self.durations.with_label_values(label).observe(took.as_secs_f64());
        self.total.with_label_values(label).inc();
        if failed {
            self.errors.with_label_values(label).inc();
        }
    }
}

impl std::fmt::Debug for SyncMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncMetrics").finish_non_exhaustive()
    }
}

/// Registers a collector, and replaces one of the same name.
pub fn register_or_replace<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: &C,
) -> prometheus::Result<()> {
    match registry.register(Box::new(collector.clone())) {
        Err(prometheus::Error::AlreadyReg) => {
            registry.unregister(Box::new(collector.clone()))?;
            registry.register(Box::new(collector.clone()))
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use bowline_runtime::{Buckets, metrics};

    use super::*;

    metrics! {
        /// Metrics of this test.
        pub METRICS;
        DURATIONS = Metric::histogram("test_seconds", "Time.", Buckets::Listed(&[1.0])).labels(&["operation"]);
        TOTAL = Metric::counter("test_total", "Syncs.").labels(&["operation"]);
        ERRORS = Metric::counter("test_errors_total", "Failed syncs.").labels(&["operation"]);
    }

    fn label(purpose: SyncPurpose) -> &'static str {
        if purpose == SyncPurpose::Delete { "delete" } else { "ensure" }
    }

    #[test]
    fn syncs_are_counted_by_purpose_under_the_declared_names() {
        assert_eq!(METRICS.len(), 3);
        let names = SyncMetricNames { durations: &DURATIONS, total: &TOTAL, errors: &ERRORS, label };
        let (metrics, registry) = (SyncMetrics::new(&names).unwrap(), Registry::new());
        metrics.register(&registry).unwrap();
        metrics.register(&registry).unwrap();
        metrics.record(SyncPurpose::Ensure, Duration::from_secs(2), false);
        metrics.clone().record(SyncPurpose::Delete, Duration::ZERO, true);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "test_total{operation=\"ensure\"} 1",
            "test_total{operation=\"delete\"} 1",
            "test_errors_total{operation=\"delete\"} 1",
            "test_seconds_sum{operation=\"ensure\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("test_errors_total{operation=\"ensure\"}"), "{text}");
    }
}
