//! The time.

use std::time::Instant;

use jiff::Timestamp;

/// Tells the time of day and the time passed. In a test with paused tokio time, [`Clock::following_tokio`] moves only when
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
    pub fn following_tokio(start: Timestamp) -> Clock {
        Clock { anchor: Some((start, tokio::time::Instant::now())) }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        match &self.anchor {
            None => Timestamp::now(),
            Some((start, instant)) => start.checked_add(instant.elapsed()).unwrap_or(*start),
        }
    }

    /// A mark to measure passed time from; never goes back.
    pub fn instant(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
