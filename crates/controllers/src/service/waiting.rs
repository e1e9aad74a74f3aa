//! Services that wait for what another one has: a port, an address, room in the account. Whoever lets go of something wakes
//! them, so that nobody sits out a long pause while what he needs is free.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_cloud::ErrorKind;
use bowline_core::ServiceKey;

use super::trouble::Trouble;

/// In the order in which they began to wait. Bounded by the number of Services, if those that are gone are forgotten.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    waiters: Vec<(ServiceKey, For)>,
    /// How often something was let go.
    freed: u64,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// One certain thing, which only whoever has it can let go.
    Thing,
    /// One more of a kind. What is let go is enough for one.
    Room,
}

impl For {
    /// What a Service in this trouble waits for, if others can help.
    pub(super) fn of(trouble: &Trouble) -> Option<For> {
        if trouble.is_kind(ErrorKind::AlreadyExists) {
            Some(For::Thing)
        } else if trouble.is_kind(ErrorKind::QuotaExceeded) {
            Some(For::Room)
        } else {
            None
        }
    }
}

impl Waiting {
    /// How often something was let go so far.
    pub(super) fn freed(&self) -> u64 {
        self.lock().freed
    }

    /// This Service waits, since a pass that began when this much was let go. `false` if something was let go meanwhile, and
    /// it is better tried again at once.
    pub(super) fn add(&self, key: &ServiceKey, what: For, freed: u64) -> bool {
        let mut inner = self.lock();
        if inner.freed != freed {
            return false;
        }
        match inner.waiters.iter_mut().find(|(waiter, _)| waiter == key) {
            // Who tries in vain meanwhile keeps its place.
            Some((_, waits)) => *waits = what,
            None => inner.waiters.push((key.clone(), what)),
        }
        true
    }

    /// This Service does not wait, or no longer.
    pub(super) fn forget(&self, key: &ServiceKey) {
        self.lock().waiters.retain(|(waiter, _)| waiter != key);
    }

    /// Something was let go: who is to try again. Any of those that wait for a certain thing may be meant; of those that wait
    /// for room, the one that has waited longest.
    pub(super) fn let_go(&self) -> Vec<ServiceKey> {
        let mut inner = self.lock();
        inner.freed += 1;
        let mut room = true;
        let woken = |(_, what): &mut (ServiceKey, For)| *what == For::Thing || std::mem::take(&mut room);
        inner.waiters.extract_if(.., woken).map(|(key, _)| key).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change above leaves the list whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey { namespace: "default".into(), name: name.into() }
    }

    #[test]
    fn all_that_wait_for_a_thing_are_woken_and_of_those_that_wait_for_room_the_first() {
        let waiting = Waiting::default();
        for (name, what) in [("r1", For::Room), ("t1", For::Thing), ("r2", For::Room), ("t2", For::Thing)] {
            assert!(waiting.add(&key(name), what, 0));
        }
        assert!(waiting.add(&key("r1"), For::Room, 0), "it keeps its place");
        assert_eq!(waiting.let_go(), [key("r1"), key("t1"), key("t2")]);
        assert_eq!(waiting.let_go(), [key("r2")]);
        assert_eq!(waiting.let_go(), []);
    }

    #[test]
    fn who_failed_while_something_was_let_go_does_not_wait() {
        let waiting = Waiting::default();
        let before = waiting.freed();
        waiting.let_go();
        assert!(!waiting.add(&key("a"), For::Thing, before));
        assert_eq!(waiting.let_go(), []);
        assert!(waiting.add(&key("a"), For::Thing, waiting.freed()));
        waiting.forget(&key("a"));
        assert_eq!(waiting.let_go(), []);
    }
}
