//! What the queue knows, without any waiting: every change is one function of the state and the time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::Priority;
use super::lanes::Lanes;
use super::metrics::Meter;
use crate::{Backoff, TokenBucket};

/// Longer than any process lives, and still a time that can be computed with.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Who must look again after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    Nobody,
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
        wish: Wish,
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
            return Wake::Nobody;
        }
        if let Some(timer) = self.keys.get_mut(&key).and_then(|entry| entry.timer.take()) {
            self.timers.remove(&timer.slot);
            // What the timer was for is done now, so it is done as urgently as was wished there.
            priority = priority.or_higher(timer.priority);
        }
        self.wish(key, Wish { priority, since: now })
    }

    pub(super) fn add_after(&mut self, key: K, delay: Duration, priority: Priority, now: Instant) -> Wake {
        if self.shut_down {
            return Wake::Nobody;
        }
        // upstream: every delayed add counts as a retry, whatever the reason and even without a delay.
        self.meter.retried();
        if delay.is_zero() {
            return self.add(key, priority, now);
        }
        self.set_timer(key, now.checked_add(delay).unwrap_or(now + FAR), priority)
    }

    pub(super) fn retry(&mut self, key: K, now: Instant) -> (Duration, Wake) {
        if self.shut_down {
            return (Duration::ZERO, Wake::Nobody);
        }
        let entry = self.keys.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        let own = self.backoff.after(entry.failures);
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
                return Wake::Nobody;
            }
            self.timers.remove(&old.slot);
        }
        entry.timer = Some(timer);
        self.next_timer += 1;
        let earliest = self.next_due().is_none_or(|earliest| due < earliest);
        self.timers.insert(timer.slot, key);
        if earliest { Wake::All } else { Wake::Nobody }
    }

    /// A key is to be worked on as soon as its turn comes.
    fn wish(&mut self, key: K, wish: Wish) -> Wake {
        match &mut self.keys.entry(key.clone()).or_default().place {
            Place::Idle => {
                self.meter.added();
                return self.wait(key, wish);
            }
            Place::Waiting { ticket, wish: earlier } => {
                if wish.priority.is_above(earlier.priority)
                    && let Some(new) = self.waiting.move_up(&key, *ticket)
                {
                    (*ticket, earlier.priority) = (new, wish.priority);
                }
            }
            Place::InWork { again: Some(earlier), .. } => earlier.priority = earlier.priority.or_higher(wish.priority),
            Place::InWork { again, .. } => {
                // upstream: counts as added, and as part of the depth, from here on and not only when the work ends.
                self.meter.added();
                *again = Some(wish);
            }
        }
        Wake::Nobody
    }

    fn wait(&mut self, key: K, wish: Wish) -> Wake {
        let ticket = self.waiting.push(key.clone(), wish.priority);
        self.keys.entry(key).or_default().place = Place::Waiting { ticket, wish };
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
                self.wish(key, Wish { priority: timer.priority, since: due });
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
        if let Place::Waiting { wish, .. } = &entry.place {
            self.meter.taken(now.saturating_duration_since(wish.since));
        }
        entry.place = Place::InWork { since: now, again: None };
        Some(key)
    }

    pub(super) fn finish(&mut self, key: &K, now: Instant) -> Wake {
        let Some(entry) = self.keys.get_mut(key) else { return Wake::Nobody };
        let Place::InWork { since, again } = std::mem::take(&mut entry.place) else { return Wake::Nobody };
        self.meter.finished(now.saturating_duration_since(since));
        if let Some(wish) = again {
            return self.wait(key.clone(), wish);
        }
        self.drop_if_idle(key);
        Wake::Nobody
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

    pub(super) fn measure(&self, now: Instant) {
        self.meter.in_work(self.keys.values().filter_map(|entry| match &entry.place {
            Place::InWork { since, .. } => Some(now.saturating_duration_since(*since)),
            Place::Idle | Place::Waiting { .. } => None,
        }));
    }

    fn drop_if_idle(&mut self, key: &K) {
        let idle = |entry: &Entry| matches!(entry.place, Place::Idle) && entry.timer.is_none() && entry.failures == 0;
        if self.keys.get(key).is_some_and(idle) {
            self.keys.remove(key);
        }
    }

    /// How many keys are remembered for any reason.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.keys.len()
    }
}
