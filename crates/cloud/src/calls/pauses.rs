//! The pauses that a cloud has asked for, service by service.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// End of the pause of each service that has asked for one.
#[derive(Default)]
pub(super) struct Pauses(Mutex<BTreeMap<&'static str, Instant>>);

impl Pauses {
    /// Pauses the service for this long, or longer if it has asked for that before.
    pub(super) fn pause(&self, service: &'static str, pause: Duration) {
        let now = Instant::now();
        let Some(end) = now.checked_add(pause) else { return };
        let mut ends = self.ends();
        ends.retain(|_, end| *end > now);
        let known = ends.entry(service).or_insert(end);
        *known = end.max(*known);
    }

    /// Rest of the pause of the service; zero if there is none.
    pub(super) fn left(&self, service: &str) -> Duration {
        self.ends().get(service).map(rest).unwrap_or_default()
    }

    /// Rest of the longest pause.
    pub(super) fn longest(&self) -> Duration {
        self.ends().values().map(rest).max().unwrap_or_default()
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rest(end: &Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
