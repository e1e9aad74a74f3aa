//! Adaptive concurrency limits, which follow the load that the cloud can take.
//!
//! ```text
//!  limited call ──► permit of its call name ──► the cloud ──► overloaded or slow: half as many permits
//!                                                        └──► as many successful responses as permits: one permit more
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Call;
use crate::{Error, ErrorKind};

/// Initial number of concurrent calls.
const INITIAL: usize = 4;
/// Maximum number of concurrent calls.
const MAX: usize = 16;
/// A response that takes longer than this counts as a sign of overload.
const SLOW: Duration = Duration::from_secs(10);

/// Limits by call name.
#[derive(Default)]
pub(super) struct Limits(Mutex<BTreeMap<&'static str, Arc<Limit>>>);

struct Limit {
    state: Mutex<State>,
    released: Notify,
}

struct State {
    permits: usize,
    in_use: usize,
    /// Successful responses since the last change of the limit.
    successes: usize,
    /// Time at which the limit was last halved.
    halved: Option<Instant>,
}

/// Permit for one call, released when it is dropped.
pub(super) struct Permit {
    limit: Arc<Limit>,
    name: &'static str,
}

impl Limits {
    /// Waits for a permit; returns `None` for a call that is not limited.
    pub(super) async fn acquire(&self, call: Call) -> Option<Permit> {
        if !call.limited {
            return None;
        }
        let limit = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(call.name).or_default());
        // `Notify` stores a release that happens between the two.
        while !limit.try_acquire() {
            limit.released.notified().await;
        }
        Some(Permit { limit, name: call.name })
    }
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            state: Mutex::new(State { permits: INITIAL, in_use: 0, successes: 0, halved: None }),
            released: Notify::new(),
        }
    }
}

impl Limit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_acquire(&self) -> bool {
        let mut state = self.state();
        let is_free = state.in_use < state.permits;
        state.in_use += usize::from(is_free);
        is_free
    }
}

impl Permit {
    /// Records the outcome of a call that began at `begun`. Concurrent calls that indicate overload halve the limit only once.
    pub(super) fn record(&self, begun: Instant, error: Option<&Error>) {
        let is_overloaded = error.is_some_and(|error| {
            matches!(error.status(), Some(429 | 503))
                || matches!(error.kind(), ErrorKind::RateLimited | ErrorKind::Unavailable)
        });
        let mut state = self.limit.state();
        if is_overloaded || begun.elapsed() > SLOW {
            if state.halved.is_none_or(|halved| begun >= halved) {
                (state.permits, state.successes, state.halved) = ((state.permits / 2).max(1), 0, Some(Instant::now()));
                tracing::info!(call = self.name, limit = state.permits, "cloud overloaded; reducing concurrent calls");
            }
            return;
        }
        state.successes += 1;
        if state.successes >= state.permits && state.permits < MAX {
            (state.permits, state.successes) = (state.permits + 1, 0);
            self.limit.released.notify_one();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.state().in_use -= 1;
        self.limit.released.notify_one();
    }
}
