//! History of the calls to a cloud: sums of short intervals, and the most recent calls. Its size is fixed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Call;
use crate::layers::observe::outcome;
use crate::{Error, ErrorKind};

/// Length of an interval.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of intervals: half an hour.
const MAX_INTERVALS: usize = 180;

/// Maximum number of recent calls.
const MAX_RECENT: usize = 50;

/// Maximum length of a recorded error, in characters.
const MAX_ERROR: usize = 300;

/// Finished calls of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallInterval {
    /// Start of the interval.
    pub begin: Instant,
    /// Number of calls.
    pub calls: u32,
    /// Failed calls, including throttled ones. The answer that an object does not exist is no failure.
    pub failed: u32,
    /// Throttled calls.
    pub throttled: u32,
    /// Sum of their durations.
    pub total: Duration,
    /// Longest duration.
    pub longest: Duration,
}

/// One finished call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedCall {
    /// Service of the cloud.
    pub service: &'static str,
    /// Name of the call, as in metrics.
    pub name: &'static str,
    /// End of the call.
    pub ended: Instant,
    /// Duration.
    pub took: Duration,
    /// `ok`, or the kind of the error.
    pub outcome: &'static str,
    /// Error, if it failed.
    pub error: Option<String>,
}

/// Recorder of finished calls.
pub(super) struct History {
    /// Intervals begin at multiples of [`INTERVAL`] after this.
    epoch: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Oldest first. Intervals without a call are left out.
    intervals: VecDeque<CallInterval>,
    /// Oldest first.
    recent: VecDeque<FinishedCall>,
}

impl Default for History {
    fn default() -> History {
        History { epoch: Instant::now(), state: Mutex::default() }
    }
}

impl History {
    /// Records a call that has just finished.
    pub(super) fn record(&self, call: Call, took: Duration, failure: Option<&Error>) {
        let now = Instant::now();
        let mut state = self.state();
        state.add(self.begin_of(now), now, took, failure);
        if state.recent.len() >= MAX_RECENT {
            state.recent.pop_front();
        }
        let error = failure.map(|error| error.to_string().chars().take(MAX_ERROR).collect());
        let (service, name, outcome) = (call.service, call.name, outcome(failure));
        state.recent.push_back(FinishedCall { service, name, ended: now, took, outcome, error });
    }

    /// Returns the intervals of the last half hour, oldest first.
    pub(super) fn intervals(&self) -> Vec<CallInterval> {
        let mut state = self.state();
        state.drop_old(Instant::now());
        state.intervals.iter().copied().collect()
    }

    /// Returns the most recent calls, newest first.
    pub(super) fn recent(&self) -> Vec<FinishedCall> {
        self.state().recent.iter().rev().cloned().collect()
    }

    /// Start of the interval of this instant.
    fn begin_of(&self, instant: Instant) -> Instant {
        let index = instant.saturating_duration_since(self.epoch).as_secs() / INTERVAL.as_secs();
        self.epoch + Duration::from_secs(index * INTERVAL.as_secs())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a call to the interval that begins at this time.
    fn add(&mut self, begin: Instant, now: Instant, took: Duration, failure: Option<&Error>) {
        self.drop_old(now);
        match self.intervals.back_mut() {
            Some(last) if last.begin == begin => last.add(took, failure),
            _ => {
                let mut new = CallInterval::new(begin);
                new.add(took, failure);
                self.intervals.push_back(new);
            }
        }
    }

    fn drop_old(&mut self, now: Instant) {
        let oldest = INTERVAL * MAX_INTERVALS as u32;
        while self.intervals.front().is_some_and(|first| now.saturating_duration_since(first.begin) >= oldest) {
            self.intervals.pop_front();
        }
    }
}

impl CallInterval {
    fn new(begin: Instant) -> CallInterval {
        let (total, longest) = (Duration::ZERO, Duration::ZERO);
        CallInterval { begin, calls: 0, failed: 0, throttled: 0, total, longest }
    }

    fn add(&mut self, took: Duration, failure: Option<&Error>) {
        let kind = failure.map(Error::kind);
        self.calls = self.calls.saturating_add(1);
        self.failed = self.failed.saturating_add(kind.is_some_and(|kind| kind != ErrorKind::NotFound).into());
        self.throttled = self.throttled.saturating_add((kind == Some(ErrorKind::RateLimited)).into());
        self.total = self.total.saturating_add(took);
        self.longest = self.longest.max(took);
    }

    /// Returns the mean duration.
    pub fn mean(&self) -> Duration {
        self.total / self.calls.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Effect;

    const LIST: Call = Call { service: "compute", name: "server_list", effect: Effect::Read, limited: false };

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "test", "injected ".repeat(1_000))
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_summed_in_intervals_of_ten_seconds() {
        let (history, begun) = (History::default(), Instant::now());
        history.record(LIST, Duration::from_millis(100), None);
        tokio::time::advance(Duration::from_secs(9)).await;
        history.record(LIST, Duration::from_millis(300), Some(&error(ErrorKind::RateLimited)));
        history.record(LIST, Duration::from_millis(200), Some(&error(ErrorKind::NotFound)));
        tokio::time::advance(Duration::from_secs(31)).await;
        history.record(LIST, Duration::from_millis(1), Some(&error(ErrorKind::Unavailable)));
        let intervals = history.intervals();
        let numbers = intervals.iter().map(|one| {
            let (mean, longest) = (one.mean().as_millis(), one.longest.as_millis());
            (one.begin.duration_since(begun).as_secs(), one.calls, one.failed, one.throttled, mean, longest)
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [(0, 3, 1, 1, 200, 300), (40, 1, 1, 0, 1, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_history_has_half_an_hour_fifty_calls_and_short_errors_however_many_calls_there_are() {
        let history = History::default();
        for _ in 0..1_000 {
            history.record(LIST, Duration::ZERO, Some(&error(ErrorKind::Unavailable)));
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        let (intervals, recent) = (history.intervals(), history.recent());
        assert_eq!((intervals.len(), recent.len()), (MAX_INTERVALS - 1, MAX_RECENT));
        assert!(recent[0].ended > recent[1].ended, "the newest is the first");
        assert!(recent.iter().all(|call| call.error.as_ref().unwrap().chars().count() == MAX_ERROR));
        tokio::time::advance(INTERVAL * MAX_INTERVALS as u32).await;
        assert_eq!((history.intervals(), history.recent().len()), (Vec::new(), MAX_RECENT));
    }
}
