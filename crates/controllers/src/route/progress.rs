//! Refreshes in progress: each ends when all of its keys are synced, and is counted once (ROUTE-14).

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Key;
use super::metrics::Outcome;

/// Refreshes of one cloud in progress.
#[derive(Default)]
pub(super) struct RefreshProgress(Mutex<Vec<Refresh>>);

struct Refresh {
    open: HashSet<Key>,
    outcome: Outcome,
    ended: oneshot::Sender<Outcome>,
}

impl RefreshProgress {
    /// Begins a refresh of these keys. The receiver gets its outcome when the last key is synced.
    pub(super) fn begin(&self, keys: impl IntoIterator<Item = Key>) -> oneshot::Receiver<Outcome> {
        let (ended, end) = oneshot::channel();
        let open: HashSet<Key> = keys.into_iter().collect();
        if open.is_empty() {
            // The send fails only if the receiver is dropped.
            let _ = ended.send(Outcome::Noop);
        } else {
            self.lock().push(Refresh { open, outcome: Outcome::Noop, ended });
        }
        end
    }

    /// Records the sync of a key. Returns whether the key was part of a refresh.
    pub(super) fn record(&self, key: &Key, outcome: Outcome) -> bool {
        let mut progress = self.lock();
        let mut counted = false;
        for round in progress.iter_mut().filter(|round| round.open.contains(key)) {
            round.open.remove(key);
            round.outcome = round.outcome.max(outcome);
            counted = true;
        }
        for round in progress.extract_if(.., |round| round.open.is_empty()) {
            let _ = round.ended.send(round.outcome);
        }
        counted
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Refresh>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::Node(name.into())
    }

    #[tokio::test]
    async fn a_refresh_ends_with_its_last_key_and_returns_the_most_severe_outcome() {
        let progress = RefreshProgress::default();
        let mut end = progress.begin([key("a"), key("b"), Key::Orphans]);
        assert!(progress.record(&key("a"), Outcome::Changed));
        assert!(!progress.record(&key("a"), Outcome::Noop), "each key counts once");
        assert!(!progress.record(&key("c"), Outcome::Noop), "not a key of the refresh");
        assert!(progress.record(&Key::Orphans, Outcome::Noop));
        assert!(end.try_recv().is_err());
        assert!(progress.record(&key("b"), Outcome::Noop));
        assert_eq!(end.await, Ok(Outcome::Changed));
        assert_eq!(progress.begin([]).await, Ok(Outcome::Noop));
    }
}
