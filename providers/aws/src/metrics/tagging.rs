//! Metrics of the controller `tagging`, with the names of the Go manager.

use std::time::Duration;

use bowline_cloud::register_or_replace;
use bowline_runtime::Instrument as _;
use prometheus::{Histogram, IntCounterVec, Registry};

use super::{TAGGING_DELAY, TAGGING_ERRORS};

/// Number of failures after which the Go manager gives up.
const MAX_ATTEMPTS: u32 = 9;

/// Metrics of the controllers of one factory. Clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct TaggingMetrics {
    errors: IntCounterVec,
    delay: Histogram,
}

impl TaggingMetrics {
    /// Creates unregistered metrics.
    pub(crate) fn new() -> Result<TaggingMetrics, prometheus::Error> {
        Ok(TaggingMetrics {
            errors: IntCounterVec::make(&TAGGING_ERRORS, None)?,
            delay: Histogram::make(&TAGGING_DELAY, None)?,
        })
    }

    /// Registers the metrics; repeated calls replace them.
    pub(crate) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        register_or_replace(registry, &self.errors)?;
        register_or_replace(registry, &self.delay)
    }

    /// Records a failure, and the number of failures of this instance in a row.
    pub(crate) fn failed(&self, instance: &str, failures: u32) {
        self.errors.with_label_values(&["total_errors", instance]).inc();
        if failures == MAX_ATTEMPTS {
            self.errors.with_label_values(&["errors_after_retries_exhausted", instance]).inc();
        }
    }

    /// Records that the instance of a Node of this age got the tags.
    pub(crate) fn tagged(&self, age: Duration) {
        self.delay.observe(age.as_secs_f64());
    }
}
