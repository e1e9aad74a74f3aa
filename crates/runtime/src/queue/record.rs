//! History of a queue: recent results for the status, and progress for the watchdog.
//!
//! A queue *has work* while keys wait or are in work; keys with a timer do not count. It *makes progress* when a key is finished,
//! with any result, or when a worker records progress. A queue that has work and makes no progress within its stall timeout is
//! stalled. A key that is in work for longer than [`MAX_WORK`] is stuck, whatever the other keys do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// Default stall timeout. A cloud call has a timeout of one minute, four attempts and a back-off of up to ten seconds, which is
/// about five minutes for one step; three such steps in a row are a fault.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Maximum time in work, longer than the slowest sync: dozens of steps, each of which succeeds at its last attempt.
pub(super) const MAX_WORK: Duration = Duration::from_secs(2 * 60 * 60);

/// Maximum number of recorded results, each for failed and for successful keys.
const MAX_RECORDED: usize = 32;

/// History of a queue.
pub(super) struct Record<K> {
    stall_timeout: Duration,
    /// Time of the first poll: before that no worker has been started.
    working_since: Option<Instant>,
    /// Time since which there is work without interruption.
    busy_since: Option<Instant>,
    last_progress: Option<Instant>,
    finished: u64,
    failed: u64,
    /// Results of successful keys, the most recent last.
    succeeded: VecDeque<Finished<K>>,
    /// Results of failed keys, the most recent last.
    failures: VecDeque<Finished<K>>,
}

/// Last result of a key.
pub(super) struct Finished<K> {
    pub(super) key: K,
    pub(super) ended: Instant,
    pub(super) took: Duration,
    pub(super) error: Option<Arc<str>>,
}

impl<K: PartialEq> Record<K> {
    pub(super) fn new() -> Record<K> {
        Record {
            stall_timeout: STALL_TIMEOUT,
            working_since: None,
            busy_since: None,
            last_progress: None,
            finished: 0,
            failed: 0,
            succeeded: VecDeque::new(),
            failures: VecDeque::new(),
        }
    }

    pub(super) fn set_stall_timeout(&mut self, timeout: Duration) {
        self.stall_timeout = timeout;
    }

    /// Records that a worker polls the queue.
    pub(super) fn record_poll(&mut self, now: Instant) {
        self.working_since.get_or_insert(now);
    }

    /// Records progress.
    pub(super) fn record_progress(&mut self, now: Instant) {
        self.last_progress = Some(now);
    }

    /// Records whether there is work.
    pub(super) fn set_has_work(&mut self, has_work: bool, now: Instant) {
        match has_work {
            true => drop(self.busy_since.get_or_insert(now)),
            false => self.busy_since = None,
        }
    }

    /// Records a finished key.
    pub(super) fn record_finished(&mut self, finished: Finished<K>) {
        self.record_progress(finished.ended);
        self.finished += 1;
        self.failed += u64::from(finished.error.is_some());
        self.forget(&finished.key);
        let list = if finished.error.is_some() { &mut self.failures } else { &mut self.succeeded };
        if list.len() >= MAX_RECORDED {
            list.pop_front();
        }
        list.push_back(finished);
    }

    fn forget(&mut self, key: &K) {
        self.succeeded.retain(|finished| finished.key != *key);
        self.failures.retain(|finished| finished.key != *key);
    }

    /// Returns the recorded results: failed keys before successful ones, each with the most recent first.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Finished<K>> {
        self.failures.iter().rev().chain(self.succeeded.iter().rev())
    }

    /// Returns the time without progress, if it exceeds the stall timeout.
    pub(super) fn stalled_for(&self, now: Instant) -> Option<Duration> {
        let (busy, working) = (self.busy_since?, self.working_since?);
        let since = busy.max(working).max(self.last_progress.unwrap_or(busy));
        Some(now.saturating_duration_since(since)).filter(|time| *time > self.stall_timeout)
    }

    /// Returns the number of finished keys, and of those that failed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.finished, self.failed)
    }

    pub(super) fn status(&self, now: Instant) -> Value {
        let progress = self.last_progress.map(|last| seconds(now.saturating_duration_since(last)));
        json!({
            "working": self.working_since.is_some(),
            "finished": self.finished,
            "failed": self.failed,
            "lastProgressSecondsAgo": progress,
        })
    }
}

/// Returns the seconds, rounded to milliseconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
