//! Limits on calls at once that follow what the cloud can take.
//!
//! ```text
//!  limited call ──► a place among those of its name ──► the cloud ──► overloaded or slow: half as many places
//!                                                                └──► as many good answers as places: one place more
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Call;
use crate::{Error, ErrorKind};

/// Calls at once at first.
const FIRST: usize = 4;
/// Most calls at once.
const MOST: usize = 16;
/// An answer that takes longer than this counts as that of an overloaded cloud.
const SLOW: Duration = Duration::from_secs(10);

/// The limit of each limited call, by its name.
#[derive(Default)]
pub(super) struct Limits(Mutex<BTreeMap<&'static str, Arc<Limit>>>);

struct Limit {
    state: Mutex<State>,
    released: Notify,
}

struct State {
    places: usize,
    taken: usize,
    /// Good answers since the number of places was changed.
    good: usize,
    /// When there were fewer places than before.
    halved: Option<Instant>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    limit: Arc<Limit>,
    name: &'static str,
}

impl Limits {
    /// A place for this call, as soon as one is free; none for a call that is not limited.
    pub(super) async fn place(&self, call: Call) -> Option<Place> {
        if !call.limited {
            return None;
        }
        let limit = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(call.name).or_default());
        // A release between the two is stored.
        while !limit.try_take() {
            limit.released.notified().await;
        }
        Some(Place { limit, name: call.name })
    }
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { state: Mutex::new(State { places: FIRST, taken: 0, good: 0, halved: None }), released: Notify::new() }
    }
}

impl Limit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(&self) -> bool {
        let mut state = self.state();
        let is_free = state.taken < state.places;
        state.taken += usize::from(is_free);
        is_free
    }
}

impl Place {
    /// Records the outcome of a call that began at this moment. Calls that were under way together count as one sign.
    pub(super) fn answered(&self, begun: Instant, error: Option<&Error>) {
        let is_overloaded = error.is_some_and(|error| {
            matches!(error.status(), Some(429 | 503))
                || matches!(error.kind(), ErrorKind::RateLimited | ErrorKind::Unavailable)
        });
        let mut state = self.limit.state();
        if is_overloaded || begun.elapsed() > SLOW {
            if state.halved.is_none_or(|halved| begun >= halved) {
                (state.places, state.good, state.halved) = ((state.places / 2).max(1), 0, Some(Instant::now()));
                tracing::info!(call = self.name, places = state.places, "the cloud is overloaded: fewer calls at once");
            }
            return;
        }
        state.good += 1;
        if state.good >= state.places && state.places < MOST {
            (state.places, state.good) = (state.places + 1, 0);
            self.limit.released.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.state().taken -= 1;
        self.limit.released.notify_one();
    }
}
