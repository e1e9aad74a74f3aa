//! A counter and a histogram of the same events, under names that a provider declares.

use std::time::Duration;

use bowline_runtime::{Instrument, Metric};
use prometheus::{HistogramVec, IntCounterVec, Registry};

use crate::register_or_replace;

/// Number and duration of events, with the same labels. Clones share their values, and so do all clouds whose providers share one
/// instance.
#[derive(Clone)]
pub struct TimedCounter {
    total: IntCounterVec,
    durations: HistogramVec,
}

impl TimedCounter {
    /// Creates unregistered metrics. Fails if `total` is not a counter or `durations` is not a histogram.
    pub fn new(total: &Metric, durations: &Metric) -> prometheus::Result<TimedCounter> {
        Ok(TimedCounter { total: IntCounterVec::make(total, None)?, durations: HistogramVec::make(durations, None)? })
    }

    /// Registers the metrics, and replaces others of the same names.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        register_or_replace(registry, &self.total)?;
        register_or_replace(registry, &self.durations)
    }

    /// Records an event with these values of the labels.
    pub fn record(&self, labels: &[&str], took: Duration) {
        self.total.with_label_values(labels).inc();
        self.durations.with_label_values(labels).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use bowline_runtime::Buckets;

    use super::*;

    const TOTAL: Metric = Metric::counter("test_total", "Calls.").labels(&["call"]);
    const DURATIONS: Metric = Metric::histogram("test_seconds", "Time.", Buckets::Listed(&[1.0])).labels(&["call"]);

    #[test]
    fn events_are_counted_and_timed_with_the_same_labels() {
        let (calls, registry) = (TimedCounter::new(&TOTAL, &DURATIONS).unwrap(), Registry::new());
        calls.register(&registry).unwrap();
        calls.register(&registry).unwrap();
        calls.record(&["get"], Duration::from_secs(2));
        calls.clone().record(&["get"], Duration::from_secs(1));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in ["test_total{call=\"get\"} 2", "test_seconds_sum{call=\"get\"} 3"] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(TimedCounter::new(&DURATIONS, &TOTAL).is_err());
    }
}
