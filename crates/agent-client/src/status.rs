//! Status of an agent, which every agent returns, active or not: `GET /v1/status`.

use std::net::IpAddr;

use bowline_core::IpFamily;
use serde::{Deserialize, Serialize};

/// Status of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Name in the group.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Role.
    pub role: AgentRole,
    /// Term of the active agent that this agent knows of.
    #[serde(default)]
    pub term: u64,
    /// Version of the state: term and number of the last write, as `TERM.NUMBER`.
    #[serde(default)]
    pub state: String,
    /// Number of addresses that this agent holds.
    #[serde(default)]
    pub addresses: u64,
    /// Number of open connections of clients.
    #[serde(default)]
    pub connections: u64,
    /// Address pools of the group.
    #[serde(default)]
    pub pools: Vec<PoolStatus>,
    /// The other members of the group.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// Conditions that need an operator: both agents were active, another host uses an address.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Role of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentRole {
    /// It holds the addresses and accepts writes.
    Active,
    /// It copies the state, and becomes active when the active agent fails.
    Standby,
    /// It must not be active: too few agents reach each other, or it has just started.
    Fenced,
    /// It copies the state for the routes of its host, and is never active.
    Follower,
}

/// Addresses of one IP family in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// The pool is for internal load balancers.
    #[serde(default)]
    pub internal: bool,
    /// IP family.
    pub family: IpFamily,
    /// Addresses of the pool.
    pub ranges: Vec<AddressRange>,
    /// Number of addresses; `u64::MAX` for more.
    pub size: u64,
    /// Number of addresses in use.
    pub used: u64,
}

/// Addresses of one family from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address.
    pub first: IpAddr,
    /// Last address.
    pub last: IpAddr,
}

/// Another member of the group, as this agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// Name.
    pub name: String,
    /// Endpoint.
    #[serde(default)]
    pub endpoint: String,
    /// Whether it answers.
    pub reachable: bool,
    /// Reason why it does not, or what is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl AgentRole {
    /// Name in tables and metrics, the same as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentRole::Active => "active",
            AgentRole::Standby => "standby",
            AgentRole::Fenced => "fenced",
            AgentRole::Follower => "follower",
        }
    }
}

impl AddressRange {
    /// Whether the address is in the range.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&ip)
    }
}

impl PoolStatus {
    /// Number of free addresses.
    pub fn free(&self) -> u64 {
        self.size.saturating_sub(self.used)
    }
}
