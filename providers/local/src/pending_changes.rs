//! Changes in progress. They are not part of the snapshot.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bowline_core::LoadBalancerKey;
use tokio::time::Instant;

/// Changes in progress, by owner.
#[derive(Debug)]
pub(crate) struct PendingChanges {
    time: Duration,
    until: HashMap<LoadBalancerKey, Instant>,
    /// Number of further changes that fail.
    failures: u64,
    /// Owners whose last change has failed or will fail.
    failed: HashSet<LoadBalancerKey>,
}

impl PendingChanges {
    /// `time` is the duration of every change.
    pub(crate) fn new(time: Duration) -> PendingChanges {
        PendingChanges { time, until: HashMap::new(), failures: 0, failed: HashSet::new() }
    }

    /// Sets the duration of further changes.
    pub(crate) fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// Makes the next changes fail after they are accepted.
    pub(crate) fn fail_next(&mut self, changes: u64) {
        self.failures = changes;
    }

    /// Whether the next change for this owner fails.
    pub(crate) fn fails(&mut self, owner: &LoadBalancerKey) -> bool {
        let fails = self.failures > 0;
        self.failures = self.failures.saturating_sub(1);
        if fails {
            self.failed.insert(owner.clone());
        } else {
            self.failed.remove(owner);
        }
        fails
    }

    /// Whether the last change for this owner has failed.
    pub(crate) fn has_failed(&self, owner: &LoadBalancerKey) -> bool {
        self.failed.contains(owner) && self.rest(owner).is_none()
    }

    /// Starts a change for this owner.
    pub(crate) fn begin(&mut self, owner: &LoadBalancerKey) {
        let now = Instant::now();
        self.until.retain(|_, until| *until > now);
        if let Some(until) = now.checked_add(self.time).filter(|until| *until > now) {
            self.until.insert(owner.clone(), until);
        }
    }

    /// Completes all changes.
    pub(crate) fn finish(&mut self) {
        self.until.clear();
    }

    /// Remaining time of the change for this owner.
    pub(crate) fn rest(&self, owner: &LoadBalancerKey) -> Option<Duration> {
        let rest = self.until.get(owner)?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }
}
