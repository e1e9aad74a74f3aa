//! Work queue of keys (WQ-1 to WQ-5).
//!
//! ```text
//!   add ───────────────────────► waiting (by priority and flow) ──next──► in work ──done──► removed
//!   add_after, retry ──► timers ────────▲                                   │  added meanwhile?
//!                                       └───────────────────────────────────┘
//! ```
//!
//! * A key waits at most once and is in work at most once. A key that is added while in work is processed again afterwards (WQ-1).
//! * `add` takes effect immediately, even if the key has a timer, and cancels that timer. Of two timers the earlier one applies. A
//!   timer that is set while the key waits or is in work still fires (WQ-2).
//! * `retry` counts a failure, and the back-off doubles each time. `forget` resets it (WQ-3).
//! * Keys of high priority are taken first, but every seventeenth key is one of low priority, so that none starves.
//! * Keys of one priority are taken in order of arrival. If they belong to several flows (such as namespaces), the flows are served
//!   round robin, so that a thousand keys of one flow do not delay the single key of another.
//!
//! `state` implements the rules without waiting; this file adds the lock and the timers. There is no background task: callers of
//! `next` sleep until the earliest timer. Every operation takes O(log n).

mod lanes;
mod metrics;
pub(crate) mod record;
mod state;
mod status;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::metrics::Watched;
pub use self::metrics::{METRICS, QueueMetrics};
use self::state::{Ages, State, Wake};
pub use self::status::{KeyState, KeyStatus, LastResult, QueueStatus};
use crate::{Backoff, Component, TokenBucket};

/// Priority of a waiting key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// A new or changed object.
    #[default]
    High,
    /// A periodic refresh or a retry.
    Low,
}

impl Priority {
    // The variants are in processing order, so the higher priority compares as less.
    fn or_higher(self, other: Priority) -> Priority {
        self.min(other)
    }

    fn is_above(self, other: Priority) -> bool {
        self < other
    }
}

/// A work queue. Clones share their state.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline_runtime::{Backoff, Priority, Queue, QueueMetrics};
/// use std::time::Duration;
///
/// let metrics = QueueMetrics::register(&prometheus::Registry::new())?;
/// let backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_secs(1000) };
/// let queue = Queue::new("Nodes", backoff, &metrics);
/// queue.add("node-1", Priority::High);
/// while let Some(work) = queue.next().await {
///     assert_eq!(*work.key(), "node-1");
///     queue.forget(work.key());
///     queue.shut_down();
/// }
/// # Ok(()) }
/// ```
pub struct Queue<K>(Arc<Shared<K>>);

/// A key in work. Dropping it marks the work as done.
pub struct Work<K: Clone + Eq + Hash> {
    key: K,
    error: OnceLock<String>,
    queue: Arc<Shared<K>>,
}

struct Shared<K> {
    name: &'static str,
    state: Mutex<State<K>>,
    changed: Notify,
}

/// Result of polling the queue.
enum Poll<K: Clone + Eq + Hash> {
    Work(Vec<Work<K>>),
    NothingUntil(Option<Instant>),
    ShutDown,
}

