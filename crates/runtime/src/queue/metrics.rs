//! The `workqueue_*` metrics with upstream's names and help texts, and one of Bowline's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, Gauge, GaugeVec, Histogram, HistogramVec, Registry};

use super::state::Ages;
use crate::metric::Instrument;
use crate::{Buckets, Metric, metrics};

/// Labels of all queue metrics.
const LABELS: &[&str] = &["name"];

/// From 10 ns to 10 s, each ten times the previous one.
const DURATIONS: Buckets = Buckets::Exponential { first: 1e-8, factor: 10.0, count: 10 };

metrics! {
    /// Metrics of work queues.
    pub METRICS;
    DEPTH = Metric::gauge("workqueue_depth", "Current depth of workqueue").labels(LABELS).beta();
    ADDS = Metric::counter("workqueue_adds_total", "Total number of adds handled by workqueue").labels(LABELS).beta();
    RETRIES = Metric::counter("workqueue_retries_total", "Total number of retries handled by workqueue").labels(LABELS).beta();
    QUEUE_DURATION = Metric::histogram(
        "workqueue_queue_duration_seconds",
        "How long in seconds an item stays in workqueue before being requested.",
        DURATIONS,
    ).labels(LABELS).beta();
    WORK_DURATION = Metric::histogram(
        "workqueue_work_duration_seconds",
        "How long in seconds processing an item from workqueue takes.",
        DURATIONS,
    ).labels(LABELS).beta();
    UNFINISHED_WORK = Metric::gauge(
        "workqueue_unfinished_work_seconds",
        "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values \
         indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
    ).labels(LABELS).beta();
    LONGEST_RUNNING = Metric::gauge(
        "workqueue_longest_running_processor_seconds",
        "How many seconds has the longest running processor for workqueue been running.",
    ).labels(LABELS).beta();
    OLDEST_WAITING = Metric::gauge(
        "bowline_queue_oldest_waiting_seconds",
        "Age of the oldest key that waits for a worker; keys in back-off do not count.",
    ).labels(LABELS);
}

/// Metrics of all queues of a process. Clones share their state.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: GaugeVec,
    adds: CounterVec,
    retries: CounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    unfinished_work: GaugeVec,
    longest_running: GaugeVec,
    oldest_waiting: GaugeVec,
    /// Queues whose gauges are computed on demand.
    queues: Arc<Mutex<Vec<Weak<dyn Watched>>>>,
}

/// A queue whose ages are exported.
pub(super) trait Watched: Send + Sync {
    /// Returns the label, which several queues may share, such as those of different clouds.
    fn name(&self) -> &'static str;
    /// Returns the current ages of its keys.
    fn ages(&self) -> Ages;
}

impl QueueMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<QueueMetrics> {
        let metrics = QueueMetrics {
            depth: Instrument::make(&DEPTH, None)?,
            adds: Instrument::make(&ADDS, None)?,
            retries: Instrument::make(&RETRIES, None)?,
            queue_duration: Instrument::make(&QUEUE_DURATION, None)?,
            work_duration: Instrument::make(&WORK_DURATION, None)?,
            unfinished_work: Instrument::make(&UNFINISHED_WORK, None)?,
            longest_running: Instrument::make(&LONGEST_RUNNING, None)?,
            oldest_waiting: Instrument::make(&OLDEST_WAITING, None)?,
            queues: Arc::default(),
        };
        registry.register(Box::new(metrics.clone()))?;
        Ok(metrics)
    }

    fn collectors(&self) -> [&dyn Collector; 8] {
        [
            &self.depth,
            &self.adds,
            &self.retries,
            &self.queue_duration,
            &self.work_duration,
            &self.unfinished_work,
            &self.longest_running,
            &self.oldest_waiting,
        ]
    }

    pub(super) fn watch(&self, queue: Weak<dyn Watched>) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue);
    }

    /// Returns the queues still in use, and drops the rest.
    pub(super) fn live_queues(&self) -> Vec<Arc<dyn Watched>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.iter().filter_map(Weak::upgrade).collect()
    }

    /// Updates the gauges. Queues with the same name are one series, with the sum of their work and the maximum of their ages.
    fn refresh(&self) {
        let mut by_name = BTreeMap::<&str, Ages>::new();
        for queue in self.live_queues() {
            let (all, one) = (by_name.entry(queue.name()).or_default(), queue.ages());
            all.in_work = all.in_work.saturating_add(one.in_work);
            all.longest_in_work = all.longest_in_work.max(one.longest_in_work);
            all.oldest_waiting = all.oldest_waiting.max(one.oldest_waiting);
        }
        for (name, ages) in by_name {
            self.unfinished_work.with_label_values(&[name]).set(ages.in_work.as_secs_f64());
            self.longest_running.with_label_values(&[name]).set(ages.longest_in_work.as_secs_f64());
            self.oldest_waiting.with_label_values(&[name]).set(ages.oldest_waiting.as_secs_f64());
        }
    }

    pub(super) fn meter(&self, name: &str) -> Meter {
        Meter {
            depth: self.depth.with_label_values(&[name]),
            adds: self.adds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            queue_duration: self.queue_duration.with_label_values(&[name]),
            work_duration: self.work_duration.with_label_values(&[name]),
        }
    }
}

impl Collector for QueueMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    /// Refreshes the gauges first, because ages grow without events.
    // upstream: a timer refreshes every 500 ms; on demand costs nothing between scrapes and is exact.
    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

/// Metrics of one queue.
pub(super) struct Meter {
    depth: Gauge,
    adds: prometheus::Counter,
    retries: prometheus::Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

impl Meter {
    pub(super) fn added(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn taken(&self, waited: Duration) {
        self.depth.dec();
        self.queue_duration.observe(waited.as_secs_f64());
    }

    pub(super) fn finished(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }

    pub(super) fn discarded(&self, keys: usize) {
        self.depth.sub(keys as f64);
    }
}
