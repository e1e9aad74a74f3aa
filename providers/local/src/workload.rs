//! What the cloud is still at work on. It is forgotten in a restart.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bowline_core::LoadBalancerKey;
use tokio::time::Instant;

/// For whom something is being changed, and until when.
#[derive(Debug)]
pub(crate) struct Workload {
    time: Duration,
    until: HashMap<LoadBalancerKey, Instant>,
    /// Number of the next changes that fail.
    failures: u64,
    /// Owners whose last change has failed, or will.
    failed: HashSet<LoadBalancerKey>,
}

impl Workload {
    /// Every change takes this long.
    pub(crate) fn new(time: Duration) -> Workload {
        Workload { time, until: HashMap::new(), failures: 0, failed: HashSet::new() }
    }

    /// Every change takes this long from now on.
    pub(crate) fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// This many of the next changes are accepted and come to nothing.
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

    /// The last change for this owner has failed.
    pub(crate) fn has_failed(&self, owner: &LoadBalancerKey) -> bool {
        self.failed.contains(owner) && self.rest(owner).is_none()
    }

    /// A change for this owner begins.
    pub(crate) fn begin(&mut self, owner: &LoadBalancerKey) {
        let now = Instant::now();
        self.until.retain(|_, until| *until > now);
        if let Some(until) = now.checked_add(self.time).filter(|until| *until > now) {
            self.until.insert(owner.clone(), until);
        }
    }

    /// All changes are done.
    pub(crate) fn finish(&mut self) {
        self.until.clear();
    }

    /// How long the change for this owner still takes.
    pub(crate) fn rest(&self, owner: &LoadBalancerKey) -> Option<Duration> {
        let rest = self.until.get(owner)?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }
}
