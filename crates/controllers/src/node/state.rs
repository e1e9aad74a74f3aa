//! Own writes that the store may not show yet, and the time since which each uninitialised Node has been waiting.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{Node, NodeName};
use tokio::time::Instant;

/// Maximum lag of the store. A Node that is still older than our write after this time is no lag: the API server was restored
/// from a backup, and its state is authoritative again.
pub(super) const LAG: Duration = Duration::from_secs(10);

/// State of the Nodes that this process has initialised or is about to. Bounded by the number of Nodes: an entry is removed with
/// its Node.
#[derive(Default)]
pub(super) struct NodeStates {
    written: Mutex<HashMap<NodeName, Written>>,
    seen: Mutex<HashMap<NodeName, Instant>>,
}

struct Written {
    uid: String,
    version: Option<u64>,
    when: Instant,
}

impl NodeStates {
    /// Records the Node as the API server returned it after initialisation.
    pub(super) fn record_write(&self, node: &Node) {
        let written = Written { uid: node.uid.clone(), version: version(node), when: Instant::now() };
        self.lock().insert(node.name.clone(), written);
    }

    /// Whether `seen` is older than our own write, so that its taints are outdated.
    ///
    /// Resource versions of one kind are increasing numbers. If one is not a number, the Node counts as current: a write based on
    /// an outdated Node ends in a conflict, which costs one request and is harmless.
    pub(super) fn is_outdated(&self, seen: &Node) -> bool {
        let entries = self.lock();
        let is_ours = |written: &&Written| written.uid == seen.uid && written.when.elapsed() < LAG;
        let Some(written) = entries.get(&seen.name).filter(is_ours) else { return false };
        matches!((written.version, version(seen)), (Some(written), Some(seen)) if seen < written)
    }

    /// Forgets a deleted Node.
    pub(super) fn forget(&self, name: &NodeName) {
        self.lock().remove(name);
        self.seen().remove(name);
    }

    /// Records that a Node waits to be initialised.
    pub(super) fn record_waiting(&self, name: &NodeName) {
        self.seen().entry(name.clone()).or_insert_with(Instant::now);
    }

    /// Time since the Node was first seen uninitialised.
    pub(super) fn waiting_time(&self, name: &NodeName) -> Option<Duration> {
        self.seen().get(name).map(Instant::elapsed)
    }

    /// Time since the Node was first seen uninitialised. The Node no longer waits afterwards.
    pub(super) fn take_waiting_time(&self, name: &NodeName) -> Option<Duration> {
        self.seen().remove(name).map(|since| since.elapsed())
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<NodeName, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Written>> {
        // Every change leaves the map consistent, so a poisoned lock is safe to use.
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
    async fn a_node_that_stays_older_than_our_write_comes_from_a_restored_api_server() {
        let states = NodeStates::default();
        states.record_write(&at("10"));
        tokio::time::advance(LAG / 2).await;
        assert!(states.is_outdated(&at("9")));
        tokio::time::advance(LAG / 2).await;
        assert!(!states.is_outdated(&at("9")));
    }

    #[test]
    fn only_a_node_older_than_our_own_write_is_outdated() {
        let states = NodeStates::default();
        assert!(!states.is_outdated(&at("9")), "nothing was written yet");
        states.record_write(&at("10"));
        assert!(states.is_outdated(&at("9")));
        assert!(!states.is_outdated(&at("10")));
        assert!(!states.is_outdated(&at("11")));
        assert!(!states.is_outdated(&at("no number")));
        assert!(!states.is_outdated(&Node { uid: "another".to_owned(), ..at("9") }));
        states.forget(&at("9").name);
        assert!(!states.is_outdated(&at("9")));
    }
}
