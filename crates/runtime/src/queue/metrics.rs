//! The `workqueue_*` metrics, under the names and with the texts that dashboards for the Go managers know.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, Opts, Registry, exponential_buckets,
};

/// The one label.
const NAME: &str = "name";

/// The `workqueue_*` metrics of all queues of a process. Clones are the same metrics.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: GaugeVec,
    adds: CounterVec,
    retries: CounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    unfinished_work: GaugeVec,
    longest_running: GaugeVec,
    /// Those whose gauges depend on the time of asking.
    queues: Arc<Mutex<Vec<Weak<dyn Refresh>>>>,
}

/// Something that can bring its gauges up to date.
pub(super) trait Refresh: Send + Sync {
    fn refresh(&self);
}

impl QueueMetrics {
    /// Registers them.
    pub fn register(registry: &Registry) -> prometheus::Result<QueueMetrics> {
        let metrics = QueueMetrics {
            depth: gauge("workqueue_depth", "Current depth of workqueue")?,
            adds: counter("workqueue_adds_total", "Total number of adds handled by workqueue")?,
            retries: counter("workqueue_retries_total", "Total number of retries handled by workqueue")?,
            queue_duration: histogram("workqueue_queue_duration_seconds", QUEUE_DURATION)?,
            work_duration: histogram("workqueue_work_duration_seconds", WORK_DURATION)?,
            unfinished_work: gauge("workqueue_unfinished_work_seconds", UNFINISHED_WORK)?,
            longest_running: gauge("workqueue_longest_running_processor_seconds", LONGEST_RUNNING)?,
            queues: Arc::default(),
        };
        registry.register(Box::new(metrics.clone()))?;
        Ok(metrics)
    }

    fn parts(&self) -> [&dyn Collector; 7] {
        [
            &self.depth,
            &self.adds,
            &self.retries,
            &self.queue_duration,
            &self.work_duration,
            &self.unfinished_work,
            &self.longest_running,
        ]
    }

    pub(super) fn watch(&self, queue: Weak<dyn Refresh>) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue);
    }

    /// The queues still in use; the others are forgotten.
    pub(super) fn live_queues(&self) -> Vec<Arc<dyn Refresh>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn meter(&self, name: &str) -> Meter {
        Meter {
            depth: self.depth.with_label_values(&[name]),
            adds: self.adds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            queue_duration: self.queue_duration.with_label_values(&[name]),
            work_duration: self.work_duration.with_label_values(&[name]),
            unfinished_work: self.unfinished_work.with_label_values(&[name]),
            longest_running: self.longest_running.with_label_values(&[name]),
        }
    }
}

impl Collector for QueueMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.parts().into_iter().flat_map(Collector::desc).collect()
    }

    /// Two of them grow while nothing happens, so all queues are looked at before they are told.
    // upstream: a timer looks every 500 ms; on demand costs nothing between scrapes and is exact.
    fn collect(&self) -> Vec<MetricFamily> {
        for queue in self.live_queues() {
            queue.refresh();
        }
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
    unfinished_work: Gauge,
    longest_running: Gauge,
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

    /// Says how long each key now in work has been so.
    pub(super) fn in_work(&self, ages: impl Iterator<Item = Duration>) {
        let (total, oldest) = ages.fold((Duration::ZERO, Duration::ZERO), |(total, oldest), age| {
            (total.saturating_add(age), oldest.max(age))
        });
        self.unfinished_work.set(total.as_secs_f64());
        self.longest_running.set(oldest.as_secs_f64());
    }
}

const QUEUE_DURATION: &str = "How long in seconds an item stays in workqueue before being requested.";
const WORK_DURATION: &str = "How long in seconds processing an item from workqueue takes.";
const UNFINISHED_WORK: &str = "How many seconds of work has done that is in progress and hasn't been observed by \
                               work_duration. Large values indicate stuck threads. One can deduce the number of stuck \
                               threads by observing the rate at which this increases.";
const LONGEST_RUNNING: &str = "How many seconds has the longest running processor for workqueue been running.";

fn help(text: &str) -> String {
    format!("[BETA] {text}")
}

fn gauge(name: &str, text: &str) -> prometheus::Result<GaugeVec> {
    GaugeVec::new(Opts::new(name, help(text)), &[NAME])
}

fn counter(name: &str, text: &str) -> prometheus::Result<CounterVec> {
    CounterVec::new(Opts::new(name, help(text)), &[NAME])
}

/// From 10 ns to 10 s, each ten times the one before.
fn histogram(name: &str, text: &str) -> prometheus::Result<HistogramVec> {
    // upstream: the bounds are multiplied up, so two of them are a hair below the round number. Recorded series carry
    // them in their labels, so they stay.
    let buckets = exponential_buckets(1e-8, 10.0, 10)?;
    HistogramVec::new(HistogramOpts::new(name, help(text)).buckets(buckets), &[NAME])
}
