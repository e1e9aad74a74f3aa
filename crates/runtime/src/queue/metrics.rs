//! The `workqueue_*` metrics, under the names and with the texts that dashboards for the Go managers know, and one of ours.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, Gauge, GaugeVec, Histogram, HistogramVec, Registry};

use super::state::Ages;
use crate::metric::Instrument;
use crate::{Bounds, Metric, metrics};

/// The one label.
const LABELS: &[&str] = &["name"];

/// From 10 ns to 10 s, each ten times the one before.
const DURATIONS: Bounds = Bounds::Powers { first: 1e-8, factor: 10.0, count: 10 };

metrics! {
    /// What queues tell.
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
        "How long the key that has waited longest for its turn has waited; those that wait for a further try are none of them.",
    ).labels(LABELS);
}

/// The metrics of all queues of a process. Clones are the same metrics.
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
    /// Those whose gauges depend on the time of asking.
    queues: Arc<Mutex<Vec<Weak<dyn Watched>>>>,
}

/// A queue whose keys grow old.
pub(super) trait Watched: Send + Sync {
    /// Its label, which it may have in common with others: a queue for each cloud is one to those who count.
    fn name(&self) -> &'static str;
    /// How old its keys are, now.
    fn ages(&self) -> Ages;
}

impl QueueMetrics {
    /// Registers them.
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

    fn parts(&self) -> [&dyn Collector; 8] {
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

    /// The queues still in use; the others are forgotten.
    pub(super) fn live_queues(&self) -> Vec<Arc<dyn Watched>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.iter().filter_map(Weak::upgrade).collect()
    }

    /// Brings the gauges up to date. Queues of one name are one series: of their work the sum, of their ages the largest.
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
        self.parts().into_iter().flat_map(Collector::desc).collect()
    }

    /// Some of them grow while nothing happens, so all queues are looked at before they are told.
    // upstream: a timer looks every 500 ms; on demand costs nothing between scrapes and is exact.
    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.parts().into_iter().flat_map(Collector::collect).collect()
    }
}

/// The metrics of one queue.
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
