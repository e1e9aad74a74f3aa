//! What the queue knows, without any waiting: every change is one function of the state and the time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Priority;
use super::lanes::Lanes;
use super::metrics::Meter;
use super::record::{LONGEST_WORK, Past, Record, seconds};
use crate::{Backoff, TokenBucket};

/// Longer than any process lives, and still a time that can be computed with.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Who must look again after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    NoOwner,
    /// One more key waits: one taker is enough.
    One,
    /// Takers sleep too long now.
    All,
}

pub(super) struct State<K> {
    /// Every key that waits, is in work, has a timer or has failed; no others, so that it cannot grow for ever.
    keys: HashMap<K, Entry>,
    waiting: Lanes<K>,
    /// By due time; the number keeps timers of the same instant apart, in order.
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
    place: Place,
    timer: Option<Timer>,
    failures: u32,
}

#[derive(Default)]
enum Place {
    #[default]
    Idle,
    Waiting {
        ticket: u64,
        desired: Wish,
    },
    InWork {
        since: Instant,
        /// Added meanwhile.
        again: Option<Wish>,
    },
}

/// Somebody wants a key to be worked on.
#[derive(Clone, Copy)]
struct Wish {
    priority: Priority,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Timer {
    slot: (Instant, u64),
    priority: Priority,
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

    pub(super) fn separate(&mut self, flow: fn(&K) -> u64) {
        self.waiting.separate(flow);
    }

    // ---- adding

    pub(super) fn add(&mut self, key: K, mut priority: Priority, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::NoOwner;
        }
        if let Some(timer) = self.keys.get_mut(&key).and_then(|entry| entry.timer.take()) {
            self.timers.remove(&timer.slot);
            // What the timer was for is done now, so it is done as urgently as was wished there.
            priority = priority.or_higher(timer.priority);
        }
        self.desired(key, Wish { priority, since: now })
    }

