//! Keys that need work (WQ-1 to WQ-5).
//!
//! ```text
//!   add ───────────────────────► waiting (by priority, then in turn) ──next──► in work ──done──► gone
//!   add_after, retry ──► timers ────────▲                                        │  added meanwhile?
//!                                       └────────────────────────────────────────┘
//! ```
//!
//! * A key waits at most once, and is in work at most once; what is added while in work is done again afterwards (WQ-1).
//! * `add` is immediate even if a timer runs for the key, and makes that timer moot; of two timers the earlier one counts.
//!   A timer that is set while the key waits or is in work still counts (WQ-2).
//! * `retry` counts a failure and waits longer each time; `forget` starts over (WQ-3).
//! * Urgent keys go first, but every seventeenth turn belongs to a less urgent one, so that none waits for ever.
//! * Keys of one priority go in the order in which they came; if they are of several flows (namespaces, say), the flows
//!   take turns, so that a thousand keys of one do not hold up the single key of another.
//!
//! `state` holds all rules and knows no waiting; this file is the lock around it and the sleeping. There is no task in the
//! background: whoever waits in `next` sleeps until the earliest timer. Every operation takes O(log n).

mod lanes;
mod metrics;
pub(crate) mod record;
mod state;
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
use crate::{Backoff, Part, TokenBucket};

/// What goes first when several keys wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Somebody waits for it: a new object, or a changed one.
    #[default]
    High,
    /// A check that nothing has changed, or a further try.
    Low,
}

impl Priority {
    // The order of the variants is that of the turns, so the higher priority compares as less.
    fn or_higher(self, other: Priority) -> Priority {
        self.min(other)
    }

    fn is_above(self, other: Priority) -> bool {
        self < other
    }
}

/// A queue of keys. Clones are the same queue.
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

/// A key in work. Dropping it says that the work is done, so that no path can forget to.
pub struct Work<K: Clone + Eq + Hash> {
    key: K,
    trouble: OnceLock<String>,
    queue: Arc<Shared<K>>,
}

struct Shared<K> {
    name: &'static str,
    state: Mutex<State<K>>,
    changed: Notify,
}

/// What a look at the queue gave.
enum Look<K: Clone + Eq + Hash> {
    Work(Vec<Work<K>>),
    NothingUntil(Option<Instant>),
    ShutDown,
}

