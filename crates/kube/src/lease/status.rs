//! Metrics and status of an election.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_runtime::{Component, Metric, metrics};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::record::Lease;
use super::{Identity, LeaseOptions};

/// Time after the lease duration without a renewal from which on a leader is unhealthy (5.2).
const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);

metrics! {
    /// Metrics of elections.
    pub(crate) METRICS;
    LEADS = Metric::gauge(
        "leader_election_master_status",
        "Whether this process holds the lease of this name: 1, or 0 for a standby.",
    ).labels(&["name"]);
    SLOW = Metric::counter(
        "leader_election_slowpath_total",
        "Renewals of the lease of this name that had to read it first.",
    ).labels(&["name"]);
}

/// Metrics of all elections of the process.
#[derive(Debug, Clone)]
pub struct ElectionMetrics {
    leads: IntGaugeVec,
    slow: IntCounterVec,
}

impl ElectionMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<ElectionMetrics> {
        Ok(ElectionMetrics { leads: LEADS.register(registry)?, slow: SLOW.register(registry)? })
    }
}

/// Status of an election. Clones share it.
#[derive(Clone)]
pub(super) struct Status(Arc<Inner>);

struct Inner {
    name: String,
    identity: Identity,
    lease_duration: Duration,
    metrics: ElectionMetrics,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    /// Time of the last renewal while this process is the leader.
    leads: Option<Instant>,
}

impl Status {
    pub(super) fn new(options: &LeaseOptions, identity: Identity, metrics: ElectionMetrics) -> Status {
        let (name, lease_duration) = (options.name.clone(), options.lease_duration);
        metrics.leads.with_label_values(&[&name]).set(0);
        Status(Arc::new(Inner { name, identity, lease_duration, metrics, state: Mutex::default() }))
    }

    /// Records the observed lease, and logs a new holder.
    pub(super) fn observe(&self, lease: &Lease) {
        let mut state = self.state();
        let is_new = state.lease.as_ref().is_none_or(|known| known.holder() != lease.holder());
        if is_new && !lease.is_free() {
            tracing::info!(lease = self.0.name, holder = lease.holder(), "new leader elected");
        }
        state.lease = Some(lease.clone());
    }

    /// Records that this process acquired or renewed the lease at `sent`.
    pub(super) fn record_renewal(&self, lease: &Lease, sent: Instant) {
        self.observe(lease);
        self.state().leads = Some(sent);
        self.0.metrics.leads.with_label_values(&[&self.0.name]).set(1);
    }

    /// Records that this process is no longer the leader.
    pub(super) fn record_end(&self) {
        self.state().leads = None;
        self.0.metrics.leads.with_label_values(&[&self.0.name]).set(0);
    }

    /// Counts a renewal that had to read the lease first.
    pub(super) fn record_slow_path(&self) {
        self.0.metrics.slow.with_label_values(&[&self.0.name]).inc();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Component for Status {
    fn status(&self) -> Value {
        let state = self.state();
        let lease = state.lease.as_ref();
        json!({
            "identity": self.0.identity.as_str(),
            "leads": state.leads.is_some(),
            "holder": lease.map(Lease::holder),
            "since": lease.map(Lease::acquired),
            "renewed": lease.map(Lease::renewed),
            "transitions": lease.map(Lease::transitions),
        })
    }

    /// Only a leader can be unhealthy (5.2).
    fn health(&self) -> Result<(), String> {
        match self.state().leads {
            Some(renewed) if renewed.elapsed() > self.0.lease_duration + HEALTH_TOLERANCE => {
                Err(format!("failed election to renew leadership on lease {}", self.0.name))
            }
            _ => Ok(()),
        }
    }
}
