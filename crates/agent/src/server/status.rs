//! `GET /v1/status`.

use bowline_agent_client::{AddressRange, AgentStatus, PeerStatus, PoolStatus};
use bowline_core::IpFamily;
use tokio::time::Instant;

use super::router::Api;
use crate::balancers::{Balancers, Pool};
use crate::config::Peer;

impl Api {
    pub(super) fn status(&self) -> AgentStatus {
        let group = &self.group;
        let (role, peers, problems) = (group.role(), self.peers(), group.problems.all());
        let connections = self.open_connections();
        let inner = group.inner();
        AgentStatus {
            name: group.config.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role,
            term: inner.seen_term,
            state: inner.state.position.version.to_string(),
            addresses: self.traffic.held() as u64,
            connections,
            pools: self.pools(&inner.state.world.balancers),
            peers,
            problems: inner.fenced.map(|fenced| fenced.to_string()).into_iter().chain(problems).collect(),
        }
    }

    fn open_connections(&self) -> u64 {
        let ids: Vec<_> = self.group.read(|world| world.balancers.balancers().map(|found| found.id.clone()).collect());
        let listeners = ids.iter().filter_map(|id| self.traffic.status(id)).flat_map(|status| status.listeners);
        listeners.map(|listener| listener.counters.open).sum()
    }

    /// Pools by kind and family, as far as there are any.
    pub(crate) fn pools(&self, balancers: &Balancers) -> Vec<PoolStatus> {
        let pools = &self.group.config.pools;
        let kinds = [(false, &pools.external), (true, &pools.internal)];
        let all = kinds.into_iter().flat_map(|(internal, pools)| {
            [IpFamily::IPv4, IpFamily::IPv6].map(|family| pool_status(internal, family, pools, balancers))
        });
        all.filter(|pool| !pool.ranges.is_empty()).collect()
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let (inner, now) = (self.group.inner(), Instant::now());
        let of = |peer: &Peer| {
            let view = inner.peers.iter().find(|view| view.name == peer.name);
            PeerStatus {
                name: peer.name.clone(),
                endpoint: peer.endpoint.clone(),
                reachable: view.is_some_and(|view| view.beat(now).is_some()),
                message: inner.unreachable.get(&peer.name).map(|(_, error)| error.clone()),
            }
        };
        self.group.config.peers.iter().map(of).collect()
    }
}

fn pool_status(internal: bool, family: IpFamily, pools: &[Pool], balancers: &Balancers) -> PoolStatus {
    let pools: Vec<_> = pools.iter().filter(|pool| pool.family() == family).collect();
    let is_inside = |ip| pools.iter().any(|pool| pool.contains(ip));
    PoolStatus {
        internal,
        family,
        ranges: pools.iter().map(|pool| AddressRange { first: pool.first(), last: pool.last() }).collect(),
        size: pools.iter().fold(0, |size: u64, pool| size.saturating_add(pool.size())),
        used: balancers.addresses().filter(|address| is_inside(&address.ip)).count() as u64,
    }
}