// ---- Queue

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// Creates an empty queue; `name` is its label in the metrics.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &QueueMetrics) -> Queue<K> {
        let state = Mutex::new(State::new(backoff, metrics.meter(name)));
        let shared = Arc::new(Shared { name, state, changed: Notify::new() });
        let watched: Weak<Shared<K>> = Arc::downgrade(&shared);
        metrics.watch(watched);
        Queue(shared)
    }

    /// Limits the retries of all keys together to this rate and burst: each retry waits for the longer of its own back-off and the
    /// rate limit.
    // upstream: the default rate limiter of a controller has 10 per second and a burst of 100.
    pub fn with_rate(self, rate: f64, burst: u32) -> Queue<K> {
        self.0.lock().limit_retries(TokenBucket::new(rate, burst));
        self
    }

    /// Assigns keys to flows, which are served round robin within a priority. By default all keys are in one flow.
    pub fn with_flows(self, flow: fn(&K) -> u64) -> Queue<K> {
        self.0.lock().set_flow(flow);
        self
    }

    /// Sets the stall timeout: a queue with work is unhealthy if no key is finished and no progress is recorded within this time.
    /// Default: 15 minutes.
    pub fn with_stall_timeout(self, timeout: Duration) -> Queue<K> {
        self.0.lock().record.set_stall_timeout(timeout);
        self
    }

    /// Records progress of the work on some key, so that a sync with many slow steps does not count as stalled.
    pub fn record_progress(&self) {
        self.0.change(|state, now| (state.record.record_progress(now), Wake::None));
    }

    /// Adds a key now, and cancels its timer.
    pub fn add(&self, key: K, priority: Priority) {
        self.0.change(|state, now| ((), state.add(key, priority, now)));
    }

    /// Adds a key after `delay`, unless it is added earlier. A key that already waits or is in work is processed again after
    /// `delay`.
    pub fn add_after(&self, key: K, delay: Duration, priority: Priority) {
        self.0.change(|state, now| ((), state.add_after(key, delay, priority, now)));
    }

    /// Counts a failure, and adds the key with [`Priority::Low`] after its back-off. Returns the delay.
    pub fn retry(&self, key: K) -> Duration {
        self.0.change(|state, now| state.retry(key, None, now))
    }

    /// Like [`retry`](Queue::retry) with another maximum back-off, for failures that are unlikely to resolve themselves.
    pub fn retry_up_to(&self, key: K, max: Duration) -> Duration {
        self.0.change(|state, now| state.retry(key, Some(max), now))
    }

    /// Resets the failures of a key, after a success or a failure that has its own delay.
    pub fn forget(&self, key: &K) {
        self.0.lock().forget(key);
    }

    /// Returns the number of failures of a key since it was last forgotten.
    pub fn failures(&self, key: &K) -> u32 {
        self.0.lock().failures(key)
    }

    /// Returns the number of waiting keys, without those that have a timer or are in work.
    pub fn len(&self) -> usize {
        self.0.change(|state, _| (state.len(), Wake::None))
    }

    /// Returns whether no key is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the status of the queue and of each key that it knows.
    pub fn snapshot(&self) -> QueueStatus<K> {
        self.0.change(|state, _| (state.snapshot(), Wake::None))
    }

    /// Waits for the next key; `None` once the queue is shut down. Cancel safe.
    pub async fn next(&self) -> Option<Work<K>> {
        self.next_batch(1).await.pop()
    }

    /// Waits for at least one key, and returns at most `max`; empty once the queue is shut down. Cancel safe.
    pub async fn next_batch(&self, max: usize) -> Vec<Work<K>> {
        loop {
            // Created before the poll, so that a change between the poll and the wait is not missed.
            let changed = self.0.changed.notified();
            match self.poll(max.max(1)) {
                Poll::Work(work) => return work,
                Poll::ShutDown => return Vec::new(),
                Poll::NothingUntil(None) => changed.await,
                // Late or early, the next poll decides.
                Poll::NothingUntil(Some(due)) => drop(timeout_at(due, changed).await),
            }
        }
    }

    /// Shuts the queue down: `next` returns no more keys and `add` has no effect. Keys in work may finish; all others are dropped.
    pub fn shut_down(&self) {
        self.0.change(|state, _| {
            state.shut_down();
            ((), Wake::All)
        });
    }

    fn poll(&self, max: usize) -> Poll<K> {
        self.0.change(|state, now| {
            if state.is_shut_down() {
                return (Poll::ShutDown, Wake::None);
            }
            state.record.record_poll(now);
            let work: Vec<_> = std::iter::from_fn(|| state.take(now)).take(max).map(|key| self.0.work(key)).collect();
            if work.is_empty() {
                return (Poll::NothingUntil(state.next_due()), Wake::None);
            }
            // Two adds while two workers are between poll and wait store only one wake-up, so a worker that leaves keys waiting
            // wakes another one.
            (Poll::Work(work), if state.len() > 0 { Wake::One } else { Wake::None })
        })
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Queue<K> {
        Queue(self.0.clone())
    }
}

// ---- Work

impl<K: Clone + Eq + Hash> Work<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Records an error for the status. Only the first one is kept; without one the work counts as successful.
    pub fn failed(&self, error: impl fmt::Display) {
        self.error.get_or_init(|| error.to_string());
    }
}

impl<K: Clone + Eq + Hash> Drop for Work<K> {
    fn drop(&mut self) {
        let error = self.error.take();
        self.queue.change(|state, now| ((), state.finish(&self.key, error, now)));
    }
}

// ---- Shared

impl<K> Shared<K> {
    /// A panic cannot leave the state inconsistent, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    /// Fires all timers that are due, applies one change, and wakes workers.
    fn change<T>(&self, change: impl FnOnce(&mut State<K>, Instant) -> (T, Wake)) -> T {
        let (result, wake) = {
            let mut state = self.lock();
            let now = Instant::now();
            state.fire(now);
            let done = change(&mut state, now);
            state.record_work(now);
            done
        };
        match wake {
            Wake::None => {}
            Wake::One => self.changed.notify_one(),
            Wake::All => self.changed.notify_waiters(),
        }
        result
    }

    fn work(self: &Arc<Self>, key: K) -> Work<K> {
        Work { key, error: OnceLock::new(), queue: self.clone() }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync> Watched for Shared<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ages(&self) -> Ages {
        self.change(|state, now| (state.measure(now), Wake::None))
    }
}

/// A queue is unhealthy while it has work and makes no progress.
impl<K: Clone + Eq + Hash + fmt::Display + Send + Sync> Component for Queue<K> {
    fn status(&self) -> Value {
        self.0.change(|state, now| (state.status(now), Wake::None))
    }

    fn health(&self) -> Result<(), String> {
        self.0.change(|state, now| (state.health(now), Wake::None))
    }
}
