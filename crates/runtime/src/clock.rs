//! Clock with wall-clock and monotonic time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Deviation of the wall clock from which on it counts as set, in either direction.
const CLOCK_SET: Duration = Duration::from_secs(1);

/// Source of wall-clock and monotonic time. In a test with paused tokio time, [`Clock::from_tokio`] advances only with tokio's
/// time.
#[derive(Debug, Clone)]
pub struct Clock {
    /// `None` for the system clock; otherwise the wall-clock time at an instant of tokio's clock.
    anchor: Option<(Timestamp, tokio::time::Instant)>,
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Clock {
        Clock { anchor: None }
    }

    /// Returns a clock that starts at `start` and advances with tokio's time.
    pub fn from_tokio(start: Timestamp) -> Clock {
        Clock { anchor: Some((start, tokio::time::Instant::now())) }
    }

    /// Returns the wall-clock time.
    pub fn now(&self) -> Timestamp {
        match &self.anchor {
            None => Timestamp::now(),
            Some((start, instant)) => start.checked_add(instant.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// Returns a monotonic instant.
    pub fn instant(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// Converts instants to timestamps, so that an instant has the same timestamp whenever it is converted: two statuses of an idle
/// component are equal.
#[derive(Debug)]
pub struct Timeline {
    clock: Clock,
    anchor: Mutex<Anchor>,
}

/// Wall-clock time at an instant.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    time: Timestamp,
    instant: tokio::time::Instant,
}

impl Timeline {
    /// Creates the timeline of this clock.
    pub fn new(clock: Clock) -> Timeline {
        let anchor = Mutex::new(Anchor::now(&clock));
        Timeline { clock, anchor }
    }

    /// Returns the conversion. It is the same each time, unless the wall clock was set meanwhile.
    pub fn anchor(&self) -> Anchor {
        let now = Anchor::now(&self.clock);
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        if anchor.at(now.instant).duration_since(now.time).unsigned_abs() > CLOCK_SET {
            *anchor = now;
        }
        *anchor
    }
}

impl Anchor {
    fn now(clock: &Clock) -> Anchor {
        Anchor { time: clock.now(), instant: tokio::time::Instant::now() }
    }

    /// Returns the timestamp of an instant, in whole milliseconds.
    pub fn at(self, instant: tokio::time::Instant) -> Timestamp {
        let time = match instant.checked_duration_since(self.instant) {
            Some(after) => self.time.saturating_add(after),
            None => self.time.saturating_sub(self.instant.saturating_duration_since(instant)),
        };
        // Neither a duration nor whole milliseconds of a timestamp can be out of range.
        let time = time.unwrap_or(self.time);
        Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tokio_clock_advances_only_with_tokio_time() {
        let start: Timestamp = "2024-02-29T23:59:59.5Z".parse().unwrap();
        let clock = Clock::from_tokio(start);
        let start_instant = clock.instant();
        assert_eq!(clock.now(), start);
        advance(Duration::from_secs(86_400)).await;
        assert_eq!(clock.now().to_string(), "2024-03-01T23:59:59.5Z");
        assert_eq!(clock.instant() - start_instant, Duration::from_secs(86_400));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_saturates_at_the_maximum_timestamp() {
        let clock = Clock::from_tokio(Timestamp::MAX);
        advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_instant_has_the_same_timestamp_before_and_after_it_and_as_time_passes() {
        let begun = tokio::time::Instant::now();
        let timeline = Timeline::new(Clock::from_tokio("2026-01-01T00:00:00.0009Z".parse().unwrap()));
        let at = |seconds| timeline.anchor().at(begun + Duration::from_secs(seconds)).to_string();
        let before = [at(0), at(5)];
        assert_eq!(before, ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"]);
        advance(Duration::from_millis(7_300)).await;
        assert_eq!([at(0), at(5)], before);
    }

    #[tokio::test(start_paused = true)]
    async fn timestamps_follow_a_wall_clock_that_was_set() {
        let timeline = Timeline::new(Clock::system());
        // The paused clock advances, and the wall clock does not: as if it had been set back by an hour.
        advance(Duration::from_secs(3600)).await;
        let now = timeline.anchor().at(tokio::time::Instant::now());
        assert!(now.duration_since(Timestamp::now()).unsigned_abs() < Duration::from_secs(60), "{now}");
    }

    #[test]
    fn the_system_clock_returns_the_current_time() {
        let before = Timestamp::now();
        let now = Clock::system().now();
        assert!(before <= now && now <= Timestamp::now());
    }
}
