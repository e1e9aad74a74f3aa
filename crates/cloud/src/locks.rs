//! Locks on shared resources of a cloud: a load balancer that several Services share, a router with the routes of all Nodes.
//!
//! ```text
//!  observe ──► plan, which names the locks ──► try_take ──► all free ──► released since the observation? observe again
//!                                                 │
//!                                                 └─ one is taken: no lock is held, and the waiter is called at its release
//! ```
//!
//! The locks are local to this process. That is sufficient, because only the leader writes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Maximum number of keys whose last release is recorded. When it is exceeded, all older observations count as outdated.
const MAX_RECORDED: usize = 10_000;

/// The locks of one cloud. Clones share their state.
#[derive(Clone, Default)]
pub struct Locks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    taken: HashMap<String, Vec<Waiter>>,
    /// Number of releases so far.
    releases: u64,
    /// Number of the last release of each key.
    released: HashMap<String, u64>,
    /// Releases up to this number are no longer recorded.
    forgotten: u64,
}

/// Position in the sequence of releases, for [`Guard::is_outdated`].
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

struct Waiter {
    name: String,
    wake: Box<dyn FnOnce() + Send>,
}

/// Guard of taken locks, which are released when it is dropped.
pub struct Guard {
    locks: Locks,
    keys: BTreeSet<String>,
}

impl Locks {
    /// Returns the current moment. Take it before an observation.
    pub fn now(&self) -> Moment {
        Moment(self.state().releases)
    }

    /// Takes all of these locks or none. If one is already taken, `wake` is called once when it is released; a second waiter of the
    /// same name replaces the first.
    pub fn try_take(
        &self,
        keys: &BTreeSet<String>,
        waiter: &str,
        wake: impl FnOnce() + Send + 'static,
    ) -> Option<Guard> {
        let mut guard = Guard { locks: self.clone(), keys: BTreeSet::new() };
        guard.try_extend(keys, waiter, wake).then_some(guard)
    }

    /// Waits until all of these locks are free, and takes them.
    pub async fn take(&self, keys: &BTreeSet<String>) -> Guard {
        loop {
            let (sender, released) = oneshot::channel::<()>();
            // An empty name replaces no other waiter.
            if let Some(guard) = self.try_take(keys, "", move || drop(sender)) {
                return guard;
            }
            // The sender is dropped without a message.
            released.await.ok();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the maps consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    /// Takes the locks that the guard does not hold yet, all of them or none. See [`Locks::try_take`].
    pub fn try_extend(&mut self, keys: &BTreeSet<String>, waiter: &str, wake: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.locks.state();
        let missing: Vec<&String> = keys.difference(&self.keys).collect();
        if let Some(taken) = missing.iter().find(|key| state.taken.contains_key(**key)) {
            let waiters = state.taken.entry((*taken).clone()).or_default();
            waiters.retain(|other| waiter.is_empty() || other.name != waiter);
            waiters.push(Waiter { name: waiter.to_owned(), wake: Box::new(wake) });
            return false;
        }
        state.taken.extend(missing.iter().map(|key| ((*key).clone(), Vec::new())));
        let missing: Vec<String> = missing.into_iter().cloned().collect();
        drop(state);
        self.keys.extend(missing);
        true
    }

    /// Returns whether another holder released one of these locks after this moment, so the state observed then may have changed.
    pub fn is_outdated(&self, Moment(observed): Moment) -> bool {
        let state = self.locks.state();
        let was_released = |key: &String| state.released.get(key).is_some_and(|released| *released > observed);
        observed < state.forgotten || self.keys.iter().any(was_released)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.locks.state();
        let waiters: Vec<_> = self.keys.iter().flat_map(|key| state.taken.remove(key).unwrap_or_default()).collect();
        if state.released.len() > MAX_RECORDED {
            state.forgotten = state.releases;
            state.released.clear();
        }
        state.releases += 1;
        let number = state.releases;
        state.released.extend(std::mem::take(&mut self.keys).into_iter().map(|key| (key, number)));
        drop(state);
        // After the state is unlocked: a waiter may try to take the lock at once.
        waiters.into_iter().for_each(|waiter| (waiter.wake)());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn keys(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn take(locks: &Locks, names: &[&str]) -> Option<Guard> {
        locks.try_take(&keys(names), "test", || {})
    }

    #[tokio::test(start_paused = true)]
    async fn either_all_locks_are_taken_or_none() {
        let locks = Locks::default();
        let first = take(&locks, &["a", "b"]);
        assert!(first.is_some() && take(&locks, &["b", "c"]).is_none());
        assert!(take(&locks, &["c"]).is_some(), "a failed attempt holds nothing");
        assert!(take(&locks, &[]).is_some());
        drop(first);
        assert!(take(&locks, &["b", "c"]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_is_woken_once_when_the_lock_is_released() {
        let (locks, woken) = (Locks::default(), Arc::new(AtomicUsize::new(0)));
        let held = take(&locks, &["a"]);
        for waiter in ["x", "x", "y"] {
            let (locks_then, woken) = (locks.clone(), woken.clone());
            let wake = move || {
                assert!(take(&locks_then, &["a"]).is_some());
                woken.fetch_add(1, Ordering::SeqCst);
            };
            assert!(locks.try_take(&keys(&["a"]), waiter, wake).is_none());
        }
        assert_eq!(woken.load(Ordering::SeqCst), 0);
        drop(held);
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        drop(take(&locks, &["a"]));
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_release_after_the_observation_makes_it_outdated() {
        let locks = Locks::default();
        let before = locks.now();
        drop(take(&locks, &["a"]));
        let is_outdated = |names: &[&str], observed| take(&locks, names).unwrap().is_outdated(observed);
        assert!(is_outdated(&["a", "b"], before) && !is_outdated(&["c"], before));
        assert!(!is_outdated(&["a"], locks.now()));
        for number in 0..=2 * MAX_RECORDED {
            drop(take(&locks, &[&number.to_string()]));
        }
        assert!(is_outdated(&["never taken"], before) && !is_outdated(&["never taken"], locks.now()));
        assert!(locks.state().released.len() <= MAX_RECORDED + 1, "old releases are dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_cannot_be_extended_keeps_its_locks() {
        let locks = Locks::default();
        let (mut guard, other) = (take(&locks, &["a"]).unwrap(), take(&locks, &["b"]));
        assert!(guard.try_extend(&keys(&["a"]), "test", || {}));
        assert!(!guard.try_extend(&keys(&["a", "b", "c"]), "test", || {}));
        assert!(take(&locks, &["c"]).is_some() && take(&locks, &["a"]).is_none());
        drop(other);
        assert!(guard.try_extend(&keys(&["b"]), "test", || {}));
        assert!(take(&locks, &["a"]).is_none() && take(&locks, &["b"]).is_none());
        drop(guard);
        assert!(take(&locks, &["a", "b"]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_take_the_lock_one_at_a_time() {
        let (locks, running) = (Locks::default(), Arc::new(AtomicUsize::new(0)));
        let work = (0..5).map(|_| {
            let (locks, running) = (locks.clone(), running.clone());
            async move {
                let _guard = locks.take(&keys(&["router"])).await;
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let began = tokio::time::Instant::now();
        let all = tokio::time::timeout(Duration::from_secs(60), futures::future::join_all(work)).await;
        assert!(all.is_ok() && began.elapsed() >= Duration::from_secs(5));
    }
}
