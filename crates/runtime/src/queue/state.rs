//! State of a queue, without waiting: every change is a function of the state and the time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Priority;
use super::lanes::Lanes;
use super::metrics::Meter;
use super::record::{Finished, MAX_WORK, Record, seconds};
use super::status::{KeyState, KeyStatus, LastResult, QueueStatus};
use crate::{Backoff, TokenBucket};

/// Delay that no process outlives, used if the time of a timer would overflow.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Workers to wake after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    None,
    /// One more key waits: wake one worker.
    One,
    /// The earliest timer has changed: wake all workers.
    All,
}

pub(super) struct State<K> {
    /// Every key that waits, is in work, has a timer or has failures. No other keys, so that the map cannot grow without limit.
    keys: HashMap<K, Entry>,
    waiting: Lanes<K>,
    /// Timers by due time; the number keeps timers of the same instant distinct and in order.
    timers: BTreeMap<(Instant, u64), K>,
    next_timer: u64,
    backoff: Backoff,
    rate: Option<TokenBucket>,
    meter: Meter,
    pub(super) record: Record<K>,
    in_work: usize,
    shut_down: bool,
}

#[derive(Default)]
struct Entry {
    status: Status,
    timer: Option<Timer>,
    failures: u32,
    /// Error of the last work. The record has only the most recent ones of all keys.
    error: Option<Arc<str>>,
}

#[derive(Default)]
enum Status {
    #[default]
    Idle,
    Waiting {
        ticket: u64,
        request: Request,
    },
    InWork {
        since: Instant,
        /// Request that was added meanwhile.
        again: Option<Request>,
    },
}

/// Request to process a key.
#[derive(Clone, Copy)]
struct Request {
    priority: Priority,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Timer {
    slot: (Instant, u64),
    priority: Priority,
}

impl Entry {
    fn status(&self, last: Option<LastResult>) -> KeyStatus {
        let next = self.timer.map(|timer| timer.slot.0);
        let (state, since) = match &self.status {
            Status::Waiting { request, .. } => (KeyState::Waiting, Some(request.since)),
            Status::InWork { since, .. } => (KeyState::InWork, Some(*since)),
            Status::Idle if next.is_some() => (KeyState::Delayed, None),
            Status::Idle => (KeyState::Idle, None),
        };
        let error = last.as_ref().map_or_else(|| self.error.clone(), |last| last.error.clone());
        KeyStatus { state, since, failures: self.failures, next, last, error }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(super) fn new(backoff: Backoff, meter: Meter) -> State<K> {
        State {
            keys: HashMap::new(),
            waiting: Lanes::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            backoff,
            rate: None,
            meter,
            record: Record::new(),
            in_work: 0,
            shut_down: false,
        }
    }

    pub(super) fn limit_retries(&mut self, rate: TokenBucket) {
        self.rate = Some(rate);
    }

    pub(super) fn set_flow(&mut self, flow: fn(&K) -> u64) {
        self.waiting.set_flow(flow);
    }

    // ---- adding

    pub(super) fn add(&mut self, key: K, mut priority: Priority, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::None;
        }
        if let Some(timer) = self.keys.get_mut(&key).and_then(|entry| entry.timer.take()) {
            self.timers.remove(&timer.slot);
            // This replaces the timer, so the higher of the two priorities applies.
            priority = priority.or_higher(timer.priority);
        }
        self.request(key, Request { priority, since: now })
    }

    pub(super) fn add_after(&mut self, key: K, delay: Duration, priority: Priority, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::None;
        }
        // upstream: every delayed add counts as a retry, whatever the reason and even without a delay.
        self.meter.retried();
        if delay.is_zero() {
            return self.add(key, priority, now);
        }
        self.set_timer(key, now.checked_add(delay).unwrap_or(now + FAR_FUTURE), priority)
    }

    pub(super) fn retry(&mut self, key: K, max: Option<Duration>, now: Instant) -> (Duration, Wake) {
        if self.shut_down {
            return (Duration::ZERO, Wake::None);
        }
        let entry = self.keys.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        let own = Backoff { max: max.unwrap_or(self.backoff.max), ..self.backoff }.after(entry.failures);
        let delay = self.rate.as_ref().map_or(own, |rate| own.max(rate.reserve()));
        (delay, self.add_after(key, delay, Priority::Low, now))
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some(entry) = self.keys.get_mut(key) {
            (entry.failures, entry.error) = (0, None);
            self.drop_if_idle(key);
        }
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.keys.get(key).map_or(0, |entry| entry.failures)
    }

