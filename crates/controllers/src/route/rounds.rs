//! Checks that are under way: each ends when all that it found has had its pass, and is counted once (ROUTE-14).

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Key;
use super::metrics::Outcome;

/// The rounds of a cloud that are under way.
#[derive(Default)]
pub(super) struct Rounds(Mutex<Vec<Round>>);

struct Round {
    open: HashSet<Key>,
    outcome: Outcome,
    ended: oneshot::Sender<Outcome>,
}

impl Rounds {
    /// A round of these keys; tells its outcome when the last of them has had its pass.
    pub(super) fn begin(&self, keys: impl IntoIterator<Item = Key>) -> oneshot::Receiver<Outcome> {
        let (ended, end) = oneshot::channel();
        let open: HashSet<Key> = keys.into_iter().collect();
        if open.is_empty() {
            // Nobody listens no more if this fails.
            let _ = ended.send(Outcome::Noop);
        } else {
            self.lock().push(Round { open, outcome: Outcome::Noop, ended });
        }
        end
    }

    /// This key has had a pass, which ended like this. Says whether it was one of a round's.
    pub(super) fn finished(&self, key: &Key, outcome: Outcome) -> bool {
        let mut rounds = self.lock();
        let mut counted = false;
        for round in rounds.iter_mut().filter(|round| round.open.contains(key)) {
            round.open.remove(key);
            round.outcome = round.outcome.max(outcome);
            counted = true;
        }
        for round in rounds.extract_if(.., |round| round.open.is_empty()) {
            let _ = round.ended.send(round.outcome);
        }
        counted
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Round>> {
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
    async fn a_round_ends_with_its_last_key_and_tells_the_most_that_happened() {
        let rounds = Rounds::default();
        let mut end = rounds.begin([key("a"), key("b"), Key::Orphans]);
        assert!(rounds.finished(&key("a"), Outcome::Changed));
        assert!(!rounds.finished(&key("a"), Outcome::Noop), "once each");
        assert!(!rounds.finished(&key("c"), Outcome::Noop), "not one of them");
        assert!(rounds.finished(&Key::Orphans, Outcome::Noop));
        assert!(end.try_recv().is_err());
        assert!(rounds.finished(&key("b"), Outcome::Noop));
        assert_eq!(end.await, Ok(Outcome::Changed));
        assert_eq!(rounds.begin([]).await, Ok(Outcome::Noop));
    }
}
