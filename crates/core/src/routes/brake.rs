//! Brake on the deletion of routes, against the loss of all routes when Nodes only seem to be gone.
//!
//! The routes of a deleted Node are normally deleted without further checks. A list of Nodes that is suddenly short or empty,
//! however, may come from another cluster, from an API server restored from an old backup, or from a mistake. The seemingly
//! orphaned routes are then those that all traffic uses.
//!
//! * Without any Node in the cluster, at most one route is deleted. While Nodes come back, the next rule applies to any number of
//!   routes.
//! * If more than ten routes and more than a share of all routes would be deleted, the Nodes are listed from the API server,
//!   bypassing every cache. The routes are deleted after two lists, a minute apart, have confirmed that the Nodes are gone and
//!   none has come back in between.

use std::fmt;
use std::time::{Duration, Instant};

/// Maximum number of routes that are deleted without confirmation.
pub(super) const MAX_UNCONFIRMED: usize = 10;

/// Time between the two confirmations.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_secs(60);

/// State of the brake.
#[derive(Debug, Clone)]
pub struct Brake {
    max_share: f64,
    /// Whether there was no Node at all, and it is not confirmed yet that the missing Nodes are gone.
    was_empty: bool,
    /// First confirmation by the API server.
    confirmed: Option<Confirmation>,
}

/// Confirmation by the API server that the Nodes of this number of routes are gone.
#[derive(Debug, Clone, Copy)]
struct Confirmation {
    routes: usize,
    at: Instant,
}

/// Decision about the deletion of routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrakeDecision {
    /// The routes may be deleted.
    Allow,
    /// List the Nodes from the API server, then call [`Brake::confirm`].
    Confirm,
    /// The routes are held back.
    Hold(HoldReason),
}

/// Reason why routes are held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldReason {
    /// The cluster has no Nodes.
    NoNodes {
        /// Number of routes that would be deleted.
        routes: usize,
    },
    /// Many routes would be deleted, and this is confirmed only once so far.
    Many {
        /// Number of routes that would be deleted.
        routes: usize,
        /// Total number of routes.
        of: usize,
        /// Time until the second confirmation.
        again_in: Duration,
    },
}

impl Brake {
    /// Creates a brake that holds if more than this share of all routes would be deleted. With 1 or more it never holds.
    pub fn new(max_share: f64) -> Brake {
        Brake { max_share, was_empty: false, confirmed: None }
    }

    /// Decides whether `routes` of `of` routes may be deleted in a cluster with `nodes` Nodes. Call it even if no route would be
    /// deleted, which resets earlier confirmations.
    pub fn check(&mut self, routes: usize, of: usize, nodes: usize) -> BrakeDecision {
        if self.max_share >= 1.0 {
            return BrakeDecision::Allow;
        }
        if nodes == 0 && routes > 1 {
            (self.was_empty, self.confirmed) = (true, None);
            return BrakeDecision::Hold(HoldReason::NoNodes { routes });
        }
        self.was_empty &= routes > 0;
        if self.was_empty || self.is_many(routes, of) {
            return BrakeDecision::Confirm;
        }
        self.confirmed = None;
        BrakeDecision::Allow
    }

    /// Decides after the Nodes were listed from the API server, if `routes` routes would still be deleted.
    pub fn confirm(&mut self, routes: usize, of: usize, nodes: usize, now: Instant) -> BrakeDecision {
        let decision = self.check(routes, of, nodes);
        if decision != BrakeDecision::Confirm {
            return decision;
        }
        // While some Nodes come back, the others may follow.
        let first = self.confirmed.filter(|first| routes >= first.routes).unwrap_or(Confirmation { routes, at: now });
        let again_in = CONFIRM_AFTER.saturating_sub(now.saturating_duration_since(first.at));
        if !again_in.is_zero() {
            self.confirmed = Some(first);
            return BrakeDecision::Hold(HoldReason::Many { routes, of, again_in });
        }
        (self.was_empty, self.confirmed) = (false, None);
        BrakeDecision::Allow
    }

    fn is_many(&self, routes: usize, of: usize) -> bool {
        routes > MAX_UNCONFIRMED && routes as f64 > self.max_share * of as f64
    }
}

impl HoldReason {
    /// Returns the reason as one word, for metrics and for comparing reasons.
    pub fn as_str(&self) -> &'static str {
        match self {
            HoldReason::NoNodes { .. } => "no_nodes",
            HoldReason::Many { .. } => "many",
        }
    }

    /// Returns the number of routes that are held back.
    pub fn routes(&self) -> usize {
        match self {
            HoldReason::NoNodes { routes } | HoldReason::Many { routes, .. } => *routes,
        }
    }
}

/// Formats the problem and its remedy.
impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::NoNodes { routes } => write!(
                f,
                "{routes} routes belong to nodes that do not exist, and the cluster has no nodes at all: they are not deleted until \
                 it has; check that this is the right cluster, and to delete the routes, set --route-deletion-max-share=1"
            ),
            HoldReason::Many { routes, of, .. } => write!(
                f,
                "{routes} of {of} routes belong to nodes that do not exist: they are not deleted until the API server has \
                 confirmed that twice, {CONFIRM_AFTER:?} apart"
            ),
        }
    }
}
