//! Metrics of load balancer syncs under names that a provider declares: those of the manager that it replaces.

use std::time::Duration;

use bowline_runtime::{Instrument, Metric};
use prometheus::core::Collector;
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// What a sync of a load balancer was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncPurpose {
    /// To make it what its Service wants.
    Ensure,
    /// To make its targets what the Nodes are.
    UpdateTargets,
    /// To delete it.
    Delete,
}

/// Names under which syncs are counted. Each of the metrics has one label, the purpose.
#[derive(Debug, Clone, Copy)]
pub struct SyncMetricNames {
    /// A histogram: seconds from the first observation to the end, waiting for the cloud included.
    pub durations: &'static Metric,
    /// A counter: syncs.
    pub total: &'static Metric,
    /// A counter: those that failed.
    pub errors: &'static Metric,
    /// The label's value.
    pub label: fn(SyncPurpose) -> &'static str,
}

/// The metrics of these names. Clones count together, and so do all clouds whose providers share one of them.
#[derive(Clone)]
pub struct SyncMetrics {
    durations: HistogramVec,
    total: IntCounterVec,
    errors: IntCounterVec,
    label: fn(SyncPurpose) -> &'static str,
}

impl SyncMetrics {
    /// Metrics at zero, registered nowhere. An error if a name is not valid.
    pub fn new(names: &SyncMetricNames) -> prometheus::Result<SyncMetrics> {
        Ok(SyncMetrics {
            durations: HistogramVec::make(names.durations, None)?,
            total: IntCounterVec::make(names.total, None)?,
            errors: IntCounterVec::make(names.errors, None)?,
            label: names.label,
        })
    }

    /// Shown by this registry too, in the place of others of the same names.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        share(registry, &self.durations)?;
        share(registry, &self.total)?;
        share(registry, &self.errors)
    }

    /// Counts a sync that has ended.
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

/// Registers a collector, in the place of one of the same name.
pub fn share<C: Collector + Clone + 'static>(registry: &Registry, collector: &C) -> prometheus::Result<()> {
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
    use bowline_runtime::{Bounds, metrics};

    use super::*;

    metrics! {
        /// For this test.
        pub METRICS;
        DURATIONS = Metric::histogram("test_seconds", "Time.", Bounds::Listed(&[1.0])).labels(&["operation"]);
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
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
        assert!(!text.contains("test_errors_total{operation=\"ensure\"}"), "{text}");
    }
}
