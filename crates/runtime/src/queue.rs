//! Keys that need work (WQ-1 to WQ-5).
//!
//! ```text
//!   add ───────────────────────► waiting (by priority, then in order) ──next──► in work ──done──► gone
//!   add_after, retry ──► timers ────────▲                                        │  added meanwhile?
//!                                       └────────────────────────────────────────┘
//! ```
//!
//! * A key waits at most once, and is in work at most once; what is added while in work is done again afterwards (WQ-1).
//! * `add` is immediate even if a timer runs for the key; of two timers the earlier one counts (WQ-2).
//! * `retry` counts a failure and waits longer each time; `forget` starts over (WQ-3).

use std::hash::Hash;
use std::time::Duration;

use crate::Backoff;

/// What goes first when several keys wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Somebody waits for it: a new object, or a changed one.
    #[default]
    High,
    /// A check that nothing has changed, or a further try.
    Low,
}

/// The `workqueue_*` metrics of all queues of a process.
#[derive(Clone)]
pub struct QueueMetrics {}

impl QueueMetrics {
    /// Registers them.
    pub fn register(registry: &prometheus::Registry) -> prometheus::Result<QueueMetrics> {
        let _ = registry;
        todo!()
    }
}

/// A queue of keys. Clones are the same queue.
pub struct Queue<K>(std::marker::PhantomData<K>);

/// A key in work. Dropping it says that the work is done, so that no path can forget to.
pub struct Work<K: Clone + Eq + Hash>(std::marker::PhantomData<K>);

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// An empty queue; `name` is its label in the metrics.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &QueueMetrics) -> Queue<K> {
        let _ = (name, backoff, metrics);
        todo!()
    }

    /// This key needs work now.
    pub fn add(&self, key: K, priority: Priority) {
        let _ = (key, priority);
        todo!()
    }

    /// This key needs work after `delay`, or earlier if somebody adds it earlier.
    pub fn add_after(&self, key: K, delay: Duration, priority: Priority) {
        let _ = (key, delay, priority);
        todo!()
    }

    /// This key failed: it gets another try, later each time. Says how long it waits.
    pub fn retry(&self, key: K) -> Duration {
        let _ = key;
        todo!()
    }

    /// This key succeeded, or failed in a way that has its own delay: failures are counted from zero again.
    pub fn forget(&self, key: &K) {
        let _ = key;
        todo!()
    }

    /// How often this key failed since it was last forgotten.
    pub fn failures(&self, key: &K) -> u32 {
        let _ = key;
        todo!()
    }

    /// Keys that are waiting, without those on timers and in work.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key, as soon as there is one; `None` once the queue is shut down.
    pub async fn next(&self) -> Option<Work<K>> {
        todo!()
    }

    /// As many keys as are waiting, at least one and at most `max`; none once the queue is shut down.
    pub async fn next_batch(&self, max: usize) -> Vec<Work<K>> {
        let _ = max;
        todo!()
    }

    /// No more keys are handed out, and adding does nothing.
    pub fn shut_down(&self) {
        todo!()
    }
}

impl<K: Clone + Eq + Hash> Work<K> {
    /// What is to be worked on.
    pub fn key(&self) -> &K {
        todo!()
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Queue<K> {
        Queue(self.0)
    }
}
