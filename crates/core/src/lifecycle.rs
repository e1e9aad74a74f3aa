//! What becomes of Nodes that are not ready (LIFE-3 to LIFE-8), and the rules against doubtful deletion.
//!
//! A pass looks at all Nodes at once, in two steps, so that one cloud read serves all of them:
//!
//! ```text
//!  Nodes ──► questions ──► whom to ask the cloud about ──(observe)──► answers
//!  Nodes, answers, Memory, now ──► decide ──► Verdict: actions to apply, deletions to confirm, what is held back and why
//!                                                          │
//!            deletions to confirm ──(observe, uncached)──► decide again ──► deletions
//! ```
//!
//! A Node is deleted only if all of this holds; everything else leaves it alone:
//!
//! 1. it is not Ready, and was registered longer ago than [`Policy::grace`];
//! 2. the provider that owns its ID answered [`InstanceState::Gone`], by a read that passed every cache, twice, at least
//!    [`Policy::confirm_after`] apart, and nothing else in between;
//! 3. the same read showed at least one machine of another Node of that provider (the witness), unless this provider
//!    has no other Node: an account or project in which nothing is visible is the wrong one, not an empty one;
//! 4. no more than [`Policy::brake_share`] of that provider's Nodes (and always one) go within [`Policy::brake_window`],
//!    counting those that went already. If more would go, none goes: the brake holds until fewer are missing, or an
//!    operator lets Nodes go with the annotation `bowline.dev/allow-deletion: "true"`.
//!
//! The annotation waives rules 3 and 4, never 1 and 2.

use std::time::Duration;

#[allow(unused_imports)] // named in the text above
use crate::InstanceState;

/// When a deletion is beyond doubt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// A Node younger than this is not deleted: the cloud may not list its machine yet.
    pub grace: Duration,
    /// How far apart the two looks are at least.
    pub confirm_after: Duration,
    /// The share of a provider's Nodes that may go within the window, from 0 to 1; one Node always may.
    pub brake_share: f64,
    /// How long a deletion counts.
    pub brake_window: Duration,
}

impl Default for Policy {
    /// The share lets one zone of three go, and stops there.
    fn default() -> Policy {
        Policy {
            grace: Duration::from_secs(30),
            confirm_after: Duration::from_secs(10),
            brake_share: 0.34,
            brake_window: Duration::from_secs(600),
        }
    }
}
