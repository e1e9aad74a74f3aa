//! What the controller has written, which the store may not show yet; and since when it knows of Nodes that wait for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{Node, NodeName};
use tokio::time::Instant;

/// How far the store may lag behind. An older state than the one written that is still there after this is no lag: the
/// API server has gone back, as one does that was restored from a backup, and what it says is the truth again.
pub(super) const LAG: Duration = Duration::from_secs(10);

/// The Nodes that were initialised by this process, and those that are to be. Bounded by the number of Nodes: an entry goes
/// with its Node.
#[derive(Default)]
pub(super) struct Memory {
    written: Mutex<HashMap<NodeName, Written>>,
    seen: Mutex<HashMap<NodeName, Instant>>,
}

struct Written {
    uid: String,
    version: Option<u64>,
    when: Instant,
}

impl Memory {
    /// We initialised this Node; this is what came of it.
    pub(super) fn wrote(&self, node: &Node) {
        let written = Written { uid: node.uid.clone(), version: version(node), when: Instant::now() };
        self.lock().insert(node.name.clone(), written);
    }

    /// `seen` is from before our own write: what it says of taints is history.
    ///
    /// Versions of one kind of object are numbers that grow; where one is not a number, nothing is known, and a write on an
    /// outdated state ends in a conflict, which costs a request and does no harm.
    pub(super) fn is_outdated(&self, seen: &Node) -> bool {
        let entries = self.lock();
        let is_ours = |written: &&Written| written.uid == seen.uid && written.when.elapsed() < LAG;
        let Some(written) = entries.get(&seen.name).filter(is_ours) else { return false };
        matches!((written.version, version(seen)), (Some(written), Some(seen)) if seen < written)
    }

    /// The Node is gone.
    pub(super) fn forget(&self, name: &NodeName) {
        self.lock().remove(name);
        self.seen().remove(name);
    }

    /// A Node waits to be initialised.
    pub(super) fn saw(&self, name: &NodeName) {
        self.seen().entry(name.clone()).or_insert_with(Instant::now);
    }

    /// How long ago it was first seen to wait.
    pub(super) fn known_for(&self, name: &NodeName) -> Option<Duration> {
        self.seen().get(name).map(Instant::elapsed)
    }

    /// How long ago it was first seen to wait. It waits no longer.
    pub(super) fn waited(&self, name: &NodeName) -> Option<Duration> {
        self.seen().remove(name).map(|since| since.elapsed())
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<NodeName, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Written>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(node: &Node) -> Option<u64> {
    node.resource_version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing::node;

    fn at(version: &str) -> Node {
        Node { resource_version: version.to_owned(), ..node("a") }
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_older_is_the_truth_of_an_api_server_that_was_set_back() {
        let memory = Memory::default();
        memory.wrote(&at("10"));
        tokio::time::advance(LAG / 2).await;
        assert!(memory.is_outdated(&at("9")));
        tokio::time::advance(LAG / 2).await;
        assert!(!memory.is_outdated(&at("9")));
    }

    #[test]
    fn only_what_is_older_than_our_own_write_is_outdated() {
        let memory = Memory::default();
        assert!(!memory.is_outdated(&at("9")), "nothing was written yet");
        memory.wrote(&at("10"));
        assert!(memory.is_outdated(&at("9")));
        assert!(!memory.is_outdated(&at("10")));
        assert!(!memory.is_outdated(&at("11")));
        assert!(!memory.is_outdated(&at("no number")));
        assert!(!memory.is_outdated(&Node { uid: "another".to_owned(), ..at("9") }));
        memory.forget(&at("9").name);
        assert!(!memory.is_outdated(&at("9")));
    }
}
