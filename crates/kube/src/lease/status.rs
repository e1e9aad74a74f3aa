//! What can be seen of an election: its metrics, and its part on the board.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_runtime::{Metric, Part, metrics};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::record::Lease;
use super::{Identity, LeaseOptions};

/// How long after a lease should have been lost a process may believe that it holds it (5.2).
const TOLERATED: Duration = Duration::from_secs(20);

metrics! {
    /// What elections tell.
    pub(crate) METRICS;
    LEADS = Metric::gauge(
        "leader_election_master_status",
        "Whether this process holds the lease of this name: 1, or 0 for a standby.",
    ).labels(&["name"]);
    SLOW = Metric::counter(
        "leader_election_slowpath_total",
        "Renewals of the lease of this name for which it had to be read first.",
    ).labels(&["name"]);
}

/// The metrics of all elections of the process.
#[derive(Debug, Clone)]
pub struct ElectionMetrics {
    leads: IntGaugeVec,
    slow: IntCounterVec,
}

impl ElectionMetrics {
    /// Registers them.
    pub fn register(registry: &Registry) -> prometheus::Result<ElectionMetrics> {
        Ok(ElectionMetrics { leads: LEADS.register(registry)?, slow: SLOW.register(registry)? })
    }
}

/// How an election stands, for whoever looks. Clones are the same.
#[derive(Clone)]
pub(super) struct Status(Arc<Inner>);

struct Inner {
    name: String,
    identity: Identity,
    lease_duration: Duration,
    metrics: ElectionMetrics,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    lease: Option<Lease>,
    /// When this process last renewed it, as long as it believes that it leads.
    leads: Option<Instant>,
}

impl Status {
    pub(super) fn new(options: &LeaseOptions, identity: Identity, metrics: ElectionMetrics) -> Status {
        let (name, lease_duration) = (options.name.clone(), options.lease_duration);
        metrics.leads.with_label_values(&[&name]).set(0);
        Status(Arc::new(Inner { name, identity, lease_duration, metrics, now: Mutex::default() }))
    }

    /// The lease looks like this. Tells who holds it, if that is news.
    pub(super) fn seen(&self, lease: &Lease) {
        let mut now = self.now();
        let is_new = now.lease.as_ref().is_none_or(|known| known.holder() != lease.holder());
        if is_new && !lease.is_free() {
            tracing::info!(lease = self.0.name, holder = lease.holder(), "new leader elected");
        }
        now.lease = Some(lease.clone());
    }

    /// It was written by this process, which leads as of `sent`.
    pub(super) fn renewed(&self, lease: &Lease, sent: Instant) {
        self.seen(lease);
        self.now().leads = Some(sent);
        self.0.metrics.leads.with_label_values(&[&self.0.name]).set(1);
    }

    /// This process leads no longer.
    pub(super) fn ended(&self) {
        self.now().leads = None;
        self.0.metrics.leads.with_label_values(&[&self.0.name]).set(0);
    }

    /// It had to be read before it was renewed.
    pub(super) fn was_slow(&self) {
        self.0.metrics.slow.with_label_values(&[&self.0.name]).inc();
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part for Status {
    fn status(&self) -> Value {
        let now = self.now();
        let lease = now.lease.as_ref();
        json!({
            "identity": self.0.identity.as_str(),
            "leads": now.leads.is_some(),
            "holder": lease.map(Lease::holder),
            "since": lease.map(Lease::acquired),
            "renewed": lease.map(Lease::renewed),
            "transitions": lease.map(Lease::transitions),
        })
    }

    /// Only whoever believes that it leads can be unwell (5.2).
    fn health(&self) -> Result<(), String> {
        match self.now().leads {
            Some(renewed) if renewed.elapsed() > self.0.lease_duration + TOLERATED => {
                Err(format!("failed election to renew leadership on lease {}", self.0.name))
            }
            _ => Ok(()),
        }
    }
}
