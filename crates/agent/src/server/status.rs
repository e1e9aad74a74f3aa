//! `GET /v1/status`.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::API_VERSION;
use super::router::Api;
use crate::version::Version;

/// Status of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Name.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Version of the API.
    pub api_version: String,
    /// `active`, `standby`, `fenced` or `follower`.
    pub role: String,
    /// Reason why the agent is fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<String>,
    /// Greatest term that the agent knows of.
    pub term: u64,
    /// Version of its state, as `TERM.WRITES`.
    pub state: String,
    /// Number of load balancers.
    pub balancers: usize,
    /// Number of routes.
    pub routes: usize,
    /// Use of the address pools.
    pub pools: Vec<PoolUse>,
    /// The other members.
    pub peers: Vec<PeerStatus>,
    /// Current and recent problems.
    pub problems: Vec<String>,
}

/// Use of an address pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolUse {
    /// Pool.
    pub pool: String,
    /// Whether it is for internal load balancers.
    pub internal: bool,
    /// Number of its addresses.
    pub size: u64,
    /// Number of allocated addresses.
    pub used: usize,
}

/// Status of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// Name.
    pub name: String,
    /// Endpoint.
    pub endpoint: String,
    /// Whether it answers.
    pub alive: bool,
    /// Whether it is active.
    pub active: bool,
    /// Version of its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Error of the latest poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Api {
    pub(super) fn status(&self) -> AgentStatus {
        let (group, role) = (&self.group, self.group.role_name());
        let (peers, problems) = (self.peers(), group.problems.all());
        let inner = group.inner();
        let world = &inner.state.world;
        AgentStatus {
            name: group.config.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_version: API_VERSION.to_owned(),
            role: role.to_owned(),
            fenced: inner.fenced.map(|fenced| fenced.to_string()),
            term: inner.seen_term,
            state: inner.state.position.version.to_string(),
            balancers: world.balancers.balancers().count(),
            routes: world.routes.iter().count(),
            pools: self.pools(&world.balancers),
            peers,
            problems,
        }
    }

    fn pools(&self, balancers: &crate::Balancers) -> Vec<PoolUse> {
        let pools = &self.group.config.pools;
        let external = pools.external.iter().map(|pool| (pool, false));
        let all = external.chain(pools.internal.iter().map(|pool| (pool, true)));
        let of = |(pool, internal): (&crate::Pool, bool)| PoolUse {
            pool: pool.to_string(),
            internal,
            size: pool.size(),
            used: balancers.addresses().filter(|address| pool.contains(&address.ip)).count(),
        };
        all.map(of).collect()
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let (inner, now) = (self.group.inner(), Instant::now());
        let of = |peer: &crate::config::Peer| {
            let view = inner.peers.iter().find(|view| view.name == peer.name);
            let latest = view.and_then(|view| view.heard.as_ref()).map(|heard| &heard.beat);
            let alive = view.and_then(|view| view.beat(now));
            PeerStatus {
                name: peer.name.clone(),
                endpoint: peer.endpoint.clone(),
                alive: alive.is_some(),
                active: alive.is_some_and(|beat| beat.active.is_some()),
                state: latest.map(|beat| Version::to_string(&beat.version)),
                error: inner.unreachable.get(&peer.name).map(|(_, error)| error.clone()),
            }
        };
        self.group.config.peers.iter().map(of).collect()
    }
}
