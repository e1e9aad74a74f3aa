//! Objects that wait for their controller, as gauges: an object that never becomes ready produces no sample of a histogram, so
//! no alert could fire without them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_runtime::{Instrument, Metric};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGaugeVec, Registry};
use tokio::time::Instant;

/// Labels of both gauges.
pub(crate) const LABELS: &[&str] = &["provider", "reason"];

/// Reason of an object that has not failed: it is queued, or its sync is in progress.
pub(crate) const PENDING: &str = "Pending";

/// Waiting objects, by key. Bounded by the number of objects, if the controller removes deleted ones.
pub(crate) struct Backlog<K>(Arc<Shared<K>>);

struct Shared<K> {
    waiting: Mutex<HashMap<K, Waiting>>,
    count: IntGaugeVec,
    oldest: GaugeVec,
}

struct Waiting {
    since: Instant,
    provider: Arc<str>,
    reason: String,
}

impl<K: Eq + Hash + Send + 'static> Backlog<K> {
    /// Registers the gauges: the number of objects, and the age of the oldest.
    pub(crate) fn register(registry: &Registry, count: &Metric, oldest: &Metric) -> prometheus::Result<Backlog<K>> {
        let shared = Shared {
            waiting: Mutex::default(),
            count: Instrument::make(count, None)?,
            oldest: Instrument::make(oldest, None)?,
        };
        let backlog = Backlog(Arc::new(shared));
        registry.register(Box::new(Backlog(backlog.0.clone())))?;
        Ok(backlog)
    }

    /// Adds an object that has waited for `age`. An object that waits already keeps its entry.
    pub(crate) fn add(&self, key: K, age: Duration) {
        let now = Instant::now();
        self.0.lock().entry(key).or_insert_with(|| Waiting {
            since: now.checked_sub(age).unwrap_or(now),
            provider: "".into(),
            reason: PENDING.to_owned(),
        });
    }

    /// Sets the reason that the object waits for.
    pub(crate) fn block(&self, key: K, provider: &Arc<str>, reason: &str) {
        let mut waiting = self.0.lock();
        let since = waiting.get(&key).map_or_else(Instant::now, |known| known.since);
        waiting.insert(key, Waiting { since, provider: provider.clone(), reason: reason.to_owned() });
    }

    /// Returns the reason that the object waits for: [`PENDING`] if it has not failed; `None` if it does not wait.
    pub(crate) fn reason(&self, key: &K) -> Option<String> {
        self.0.lock().get(key).map(|waiting| waiting.reason.clone())
    }

    /// Removes an object that is ready or deleted.
    pub(crate) fn remove(&self, key: &K) {
        self.0.lock().remove(key);
    }
}

impl<K> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the gauges to the current values. The series of a reason that no object has any more is removed.
    fn refresh(&self) {
        let mut by_reason = BTreeMap::<(Arc<str>, String), (i64, Duration)>::new();
        for Waiting { since, provider, reason } in self.lock().values() {
            let (count, oldest) = by_reason.entry((provider.clone(), reason.clone())).or_default();
            *count += 1;
            *oldest = since.elapsed().max(*oldest);
        }
        self.count.reset();
        self.oldest.reset();
        for ((provider, reason), (count, oldest)) in by_reason {
            self.count.with_label_values(&[&*provider, &reason]).set(count);
            self.oldest.with_label_values(&[&*provider, &reason]).set(oldest.as_secs_f64());
        }
    }
}

impl<K: Eq + Hash + Send + 'static> Collector for Backlog<K> {
    fn desc(&self) -> Vec<&Desc> {
        self.0.count.desc().into_iter().chain(self.0.oldest.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.refresh();
        self.0.count.collect().into_iter().chain(self.0.oldest.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const COUNT: Metric = Metric::gauge("waiting", "Number.").labels(LABELS);
    const OLDEST: Metric = Metric::gauge("oldest_seconds", "Age.").labels(LABELS);

    fn samples(registry: &Registry, name: &str) -> Vec<(String, f64)> {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).into_iter();
        let samples = family.flat_map(|family| family.get_metric().to_vec());
        let labels = |sample: &prometheus::proto::Metric| {
            sample.get_label().iter().map(|label| label.value().to_owned()).collect::<Vec<_>>().join(" ")
        };
        samples.map(|sample| (labels(&sample), sample.get_gauge().get_value())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_counted_by_reason_with_the_age_of_the_oldest() {
        let registry = Registry::new();
        let backlog = Backlog::register(&registry, &COUNT, &OLDEST).unwrap();
        let cloud: Arc<str> = "sky".into();
        backlog.add("a", Duration::from_secs(5));
        backlog.add("a", Duration::from_secs(100));
        tokio::time::advance(Duration::from_secs(1)).await;
        backlog.add("b", Duration::ZERO);
        assert_eq!(samples(&registry, "waiting"), [(" Pending".to_owned(), 2.0)]);
        backlog.block("a", &cloud, "NotFound");
        backlog.block("c", &cloud, "NotFound");
        assert_eq!(samples(&registry, "waiting"), [(" Pending".to_owned(), 1.0), ("sky NotFound".to_owned(), 2.0)]);
        assert_eq!(
            samples(&registry, "oldest_seconds"),
            [(" Pending".to_owned(), 0.0), ("sky NotFound".to_owned(), 6.0)]
        );
        ["a", "b", "c"].iter().for_each(|key| backlog.remove(key));
        assert_eq!(samples(&registry, "waiting"), []);
    }
}
