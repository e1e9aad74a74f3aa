//! Messages by which the agents of a group know each other's state.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::version::{ClaimId, Version};

/// Role of an agent in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May be active.
    #[default]
    Member,
    /// Copies the state for the routes of its host, and is never active.
    Follower,
}

/// State of an agent, as it reports it to its peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Beat {
    /// Name.
    pub(crate) name: String,
    /// ID of the process: a restarted agent has another one.
    pub(crate) boot: String,
    pub(crate) role: Role,
    /// `false` while the agent shuts down.
    pub(crate) ready: bool,
    /// `false` while the agent must not become active, for example without a quorum.
    pub(crate) electable: bool,
    /// `false` while the state file cannot be written.
    pub(crate) writable: bool,
    /// `false` while the interface of the addresses is down or has no carrier.
    #[serde(default = "connected")]
    pub(crate) connected: bool,
    /// Term, if the agent is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) active: Option<u64>,
    /// Claim of another agent that this one observes directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) observes: Option<Claim>,
    pub(crate) version: Version,
    /// Last claim that the agent accepted; its own one if it is active.
    pub(crate) accepted: ClaimId,
    /// Greatest term that the agent knows of. It rejects claims of smaller terms.
    pub(crate) seen_term: u64,
    /// Address pools, which are the same in the whole group.
    #[serde(default)]
    pub(crate) pools: String,
    /// Link-layer address of the interface with the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_address: Option<String>,
}

/// Claim of an agent to be the active one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) term: u64,
    pub(crate) version: Version,
}

/// Default of [`Beat::connected`].
fn connected() -> bool {
    true
}

impl Beat {
    /// Claim of this agent, if it is active.
    pub(crate) fn claim(&self) -> Option<Claim> {
        self.active.map(|term| Claim { name: self.name.clone(), term, version: self.version })
    }

    /// Greatest term that an agent knows of after this beat, if it has accepted this claim.
    pub(crate) fn seen_term(&self, accepted: ClaimId) -> u64 {
        let observes = self.observes.as_ref().map_or(0, |claim| claim.term);
        let seen = self.seen_term.max(self.active.unwrap_or_default()).max(observes);
        // Two agents have accepted different claims of the same term, and neither accepts the other one.
        let is_ambiguous = self.accepted.term == accepted.term && self.accepted != accepted;
        if is_ambiguous { seen.max(accepted.term.saturating_add(1)) } else { seen }
    }
}

impl Claim {
    /// Order of claims: of two active agents, the one with more writes stays active, so that as few writes as possible are discarded.
    pub(crate) fn rank(&self) -> (Version, Reverse<&str>) {
        (self.version, Reverse(&self.name))
    }
}
