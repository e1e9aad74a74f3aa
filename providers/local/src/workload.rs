//! What the cloud is still at work on. It is forgotten in a restart.

use std::collections::HashMap;
use std::time::Duration;

use bowline_core::LoadBalancerKey;
use tokio::time::Instant;

/// For whom something is being changed, and until when.
#[derive(Debug)]
pub(crate) struct Workload {
    time: Duration,
    until: HashMap<LoadBalancerKey, Instant>,
}

impl Workload {
    /// Every change takes this long.
    pub(crate) fn new(time: Duration) -> Workload {
        Workload { time, until: HashMap::new() }
    }

    /// Every change takes this long from now on.
    pub(crate) fn set_time(&mut self, time: Duration) {
        self.time = time;
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
