//! The controller's metrics: upstream's by its name, and ours.

use bowline_runtime::{Metric, metrics};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::pass::Done;

metrics! {
    /// What the controller counts.
    pub METRICS;
    SYNCS = Metric::counter(
        "route_controller_route_sync_total",
        "Passes over routes, by what caused them and what came of them.",
    ).labels(&["outcome", "trigger"]);
    ROUTES = Metric::gauge("bowline_routes", "Routes that the cloud has, as far as is known.").labels(&["provider"]);
    HELD = Metric::gauge(
        "bowline_route_deletions_held_back",
        "Routes that are kept although the nodes that they lead to are gone, by what speaks against deleting them.",
    ).labels(&["provider", "reason"]);
}

/// What made us look (ROUTE-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// A Node has changed.
    NodeChange,
    /// Its time has come.
    Periodic,
}

/// What came of it, from the least to the most (ROUTE-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// No route was made or removed.
    Noop,
    /// At least one was.
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

    pub(super) fn of(done: &Done) -> Outcome {
        match done {
            done if done.is_unlisted => Outcome::Error,
            done if done.has_changed => Outcome::Changed,
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

    /// The cloud has so many routes.
    pub(super) fn has(&self, provider: &str, routes: usize) {
        self.routes.with_label_values(&[provider]).set(i64::try_from(routes).unwrap_or(i64::MAX));
    }

    /// So many are kept for each reason; of reasons that are not named, none.
    pub(super) fn held(&self, provider: &str, doubt: Option<&bowline_core::routes::HoldReason>) {
        for reason in ["no_nodes", "many"] {
            let held = doubt.filter(|doubt| doubt.word() == reason).map_or(0, |doubt| doubt.routes());
            self.held.with_label_values(&[provider, reason]).set(i64::try_from(held).unwrap_or(i64::MAX));
        }
    }
}
