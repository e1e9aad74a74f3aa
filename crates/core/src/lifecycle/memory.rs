//! State that is kept from one sync to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fleet::{Key, Results};
use super::{Fleet, Moment, Policy};
use crate::{Node, Ready};

/// Time since when machines are missing, and recent deletions. Bounded by the number of Nodes and of deletions within the window.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Time at which an uncached read first reported the machine as gone, if no later result contradicts it.
    first_gone: HashMap<Key, Instant>,
    /// Deletions by UID of the Node, whether or not the request succeeded: Nodes that still exist are not counted.
    pub(super) deletions: HashMap<String, DeletionMark>,
}

#[derive(Debug, Clone)]
pub(super) struct DeletionMark {
    pub(super) provider: Arc<str>,
    pub(super) when: Instant,
}

impl Memory {
    /// Returns how long the machine of this Node has been known to be gone.
    pub(super) fn gone_for(&self, node: &Node, now: Moment) -> Option<Duration> {
        let first = self.first_gone.get(&Key::of(node))?;
        Some(now.instant.saturating_duration_since(*first))
    }

    /// Returns the number of Nodes of this provider that were deleted within the window.
    pub(super) fn deleted(&self, provider: &str, fleet: &Fleet) -> usize {
        let marked = self.deletions.values().filter(|mark| &*mark.provider == provider).count();
        let is_kept = |node: &Node| self.deletions.contains_key(&node.uid) && !node.deleting;
        marked.saturating_sub(fleet.of(provider).filter(|(_, node)| is_kept(node)).count())
    }

    /// Returns whether the Node was deleted and exists only because of its finalizers; [`deleted`](Memory::deleted) counts it.
    pub(super) fn is_deleted(&self, node: &Node) -> bool {
        node.deleting && self.deletions.contains_key(&node.uid)
    }

    /// Returns the number of Nodes of this provider whose machines are missing and that count towards the brake.
    pub(super) fn missing(&self, provider: &str, fleet: &Fleet) -> usize {
        let counts = |node: &Node| !node.deleting && !node.is_deletion_allowed();
        fleet.of(provider).filter(|(key, node)| self.first_gone.contains_key(*key) && counts(node)).count()
    }

    pub(super) fn record_gone(&mut self, node: &Node, now: Moment) {
        self.first_gone.entry(Key::of(node)).or_insert(now.instant);
    }

    /// Records a deletion. A deletion that an operator has allowed is not counted, even if an earlier attempt failed.
    pub(super) fn record_deletion(&mut self, node: &Node, provider: &Arc<str>, now: Moment) {
        let mark = DeletionMark { provider: provider.clone(), when: now.instant };
        match node.is_deletion_allowed() {
            true => self.deletions.remove(&node.uid),
            false => self.deletions.insert(node.uid.clone(), mark),
        };
    }

    /// Removes entries of Nodes that no longer exist, are no longer managed or are Ready, and deletions from before the window.
    pub(super) fn remove_outdated(&mut self, fleet: &Fleet, policy: &Policy, now: Moment) {
        self.first_gone.retain(|key, _| fleet.get(key).is_some_and(|node| node.ready != Ready::True));
        self.deletions.retain(|_, mark| now.instant.saturating_duration_since(mark.when) < policy.brake_window);
    }

    /// Removes entries of machines that were seen again.
    pub(super) fn remove_refuted(&mut self, results: &Results) {
        self.first_gone.retain(|key, _| !results.get(key).is_some_and(|result| result.refutes_gone()));
    }
}
