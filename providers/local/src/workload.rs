//! What the cloud is still at work on. It is forgotten in a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The balancers that are being changed, and until when.
#[derive(Debug)]
pub(crate) struct Workload {
    time: Duration,
    until: BTreeMap<String, Instant>,
}

impl Workload {
    /// Every change takes this long.
    pub(crate) fn new(time: Duration) -> Workload {
        Workload { time, until: BTreeMap::new() }
    }

    /// Every change takes this long from now on.
    pub(crate) fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// A change of this balancer begins.
    pub(crate) fn begin(&mut self, balancer: &str) {
        let now = Instant::now();
        self.until.retain(|_, until| *until > now);
        if let Some(until) = now.checked_add(self.time).filter(|until| *until > now) {
            self.until.insert(balancer.to_owned(), until);
        }
    }

    /// How long the change of this balancer still takes.
    pub(crate) fn rest(&self, balancer: &str) -> Option<Duration> {
        let rest = self.until.get(balancer)?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }
}
