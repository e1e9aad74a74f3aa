//! Metrics of the controller: upstream's name is kept, ours are added.

use bowline_runtime::{Metric, metrics};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::sync::SyncResult;

metrics! {
    /// Metrics of the controller.
    pub METRICS;
    SYNCS = Metric::counter(
        "route_controller_route_sync_total",
        "Syncs of routes, by outcome and trigger.",
    ).labels(&["outcome", "trigger"]);
    ROUTES = Metric::gauge("bowline_routes", "Routes in the cached route table of the cloud.").labels(&["provider"]);
    HELD = Metric::gauge(
        "bowline_route_deletions_held_back",
        "Routes whose nodes are gone and whose deletion is held back, by reason.",
    ).labels(&["provider", "reason"]);
}

/// Trigger of a sync (ROUTE-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// A Node has changed.
    NodeChange,
    /// The period has elapsed.
    Periodic,
}

/// Outcome of a sync, in ascending order of severity (ROUTE-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// No route was created or deleted.
    Noop,
    /// At least one route was created or deleted.
    Changed,
    /// The routes could not be listed.
    Error,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Outcome::Noop => "noop",
            Outcome::Changed => "changed",
            Outcome::Error => "error",
        }
    }

    pub(super) fn of(result: &SyncResult) -> Outcome {
        match result {
            result if result.is_unlisted => Outcome::Error,
            result if result.has_changed => Outcome::Changed,
            _ => Outcome::Noop,
        }
    }
}

pub(super) struct Metrics {
    syncs: IntCounterVec,
    routes: IntGaugeVec,
    held: IntGaugeVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics {
            syncs: SYNCS.register(registry)?,
            routes: ROUTES.register(registry)?,
            held: HELD.register(registry)?,
        })
    }

    pub(super) fn synced(&self, trigger: Trigger, outcome: Outcome) {
        let trigger = match trigger {
            Trigger::NodeChange => "node_change",
            Trigger::Periodic => "periodic",
        };
        self.syncs.with_label_values(&[outcome.word(), trigger]).inc();
    }

    /// Sets the number of routes of the cloud.
    pub(super) fn set_routes(&self, provider: &str, routes: usize) {
        self.routes.with_label_values(&[provider]).set(i64::try_from(routes).unwrap_or(i64::MAX));
    }

    /// Sets the number of routes that are held back for this reason, and zero for every other reason.
    pub(super) fn set_held(&self, provider: &str, hold: Option<&bowline_core::routes::HoldReason>) {
        for reason in ["no_nodes", "many"] {
            let held = hold.filter(|hold| hold.as_str() == reason).map_or(0, |hold| hold.routes());
            self.held.with_label_values(&[provider, reason]).set(i64::try_from(held).unwrap_or(i64::MAX));
        }
    }
}
