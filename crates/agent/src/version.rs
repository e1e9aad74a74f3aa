//! Version of a state, and claims to change it.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Identity of a claim to be the active agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimId {
    /// Term, greater than all terms that the agent knew of.
    pub(crate) term: u64,
    /// Random number: two agents that do not reach each other may take the same term.
    pub(crate) nonce: u32,
}

/// Version of the state of a group.
///
/// The number of writes decides which version is newer, and the term only between equal numbers. Terms also grow without writes,
/// when an agent without a connection to the group is restarted, and such an agent must not outrank one that has accepted writes.
/// This is safe because an agent has at most one write that is not replicated: an acknowledged write of a later term has at least
/// the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    /// Number of writes.
    pub(crate) seq: u64,
    /// Claim of the agent that wrote last.
    pub(crate) by: ClaimId,
}

impl Version {
    /// Version after a write of this agent.
    pub(crate) fn next(self, by: ClaimId) -> Version {
        Version { seq: self.seq.saturating_add(1), by }
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        let key = |version: &Version| (version.seq, version.by.term, version.by.nonce);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.by.term, self.seq)
    }
}

/// What an agent has promised: the last claim that it accepted, and the version of its state. Both are in its state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    pub(crate) accepted: ClaimId,
    pub(crate) version: Version,
}

impl Position {
    /// Whether an agent with this claim and this state may replace the own state. Of the claims of one term, only the first one
    /// is accepted.
    pub(crate) fn accepts(&self, seen_term: u64, claim: ClaimId, version: Version) -> bool {
        let is_claim_accepted = claim.term > self.accepted.term || claim == self.accepted;
        claim.term >= seen_term && is_claim_accepted && version >= self.version
    }
}
