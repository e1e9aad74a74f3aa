//! Status of a queue as a value, with each key that it knows.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::record::Finished;

/// Status of a queue at some time.
#[derive(Debug, Clone)]
pub struct QueueStatus<K> {
    /// Number of keys that wait for a worker.
    pub waiting: usize,
    /// Number of keys in work.
    pub in_work: usize,
    /// Number of keys with a timer.
    pub delayed: usize,
    /// Number of finished keys, with any result.
    pub finished: u64,
    /// Number of finished keys that failed.
    pub failed: u64,
    /// Time since which the oldest key waits.
    pub oldest: Option<Instant>,
    /// Keys that wait, are in work, have a timer, have failures or were among the last to finish.
    pub keys: Vec<(K, KeyStatus)>,
}

/// Status of a key.
#[derive(Debug, Clone)]
pub struct KeyStatus {
    /// Position in the queue.
    pub state: KeyState,
    /// Time since which the key waits or is in work.
    pub since: Option<Instant>,
    /// Number of failures since the last success.
    pub failures: u32,
    /// Time of its timer.
    pub next: Option<Instant>,
    /// Last result, if it is among the most recent ones of the queue.
    pub last: Option<LastResult>,
    /// Error of the last work. It is known for every key that has failures or a timer.
    pub error: Option<Arc<str>>,
}

/// Position of a key in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// Not queued.
    Idle,
    /// Waits for a worker.
    Waiting,
    /// A worker has it.
    InWork,
    /// Waits for its timer.
    Delayed,
}

/// Last result of a key.
#[derive(Debug, Clone)]
pub struct LastResult {
    /// End of the work.
    pub ended: Instant,
    /// Duration of the work.
    pub took: Duration,
    /// Error, if it failed.
    pub error: Option<Arc<str>>,
}

impl<K> From<&Finished<K>> for LastResult {
    fn from(finished: &Finished<K>) -> LastResult {
        LastResult { ended: finished.ended, took: finished.took, error: finished.error.clone() }
    }
}
