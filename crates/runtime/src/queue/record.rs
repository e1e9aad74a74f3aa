//! What became of the keys of a queue, for people who look; and whether the queue gets on, for the watchdog.
//!
//! A queue *has work* while keys wait for their turn or are in work; keys that wait for a timer are no work. It *gets on* when
//! a key is finished, however, or when whoever works on one says that a step is done. One that has work and has not got on
//! for longer than its patience is stuck; so is a key that is in work for [`LONGEST_WORK`], whatever the others do.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// How long a queue with work may stand still, if nothing else is said. One call to a cloud is cut off after a minute, tried
/// four times and rests ten seconds in between, which is five minutes for one step; three of those in a row are a fault.
pub(super) const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Longer than the slowest honest pass: dozens of steps, each of which succeeds at its last attempt.
pub(super) const LONGEST_WORK: Duration = Duration::from_secs(2 * 60 * 60);

/// So many keys that failed are remembered, and so many that did not.
const REMEMBERED: usize = 32;

/// What is known of a queue's past.
pub(super) struct Record<K> {
    patience: Duration,
    /// When somebody first asked for work: before that, nobody has promised to do any.
    working_since: Option<Instant>,
    /// Since when there is work without a pause.
    busy_since: Option<Instant>,
    last_progress: Option<Instant>,
    finished: u64,
    failed: u64,
    /// The most recent last.
    fine: VecDeque<Past<K>>,
    troubled: VecDeque<Past<K>>,
}

/// How a key was last done with.
pub(super) struct Past<K> {
    pub(super) key: K,
    pub(super) ended: Instant,
    pub(super) took: Duration,
    pub(super) trouble: Option<String>,
}

impl<K: PartialEq> Record<K> {
    pub(super) fn new() -> Record<K> {
        Record {
            patience: PATIENCE,
            working_since: None,
            busy_since: None,
            last_progress: None,
            finished: 0,
            failed: 0,
            fine: VecDeque::new(),
            troubled: VecDeque::new(),
        }
    }

    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Somebody asks for work.
    pub(super) fn asked(&mut self, now: Instant) {
        self.working_since.get_or_insert(now);
    }

    /// A step is done.
    pub(super) fn made_progress(&mut self, now: Instant) {
        self.last_progress = Some(now);
    }

    /// There is work, or there is none.
    pub(super) fn has_work(&mut self, has_work: bool, now: Instant) {
        match has_work {
            true => drop(self.busy_since.get_or_insert(now)),
            false => self.busy_since = None,
        }
    }

    /// A key is done with.
    pub(super) fn ended(&mut self, past: Past<K>) {
        self.made_progress(past.ended);
        self.finished += 1;
        self.failed += u64::from(past.trouble.is_some());
        self.forget(&past.key);
        let list = if past.trouble.is_some() { &mut self.troubled } else { &mut self.fine };
        if list.len() >= REMEMBERED {
            list.pop_front();
        }
        list.push_back(past);
    }

    fn forget(&mut self, key: &K) {
        self.fine.retain(|past| past.key != *key);
        self.troubled.retain(|past| past.key != *key);
    }

    /// Those that failed first, and the most recent first.
    pub(super) fn past(&self) -> impl Iterator<Item = &Past<K>> {
        self.troubled.iter().rev().chain(self.fine.iter().rev())
    }

    /// For how long it has stood still although there is work, if that is too long.
    pub(super) fn stands_still(&self, now: Instant) -> Option<Duration> {
        let (busy, working) = (self.busy_since?, self.working_since?);
        let since = busy.max(working).max(self.last_progress.unwrap_or(busy));
        Some(now.saturating_duration_since(since)).filter(|still| *still > self.patience)
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

/// Milliseconds are enough for people.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