// ---- Queue

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// An empty queue; `name` is its label in the metrics.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &QueueMetrics) -> Queue<K> {
        let state = Mutex::new(State::new(backoff, metrics.meter(name)));
        let shared = Arc::new(Shared { name, state, changed: Notify::new() });
        let watched: Weak<Shared<K>> = Arc::downgrade(&shared);
        metrics.watch(watched);
        Queue(shared)
    }

    /// Retries of all keys together also keep to this many per second, after a burst: each waits for the longer of its
    /// own back-off and its turn.
    // upstream: the default limiter of a controller is this with 10 per second and a burst of 100.
    pub fn with_rate(self, rate: f64, burst: u32) -> Queue<K> {
        self.0.lock().limit_retries(TokenBucket::new(rate, burst));
        self
    }

    /// Keys with the same `flow` are of one flow, and the flows take turns within a priority. Without this, all keys are of
    /// one flow.
    pub fn with_flows(self, flow: fn(&K) -> u64) -> Queue<K> {
        self.0.lock().separate(flow);
        self
    }

    /// While there is work, a key has to be finished, or a step of the work on one, within this time: else the queue counts as
    /// stuck. Without this, 15 minutes.
    pub fn with_patience(self, patience: Duration) -> Queue<K> {
        self.0.lock().record.set_patience(patience);
        self
    }

    /// A step of the work on some key is done: a pass of many slow steps is not stuck.
    pub fn made_progress(&self) {
        self.0.change(|state, now| (state.record.made_progress(now), Wake::NoOwner));
    }

    /// This key needs work now. If it has a timer, that is dropped.
    pub fn add(&self, key: K, priority: Priority) {
        self.0.change(|state, now| ((), state.add(key, priority, now)));
    }

    /// This key needs work after `delay`, or earlier if somebody adds it earlier. If it is in work or waits already, it
    /// is worked on again after `delay`.
    pub fn add_after(&self, key: K, delay: Duration, priority: Priority) {
        self.0.change(|state, now| ((), state.add_after(key, delay, priority, now)));
    }

    /// This key failed: it gets another try, later each time and with [`Priority::Low`]. Says how long it waits.
    pub fn retry(&self, key: K) -> Duration {
        self.0.change(|state, now| state.retry(key, None, now))
    }

    /// The same with another longest wait: for a failure that is unlikely to pass by itself.
    pub fn retry_up_to(&self, key: K, max: Duration) -> Duration {
        self.0.change(|state, now| state.retry(key, Some(max), now))
    }

    /// This key succeeded, or failed in a way that has its own delay: failures are counted from zero again.
    pub fn forget(&self, key: &K) {
        self.0.lock().forget(key);
    }

    /// How often this key failed since it was last forgotten.
    pub fn failures(&self, key: &K) -> u32 {
        self.0.lock().failures(key)
    }

    /// Keys that are waiting, without those on timers and in work.
    pub fn len(&self) -> usize {
        self.0.change(|state, _| (state.len(), Wake::NoOwner))
    }

    /// Nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key, as soon as there is one; `None` once the queue is shut down. Whoever stops waiting loses nothing.
    pub async fn next(&self) -> Option<Work<K>> {
        self.next_batch(1).await.pop()
    }

    /// As many keys as are waiting, at least one and at most `max`; none once the queue is shut down. Whoever stops
    /// waiting loses nothing.
    pub async fn next_batch(&self, max: usize) -> Vec<Work<K>> {
        loop {
            // Made before the look, so that a change between the look and the wait is noticed.
            let changed = self.0.changed.notified();
            match self.look(max.max(1)) {
                Look::Work(work) => return work,
                Look::ShutDown => return Vec::new(),
                Look::NothingUntil(None) => changed.await,
                // Late or early, the next look tells.
                Look::NothingUntil(Some(due)) => drop(timeout_at(due, changed).await),
            }
        }
    }

    /// No more keys are handed out, and adding does nothing. What is in work may finish; the rest is dropped.
    pub fn shut_down(&self) {
        self.0.change(|state, _| {
            state.shut_down();
            ((), Wake::All)
        });
    }

    fn look(&self, max: usize) -> Look<K> {
        self.0.change(|state, now| {
            if state.is_shut_down() {
                return (Look::ShutDown, Wake::NoOwner);
            }
            state.record.asked(now);
            let work: Vec<_> = std::iter::from_fn(|| state.take(now)).take(max).map(|key| self.0.work(key)).collect();
            if work.is_empty() {
                return (Look::NothingUntil(state.next_due()), Wake::NoOwner);
            }
            // Two adds while two takers are between their look and their wait leave only one wake-up behind, so whoever
            // leaves keys waiting passes it on.
            (Look::Work(work), if state.len() > 0 { Wake::One } else { Wake::NoOwner })
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
    /// What is to be worked on.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// What keeps it from being done, for those who look. The first word counts; without one it is done.
    pub fn failed(&self, why: impl fmt::Display) {
        self.trouble.get_or_init(|| why.to_string());
    }
}

impl<K: Clone + Eq + Hash> Drop for Work<K> {
    fn drop(&mut self) {
        let trouble = self.trouble.take();
        self.queue.change(|state, now| ((), state.finish(&self.key, trouble, now)));
    }
}

// ---- Shared

impl<K> Shared<K> {
    /// No rule is broken half-way by a panic elsewhere, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    /// Makes one change, on a state in which all timers that are due have fired, and wakes those it concerns.
    fn change<T>(&self, change: impl FnOnce(&mut State<K>, Instant) -> (T, Wake)) -> T {
        let (result, wake) = {
            let mut state = self.lock();
            let now = Instant::now();
            state.fire(now);
            let done = change(&mut state, now);
            state.note_work(now);
            done
        };
        match wake {
            Wake::NoOwner => {}
            Wake::One => self.changed.notify_one(),
            Wake::All => self.changed.notify_waiters(),
        }
        result
    }

    fn work(self: &Arc<Self>, key: K) -> Work<K> {
        Work { key, trouble: OnceLock::new(), queue: self.clone() }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync> Watched for Shared<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ages(&self) -> Ages {
        self.change(|state, now| (state.measure(now), Wake::NoOwner))
    }
}

/// A queue can be looked at, and is unwell while it has work and does not get on.
impl<K: Clone + Eq + Hash + fmt::Display + Send + Sync> Part for Queue<K> {
    fn status(&self) -> Value {
        self.0.change(|state, now| (state.status(now), Wake::NoOwner))
    }

    fn health(&self) -> Result<(), String> {
        self.0.change(|state, now| (state.health(now), Wake::NoOwner))
    }
}
