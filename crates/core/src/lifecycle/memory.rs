//! What is remembered from one pass to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fleet::{Answers, Key};
use super::{Fleet, Moment, Policy};
use crate::{Node, Ready};

/// Since when machines have been missing, and which Nodes went lately. Never more than the Nodes that there are and those
/// that went within the window.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// When a read past every cache first said that the machine is gone, and nothing has refuted that since.
    first_gone: HashMap<Key, Instant>,
    /// Nodes that were to be deleted, by UID, whether or not the request succeeded: Nodes that still exist are not counted.
    pub(super) deletions: HashMap<String, DeletionMark>,
}

#[derive(Debug, Clone)]
pub(super) struct DeletionMark {
    pub(super) provider: Arc<str>,
    pub(super) when: Instant,
}

impl Memory {
    /// For how long the machine of this Node has been known to be gone.
    pub(super) fn gone_for(&self, node: &Node, now: Moment) -> Option<Duration> {
        let first = self.first_gone.get(&Key::of(node))?;
        Some(now.instant.saturating_duration_since(*first))
    }

    /// How many Nodes of this provider were deleted within the window.
    pub(super) fn deleted(&self, provider: &str, fleet: &Fleet) -> usize {
        let marked = self.deletions.values().filter(|mark| &*mark.provider == provider).count();
        let is_kept = |node: &Node| self.deletions.contains_key(&node.uid) && !node.deleting;
        marked.saturating_sub(fleet.of(provider).filter(|(_, node)| is_kept(node)).count())
    }

    /// This Node exists only because of its finalizers, and is one of those that [`deleted`](Memory::deleted) counts.
    pub(super) fn is_deleted(&self, node: &Node) -> bool {
        node.deleting && self.deletions.contains_key(&node.uid)
    }

    /// How many Nodes of this provider have lost their machines and count against the others.
    pub(super) fn missing(&self, provider: &str, fleet: &Fleet) -> usize {
        let counts = |node: &Node| !node.deleting && !node.is_deletion_allowed();
        fleet.of(provider).filter(|(key, node)| self.first_gone.contains_key(*key) && counts(node)).count()
    }

    pub(super) fn remember_gone(&mut self, node: &Node, now: Moment) {
        self.first_gone.entry(Key::of(node)).or_insert(now.instant);
    }

    /// What an operator lets go is not counted, even if it was tried before without success.
    pub(super) fn remember_deletion(&mut self, node: &Node, provider: &Arc<str>, now: Moment) {
        let mark = DeletionMark { provider: provider.clone(), when: now.instant };
        match node.is_deletion_allowed() {
            true => self.deletions.remove(&node.uid),
            false => self.deletions.insert(node.uid.clone(), mark),
        };
    }

    /// Forgets Nodes that are gone, ours no longer, or Ready, and deletions from before the window.
    pub(super) fn forget_outdated(&mut self, fleet: &Fleet, policy: &Policy, now: Moment) {
        self.first_gone.retain(|key, _| fleet.get(key).is_some_and(|node| node.ready != Ready::True));
        self.deletions.retain(|_, mark| now.instant.saturating_duration_since(mark.when) < policy.brake_window);
    }

    /// Forgets machines that were seen again.
    pub(super) fn forget_refuted(&mut self, answers: &Answers) {
        self.first_gone.retain(|key, _| !answers.get(key).is_some_and(|answer| answer.refutes_gone()));
    }
}
