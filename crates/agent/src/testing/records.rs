//! Random histories of states.

use bowline_agent_client::{
    AddressRequest, BalancerSettings, BalancerTarget, Change, CreateRouteRequest, Listener, Query, TargetChange,
};
use bowline_core::{IpFamily, LoadBalancerKey, Protocol};

use crate::balancers::Pools;
use crate::state::{State, Stored};
use crate::version::ClaimId;

/// Source of random changes.
pub(crate) struct Random {
    rng: fastrand::Rng,
    pools: Pools,
    /// Number of changes that the rules accepted.
    pub(crate) accepted: usize,
}

/// State as JSON, which tests compare.
pub(crate) fn json_of(state: &State) -> serde_json::Value {
    serde_json::to_value(Stored::from(state)).unwrap()
}

/// Key of a Service.
pub(crate) fn key(service: &str) -> LoadBalancerKey {
    LoadBalancerKey {
        cluster: "c".into(),
        namespace: "web".to_owned(),
        service: service.to_owned(),
        uid: format!("uid-{service}"),
    }
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let pools = Pools { external: vec!["127.0.40.0/24".parse().unwrap()], internal: Vec::new() };
        Random { rng: fastrand::Rng::with_seed(seed), pools, accepted: 0 }
    }

    /// State after this number of changes.
    pub(crate) fn state(&mut self, changes: usize) -> State {
        (0..changes).fold(State::default(), |state, _| self.change(&state))
    }

    /// State after a random change, which the rules may reject.
    pub(crate) fn change(&mut self, state: &State) -> State {
        let mut after = state.clone();
        let is_accepted = if self.rng.u8(0..4) == 0 { self.route(&mut after) } else { self.balancer(&mut after) };
        if !is_accepted {
            return state.clone();
        }
        self.accepted += 1;
        after.position.accepted = ClaimId { term: 1 + self.accepted as u64 / 10, nonce: 0 };
        after.position.version = after.position.version.next(after.position.accepted);
        after
    }

    fn route(&mut self, after: &mut State) -> bool {
        let routes = &mut after.world.routes;
        let existing = routes.of("c").map(|route| route.id.clone()).next();
        match existing {
            Some(id) if self.rng.u8(0..3) == 0 => routes.delete("c", &id).is_ok(),
            _ => routes
                .create(CreateRouteRequest {
                    cluster: "c".into(),
                    name: String::new(),
                    destination: format!("10.{}.0.0/24", self.rng.u8(0..20)).parse().unwrap(),
                    node: format!("n-{}", self.rng.u8(0..4)).into(),
                    provider_id: None,
                    addresses: Vec::new(),
                    cluster_uid: None,
                    limit: None,
                })
                .is_ok(),
        }
    }

    fn balancer(&mut self, after: &mut State) -> bool {
        let name = format!("s-{}", self.rng.u8(0..8));
        let desired = AddressRequest { family: IpFamily::IPv4, internal: false, share_group: None, ip: None };
        let query = Query { key: key(&name), name: None, adopt: None, addresses: vec![desired.clone()] };
        let found = after.world.balancers.observe(&self.pools, &query);
        let id = found.balancer.as_ref().map(|balancer| balancer.id.clone());
        let settings = BalancerSettings {
            listeners: vec![Listener { protocol: Protocol::Tcp, port: 80, node_port: self.rng.u16(30_000..) }],
            ..BalancerSettings::default()
        };
        let target = BalancerTarget {
            name: format!("n-{}", self.rng.u8(0..9)),
            machine: None,
            addresses: vec!["127.0.0.2".parse().unwrap()],
            draining: self.rng.bool(),
        };
        let targets = TargetChange { set: vec![target.clone()].into(), remove: Vec::new() };
        let change = match (id, self.rng.u8(0..6)) {
            (None, 0..3) => Change::CreateAddress { desired },
            (None, _) => Change::CreateBalancer { name, settings, targets: vec![target].into() },
            (Some(id), 0) => Change::DeleteBalancer { id },
            (Some(id), 1) => Change::ReleaseBalancer { id },
            (Some(id), 2) => Change::UpdateBalancer { id, settings, targets },
            (Some(id), _) => Change::UpdateTargets { id, targets },
        };
        after.world.balancers.apply(&self.pools, &query, change).unwrap_or(false)
    }
}
