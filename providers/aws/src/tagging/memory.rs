//! State of the loop between runs. None of it is needed by the next process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_runtime::Backoff;
use tokio::time::Instant;

/// Back-off of an instance whose tags AWS rejects.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), max: Duration::from_secs(3600) };

/// Instances that were seen, and those that failed.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    /// Instances of Nodes, now or earlier. Only these may lose their tags: others may have the same ones for another reason.
    // upstream: removes tags in the event handler of a deletion, so it does not know of Nodes before its start either.
    seen: BTreeSet<String>,
    failed: BTreeMap<String, Failed>,
}

#[derive(Debug, Clone, Copy)]
struct Failed {
    count: u32,
    /// Time of the next attempt.
    until: Instant,
}

impl Memory {
    /// Adds the instances of Nodes, and returns those that have no Node any more.
    pub(super) fn see(&self, current: &BTreeSet<String>) -> Vec<String> {
        let mut contents = self.contents();
        let removed = contents.seen.difference(current).cloned().collect();
        contents.seen.extend(current.iter().cloned());
        removed
    }

    /// Forgets an instance without a Node: it has lost its tags, or does not exist.
    pub(super) fn forget(&self, instance: &str) {
        let mut contents = self.contents();
        contents.seen.remove(instance);
        contents.failed.remove(instance);
    }

    /// Records that AWS rejected a change of an instance, and returns the number of times in a row.
    pub(super) fn fail(&self, instance: &str) -> u32 {
        let mut contents = self.contents();
        let count = contents.failed.get(instance).map_or(0, |failed| failed.count) + 1;
        contents.failed.insert(instance.to_owned(), Failed { count, until: Instant::now() + BACKOFF.after(count) });
        count
    }

    /// Records that a change of an instance succeeded.
    pub(super) fn succeed(&self, instance: &str) {
        self.contents().failed.remove(instance);
    }

    /// Returns whether an instance failed and has to wait.
    pub(super) fn is_waiting(&self, instance: &str) -> bool {
        self.contents().failed.get(instance).is_some_and(|failed| Instant::now() < failed.until)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_instance_whose_node_is_removed_is_reported_until_it_is_forgotten() {
        let memory = Memory::default();
        assert_eq!(memory.see(&set(&["i-1", "i-2"])), Vec::<String>::new());
        assert_eq!(memory.see(&set(&["i-2", "i-3"])), ["i-1"]);
        assert_eq!(memory.see(&set(&["i-2"])), ["i-1", "i-3"]);
        memory.forget("i-1");
        assert_eq!(memory.see(&set(&["i-2"])), ["i-3"]);
        assert_eq!(memory.see(&set(&["i-2", "i-3"])), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_that_fails_waits_longer_each_time() {
        let memory = Memory::default();
        assert!(!memory.is_waiting("i-1"));
        for (count, seconds) in [(1, 5), (2, 10), (3, 20)] {
            assert_eq!(memory.fail("i-1"), count);
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert!(memory.is_waiting("i-1"), "{count}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!memory.is_waiting("i-1"), "{count}");
        }
        memory.succeed("i-1");
        assert_eq!(memory.fail("i-1"), 1);
    }
}