    pub(super) fn add_after(&mut self, key: K, delay: Duration, priority: Priority, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::NoOwner;
        }
        // upstream: every delayed add counts as a retry, whatever the reason and even without a delay.
        self.meter.retried();
        if delay.is_zero() {
            return self.add(key, priority, now);
        }
        self.set_timer(key, now.checked_add(delay).unwrap_or(now + FAR), priority)
    }

    pub(super) fn retry(&mut self, key: K, max: Option<Duration>, now: Instant) -> (Duration, Wake) {
        if self.shut_down {
            return (Duration::ZERO, Wake::NoOwner);
        }
        let entry = self.keys.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        let own = Backoff { max: max.unwrap_or(self.backoff.max), ..self.backoff }.after(entry.failures);
        let delay = self.rate.as_ref().map_or(own, |rate| own.max(rate.reserve()));
        (delay, self.add_after(key, delay, Priority::Low, now))
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.failures = 0;
            self.drop_if_idle(key);
        }
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.keys.get(key).map_or(0, |entry| entry.failures)
    }

    /// Of two timers of a key the earlier one counts, and the higher priority.
    fn set_timer(&mut self, key: K, due: Instant, priority: Priority) -> Wake {
        let entry = self.keys.entry(key.clone()).or_default();
        let mut timer = Timer { slot: (due, self.next_timer), priority };
        if let Some(old) = &mut entry.timer {
            timer.priority = old.priority.or_higher(priority);
            if old.slot.0 <= due {
                old.priority = timer.priority;
                return Wake::NoOwner;
            }
            self.timers.remove(&old.slot);
        }
        entry.timer = Some(timer);
        self.next_timer += 1;
        let earliest = self.next_due().is_none_or(|earliest| due < earliest);
        self.timers.insert(timer.slot, key);
        if earliest { Wake::All } else { Wake::NoOwner }
    }

    /// A key is to be worked on as soon as its turn comes.
    fn desired(&mut self, key: K, desired: Wish) -> Wake {
        match &mut self.keys.entry(key.clone()).or_default().place {
            Place::Idle => {
                self.meter.added();
                return self.wait(key, desired);
            }
            Place::Waiting { ticket, desired: earlier } => {
                if desired.priority.is_above(earlier.priority)
                    && let Some(new) = self.waiting.move_up(&key, *ticket)
                {
                    (*ticket, earlier.priority) = (new, desired.priority);
                }
            }
            Place::InWork { again: Some(earlier), .. } => {
                earlier.priority = earlier.priority.or_higher(desired.priority)
            }
            Place::InWork { again, .. } => {
                // upstream: counts as added, and as part of the depth, from here on and not only when the work ends.
                self.meter.added();
                *again = Some(desired);
            }
        }
        Wake::NoOwner
    }

    fn wait(&mut self, key: K, desired: Wish) -> Wake {
        let ticket = self.waiting.push(key.clone(), desired.priority);
        self.keys.entry(key).or_default().place = Place::Waiting { ticket, desired };
        Wake::One
    }

    // ---- time

    /// Lets the keys wait whose timers are due.
    pub(super) fn fire(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            let ((due, _), key) = first.remove_entry();
            if let Some(timer) = self.keys.get_mut(&key).and_then(|entry| entry.timer.take()) {
                self.desired(key, Wish { priority: timer.priority, since: due });
            }
        }
    }

    /// When the next timer is due.
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
        if let Place::Waiting { desired, .. } = &entry.place {
            self.meter.taken(now.saturating_duration_since(desired.since));
        }
        entry.place = Place::InWork { since: now, again: None };
        self.in_work += 1;
        Some(key)
    }

    /// The key is done with, or in this trouble.
    pub(super) fn finish(&mut self, key: &K, trouble: Option<String>, now: Instant) -> Wake {
        let Some(entry) = self.keys.get_mut(key) else { return Wake::NoOwner };
        let Place::InWork { since, again } = std::mem::take(&mut entry.place) else { return Wake::NoOwner };
        let took = now.saturating_duration_since(since);
        self.meter.finished(took);
        self.record.ended(Past { key: key.clone(), ended: now, took, trouble });
        self.in_work = self.in_work.saturating_sub(1);
        if let Some(desired) = again {
            return self.wait(key.clone(), desired);
        }
        self.drop_if_idle(key);
        Wake::NoOwner
    }

    /// What is in work may finish; the rest is dropped.
    pub(super) fn shut_down(&mut self) {
        self.shut_down = true;
        let mut discarded = self.waiting.len();
        self.waiting.clear();
        self.timers.clear();
        self.keys.retain(|_, entry| {
            entry.timer = None;
            let Place::InWork { again, .. } = &mut entry.place else { return false };
            discarded += usize::from(again.take().is_some());
            true
        });
        self.meter.discarded(discarded);
    }

    /// What depends on the moment at which it is asked for.
    pub(super) fn measure(&self, now: Instant) -> Ages {
        let mut ages = Ages::default();
        for entry in self.keys.values() {
            match &entry.place {
                Place::InWork { since, .. } => {
                    let age = now.saturating_duration_since(*since);
                    ages.in_work = ages.in_work.saturating_add(age);
                    ages.longest_in_work = ages.longest_in_work.max(age);
                }
                Place::Waiting { desired, .. } => {
                    ages.oldest_waiting = ages.oldest_waiting.max(now.saturating_duration_since(desired.since));
                }
                Place::Idle => {}
            }
        }
        ages
    }

    /// Keeps account of whether there is work.
    pub(super) fn note_work(&mut self, now: Instant) {
        self.record.has_work(self.in_work > 0 || self.waiting.len() > 0, now);
    }

    fn drop_if_idle(&mut self, key: &K) {
        let idle = |entry: &Entry| matches!(entry.place, Place::Idle) && entry.timer.is_none() && entry.failures == 0;
        if self.keys.get(key).is_some_and(idle) {
            self.keys.remove(key);
        }
    }

    /// The keys in work, the longest first.
    fn longest_in_work(&self, now: Instant) -> Vec<(&K, Duration)> {
        let in_work = self.keys.iter().filter_map(|(key, entry)| match &entry.place {
            Place::InWork { since, .. } => Some((key, now.saturating_duration_since(*since))),
            Place::Idle | Place::Waiting { .. } => None,
        });
        let mut in_work: Vec<_> = in_work.collect();
        in_work.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
        in_work.truncate(SHOWN);
        in_work
    }

    /// How many keys are remembered for any reason.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.keys.len()
    }
}

/// So many keys in work are shown.
const SHOWN: usize = 8;

/// How old the keys of a queue are, at some moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ages {
    /// Of all that are in work, together.
    pub(super) in_work: Duration,
    pub(super) longest_in_work: Duration,
    pub(super) oldest_waiting: Duration,
}

// ---- for those who look

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
        status["recent"] = self.record.past().map(|past| self.told(past, now)).collect();
        status
    }

    fn told(&self, past: &Past<K>, now: Instant) -> Value {
        let entry = self.keys.get(&past.key);
        let next = entry.and_then(|entry| entry.timer).map(|timer| timer.slot.0.saturating_duration_since(now));
        json!({
            "key": past.key.to_string(),
            "secondsAgo": seconds(now.saturating_duration_since(past.ended)),
            "tookSeconds": seconds(past.took),
            "error": past.trouble,
            "failures": entry.map_or(0, |entry| entry.failures),
            "nextTryInSeconds": next.map(seconds),
        })
    }

    /// Whether it gets on, or has nothing to do.
    pub(super) fn health(&self, now: Instant) -> Result<(), String> {
        if self.shut_down {
            return Ok(());
        }
        let longest = self.longest_in_work(now);
        let stuck = longest.first().map_or_else(String::new, |(key, age)| format!("; {key} is in work for {age:.0?}"));
        if let Some(still) = self.record.stands_still(now) {
            let (waiting, in_work) = (self.waiting.len(), self.in_work);
            return Err(format!("no key was finished for {still:.0?}: {waiting} wait, {in_work} are in work{stuck}"));
        }
        match longest.first() {
            Some((key, age)) if *age > LONGEST_WORK => Err(format!("{key} is in work for {age:.0?}")),
            _ => Ok(()),
        }
    }
}