    /// Sets a timer. Of two timers of a key, the earlier time and the higher priority apply.
    fn set_timer(&mut self, key: K, due: Instant, priority: Priority) -> Wake {
        let entry = self.keys.entry(key.clone()).or_default();
        let mut timer = Timer { slot: (due, self.next_timer), priority };
        if let Some(old) = &mut entry.timer {
            timer.priority = old.priority.or_higher(priority);
            if old.slot.0 <= due {
                old.priority = timer.priority;
                return Wake::None;
            }
            self.timers.remove(&old.slot);
        }
        entry.timer = Some(timer);
        self.next_timer += 1;
        let earliest = self.next_due().is_none_or(|earliest| due < earliest);
        self.timers.insert(timer.slot, key);
        if earliest { Wake::All } else { Wake::None }
    }

    /// Requests that a key is processed.
    fn request(&mut self, key: K, request: Request) -> Wake {
        match &mut self.keys.entry(key.clone()).or_default().status {
            Status::Idle => {
                self.meter.added();
                return self.wait(key, request);
            }
            Status::Waiting { ticket, request: earlier } => {
                if request.priority.is_above(earlier.priority)
                    && let Some(new) = self.waiting.move_up(&key, *ticket)
                {
                    (*ticket, earlier.priority) = (new, request.priority);
                }
            }
            Status::InWork { again: Some(earlier), .. } => {
                earlier.priority = earlier.priority.or_higher(request.priority)
            }
            Status::InWork { again, .. } => {
                // upstream: counts as added, and as part of the depth, from here on and not only when the work ends.
                self.meter.added();
                *again = Some(request);
            }
        }
        Wake::None
    }

    fn wait(&mut self, key: K, request: Request) -> Wake {
        let ticket = self.waiting.push(key.clone(), request.priority);
        self.keys.entry(key).or_default().status = Status::Waiting { ticket, request };
        Wake::One
    }

    // ---- time

    /// Fires the timers that are due.
    pub(super) fn fire(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            let ((due, _), key) = first.remove_entry();
            if let Some(timer) = self.keys.get_mut(&key).and_then(|entry| entry.timer.take()) {
                self.request(key, Request { priority: timer.priority, since: due });
            }
        }
    }

    /// Returns the due time of the next timer.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    // ---- working

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        let key = self.waiting.pop()?;
        let entry = self.keys.entry(key.clone()).or_default();
        if let Status::Waiting { request, .. } = &entry.status {
            self.meter.taken(now.saturating_duration_since(request.since));
        }
        entry.status = Status::InWork { since: now, again: None };
        self.in_work += 1;
        Some(key)
    }

    /// Finishes a key, with an error or successfully.
    pub(super) fn finish(&mut self, key: &K, error: Option<String>, now: Instant) -> Wake {
        let Some(entry) = self.keys.get_mut(key) else { return Wake::None };
        let Status::InWork { since, again } = std::mem::take(&mut entry.status) else { return Wake::None };
        let took = now.saturating_duration_since(since);
        self.meter.finished(took);
        let error: Option<Arc<str>> = error.map(Into::into);
        entry.error.clone_from(&error);
        self.record.record_finished(Finished { key: key.clone(), ended: now, took, error });
        self.in_work = self.in_work.saturating_sub(1);
        if let Some(request) = again {
            return self.wait(key.clone(), request);
        }
        self.drop_if_idle(key);
        Wake::None
    }

    /// Shuts the queue down. Keys in work may finish; all others are dropped.
    pub(super) fn shut_down(&mut self) {
        self.shut_down = true;
        let mut discarded = self.waiting.len();
        self.waiting.clear();
        self.timers.clear();
        self.keys.retain(|_, entry| {
            entry.timer = None;
            let Status::InWork { again, .. } = &mut entry.status else { return false };
            discarded += usize::from(again.take().is_some());
            true
        });
        self.meter.discarded(discarded);
    }

    /// Returns the ages of the keys at this time.
    pub(super) fn measure(&self, now: Instant) -> Ages {
        let mut ages = Ages::default();
        for entry in self.keys.values() {
            match &entry.status {
                Status::InWork { since, .. } => {
                    let age = now.saturating_duration_since(*since);
                    ages.in_work = ages.in_work.saturating_add(age);
                    ages.longest_in_work = ages.longest_in_work.max(age);
                }
                Status::Waiting { request, .. } => {
                    ages.oldest_waiting = ages.oldest_waiting.max(now.saturating_duration_since(request.since));
                }
                Status::Idle => {}
            }
        }
        ages
    }

    /// Returns the status of the queue and of each key.
    pub(super) fn snapshot(&self) -> QueueStatus<K> {
        let mut last: HashMap<&K, LastResult> = self.record.recent().map(|one| (&one.key, one.into())).collect();
        let mut keys: Vec<_> = Vec::with_capacity(self.keys.len() + last.len());
        keys.extend(self.keys.iter().map(|(key, entry)| (key.clone(), entry.status(last.remove(key)))));
        keys.extend(last.into_iter().map(|(key, last)| (key.clone(), Entry::default().status(Some(last)))));
        let waiting_since = self.keys.values().filter_map(|entry| match &entry.status {
            Status::Waiting { request, .. } => Some(request.since),
            Status::Idle | Status::InWork { .. } => None,
        });
        let (finished, failed) = self.record.counts();
        QueueStatus {
            waiting: self.waiting.len(),
            in_work: self.in_work,
            delayed: self.timers.len(),
            finished,
            failed,
            oldest: waiting_since.min(),
            keys,
        }
    }

    /// Updates the record of whether there is work.
    pub(super) fn record_work(&mut self, now: Instant) {
        self.record.set_has_work(self.in_work > 0 || self.waiting.len() > 0, now);
    }

    fn drop_if_idle(&mut self, key: &K) {
        let idle = |entry: &Entry| matches!(entry.status, Status::Idle) && entry.timer.is_none() && entry.failures == 0;
        if self.keys.get(key).is_some_and(idle) {
            self.keys.remove(key);
        }
    }

    /// Returns the keys in work, the longest first.
    fn longest_in_work(&self, now: Instant) -> Vec<(&K, Duration)> {
        let in_work = self.keys.iter().filter_map(|(key, entry)| match &entry.status {
            Status::InWork { since, .. } => Some((key, now.saturating_duration_since(*since))),
            Status::Idle | Status::Waiting { .. } => None,
        });
        let mut in_work: Vec<_> = in_work.collect();
        in_work.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
        in_work.truncate(MAX_SHOWN);
        in_work
    }

    /// Number of stored keys.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.keys.len()
    }
}

