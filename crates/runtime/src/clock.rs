//! The time.

use std::time::Instant;

use jiff::Timestamp;

/// Tells the time of day and the time passed. In a test with paused tokio time, [`Clock::from_tokio`] moves only when
/// that does.
#[derive(Debug, Clone)]
pub struct Clock {
    /// `None` is the machine's clock; else the time of day at an instant of tokio's clock.
    anchor: Option<(Timestamp, tokio::time::Instant)>,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Clock {
        Clock { anchor: None }
    }

    /// It is `start` now, and time passes as tokio's does.
    pub fn from_tokio(start: Timestamp) -> Clock {
        Clock { anchor: Some((start, tokio::time::Instant::now())) }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        match &self.anchor {
            None => Timestamp::now(),
            Some((start, instant)) => start.checked_add(instant.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// A mark to measure passed time from; never goes back.
    pub fn instant(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_follows_tokio_moves_only_with_it() {
        let start: Timestamp = "2024-02-29T23:59:59.5Z".parse().unwrap();
        let clock = Clock::from_tokio(start);
        let mark = clock.instant();
        assert_eq!(clock.now(), start);
        advance(Duration::from_secs(86_400)).await;
        assert_eq!(clock.now().to_string(), "2024-03-01T23:59:59.5Z");
        assert_eq!(clock.instant() - mark, Duration::from_secs(86_400));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_moment_stays_the_last() {
        let clock = Clock::from_tokio(Timestamp::MAX);
        advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[test]
    fn the_system_clock_tells_the_time_of_day() {
        let before = Timestamp::now();
        let told = Clock::system().now();
        assert!(before <= told && told <= Timestamp::now());
    }
}
