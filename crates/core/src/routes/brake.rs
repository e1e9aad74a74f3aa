//! Against losing all routes at once, when the Nodes seem to be gone and are not.
//!
//! A Node that is deleted takes its routes with it, and nobody need be asked. But a list of Nodes that is suddenly short, or
//! empty, may be one of another cluster, of an API server whose storage was restored from yesterday, or of a mistake: then
//! the routes that seem to lead nowhere are those that all traffic takes.
//!
//! * Without a single Node in the cluster, no more than one route goes. When the first Nodes are back, the others may be on
//!   their way: then the next rule holds for few routes, too.
//! * If more than ten and more than a share of all routes would go, the API server is asked for its list of Nodes, past
//!   every cache; when it has said twice, a minute apart, that the Nodes are gone, and none of them came back meanwhile, their
//!   routes go.

use std::fmt;
use std::time::{Duration, Instant};

/// So many go without asking.
pub(super) const FEW: usize = 10;

/// How far apart the two confirmations are.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_secs(60);

/// What the brake remembers.
#[derive(Debug, Clone)]
pub struct Brake {
    max_share: f64,
    /// There was no Node at all, and nobody has confirmed yet that the missing ones are gone.
    was_empty: bool,
    /// What the API server has confirmed, once.
    confirmed: Option<Confirmation>,
}

/// The API server has said that the Nodes of so many routes are gone.
#[derive(Debug, Clone, Copy)]
struct Confirmation {
    routes: usize,
    at: Instant,
}

/// What it says of routes that would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrakeDecision {
    /// They may go.
    Go,
    /// The API server is to be asked which Nodes it has; then [`Brake::confirm`].
    Ask,
    /// They stay, for this reason.
    Hold(HoldReason),
}

/// Why routes stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldReason {
    /// There are no Nodes at all.
    NoNodes {
        /// So many routes would go.
        routes: usize,
    },
    /// Many would go, and this was confirmed only once so far.
    Many {
        /// So many routes would go.
        routes: usize,
        /// Of so many.
        of: usize,
        /// The next confirmation counts after this long.
        again_in: Duration,
    },
}

impl Brake {
    /// Holds if more than this share of all routes would go; 1 and more never holds.
    pub fn new(max_share: f64) -> Brake {
        Brake { max_share, was_empty: false, confirmed: None }
    }

    /// Whether so many routes may go, of so many, with so many Nodes in the cluster. To be asked even if there are none: that
    /// ends what was confirmed before.
    pub fn judge(&mut self, routes: usize, of: usize, nodes: usize) -> BrakeDecision {
        if self.max_share >= 1.0 {
            return BrakeDecision::Go;
        }
        if nodes == 0 && routes > 1 {
            (self.was_empty, self.confirmed) = (true, None);
            return BrakeDecision::Hold(HoldReason::NoNodes { routes });
        }
        self.was_empty &= routes > 0;
        if self.was_empty || self.is_many(routes, of) {
            return BrakeDecision::Ask;
        }
        self.confirmed = None;
        BrakeDecision::Go
    }

    /// The API server was asked, and so many routes would still go.
    pub fn confirm(&mut self, routes: usize, of: usize, nodes: usize, now: Instant) -> BrakeDecision {
        let ruling = self.judge(routes, of, nodes);
        if ruling != BrakeDecision::Ask {
            return ruling;
        }
        // As long as some of them come back, the others may.
        let first = self.confirmed.filter(|first| routes >= first.routes).unwrap_or(Confirmation { routes, at: now });
        let again_in = CONFIRM_AFTER.saturating_sub(now.saturating_duration_since(first.at));
        if !again_in.is_zero() {
            self.confirmed = Some(first);
            return BrakeDecision::Hold(HoldReason::Many { routes, of, again_in });
        }
        (self.was_empty, self.confirmed) = (false, None);
        BrakeDecision::Go
    }

    fn is_many(&self, routes: usize, of: usize) -> bool {
        routes > FEW && routes as f64 > self.max_share * of as f64
    }
}

impl HoldReason {
    /// In a word, for metrics and for telling one cause from another.
    pub fn word(&self) -> &'static str {
        match self {
            HoldReason::NoNodes { .. } => "no_nodes",
            HoldReason::Many { .. } => "many",
        }
    }

    /// How many routes stay because of it.
    pub fn routes(&self) -> usize {
        match self {
            HoldReason::NoNodes { routes } | HoldReason::Many { routes, .. } => *routes,
        }
    }
}

/// What is the matter, and what to do about it.
impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::NoNodes { routes } => write!(
                f,
                "{routes} routes lead to nodes that do not exist, and the cluster has no nodes at all: they stay until it \
                 has; check that this is the right cluster, and if the routes are to go, set --route-deletion-max-share=1"
            ),
            HoldReason::Many { routes, of, .. } => write!(
                f,
                "{routes} of {of} routes lead to nodes that do not exist: they stay until the API server has confirmed \
                 that twice, {CONFIRM_AFTER:?} apart"
            ),
        }
    }
}