/// Maximum number of keys in work in the status.
const MAX_SHOWN: usize = 8;

/// Ages of the keys of a queue at some time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ages {
    /// Sum of the times in work.
    pub(super) in_work: Duration,
    pub(super) longest_in_work: Duration,
    pub(super) oldest_waiting: Duration,
}

// ---- status and health

impl<K: Clone + Eq + Hash + fmt::Display> State<K> {
    pub(super) fn status(&self, now: Instant) -> Value {
        let oldest = (self.waiting.len() > 0).then(|| seconds(self.measure(now).oldest_waiting));
        let in_work = self.longest_in_work(now).into_iter();
        let in_work: Vec<_> =
            in_work.map(|(key, age)| json!({"key": key.to_string(), "seconds": seconds(age)})).collect();
        let mut status = self.record.status(now);
        status["waiting"] = json!(self.waiting.len());
        status["oldestWaitingSeconds"] = json!(oldest);
        status["delayed"] = json!(self.timers.len());
        status["inWork"] = json!(self.in_work);
        status["longestInWork"] = json!(in_work);
        status["recent"] = self.record.recent().map(|finished| self.result_status(finished, now)).collect();
        status
    }

    fn result_status(&self, finished: &Finished<K>, now: Instant) -> Value {
        let entry = self.keys.get(&finished.key);
        let next = entry.and_then(|entry| entry.timer).map(|timer| timer.slot.0.saturating_duration_since(now));
        json!({
            "key": finished.key.to_string(),
            "secondsAgo": seconds(now.saturating_duration_since(finished.ended)),
            "tookSeconds": seconds(finished.took),
            "error": finished.error.as_deref(),
            "failures": entry.map_or(0, |entry| entry.failures),
            "nextTryInSeconds": next.map(seconds),
        })
    }

    /// Returns `Ok` if the queue makes progress or has no work, or the reason.
    pub(super) fn health(&self, now: Instant) -> Result<(), String> {
        if self.shut_down {
            return Ok(());
        }
        let longest = self.longest_in_work(now);
        let stuck =
            longest.first().map_or_else(String::new, |(key, age)| format!("; {key} has been in work for {age:.0?}"));
        if let Some(time) = self.record.stalled_for(now) {
            let (waiting, in_work) = (self.waiting.len(), self.in_work);
            return Err(format!("no key was finished for {time:.0?}: {waiting} waiting, {in_work} in work{stuck}"));
        }
        match longest.first() {
            Some((key, age)) if *age > MAX_WORK => Err(format!("{key} has been in work for {age:.0?}")),
            _ => Ok(()),
        }
    }
}
