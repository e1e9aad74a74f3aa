//! Clock with wall-clock and monotonic time.

use std::time::Instant;

use jiff::Timestamp;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn the_system_clock_returns_the_current_time() {
        let before = Timestamp::now();
        let now = Clock::system().now();
        assert!(before <= now && now <= Timestamp::now());
    }
}
