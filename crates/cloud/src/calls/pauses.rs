//! Pauses that a cloud requested with `Retry-After`, by service.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// End of the pause of each paused service.
#[derive(Default)]
pub(super) struct Pauses(Mutex<BTreeMap<&'static str, Instant>>);

impl Pauses {
    /// Pauses the service; an earlier pause that ends later stays in effect.
    pub(super) fn pause(&self, service: &'static str, pause: Duration) {
        let now = Instant::now();
        let Some(end) = now.checked_add(pause) else { return };
        let mut ends = self.ends();
        ends.retain(|_, end| *end > now);
        let known = ends.entry(service).or_insert(end);
        *known = end.max(*known);
    }

    /// Returns the remaining pause of a service; zero if it is not paused.
    pub(super) fn remaining(&self, service: &str) -> Duration {
        self.ends().get(service).map(until).unwrap_or_default()
    }

    /// Returns the remaining time of the longest pause.
    pub(super) fn longest(&self) -> Duration {
        self.ends().values().map(until).max().unwrap_or_default()
    }

    /// Returns the end of the longest pause, if a service is paused.
    pub(super) fn longest_until(&self) -> Option<Instant> {
        let now = Instant::now();
        self.ends().values().copied().filter(|end| *end > now).max()
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn until(end: &Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
