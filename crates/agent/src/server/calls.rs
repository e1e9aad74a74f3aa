//! Calls of clients: load balancers and routes.

use bowline_agent_client::{
    BalancerTarget, Change, ChangeRequest, CreateRouteRequest, DeleteRouteRequest, Empty, FindBalancersReply,
    FindBalancersRequest, ListRoutesReply, ListRoutesRequest, Observation, OwnersReply, OwnersRequest, Query, Targets,
};

use super::router::Api;
use super::{Reply, ok};
use crate::balancers::{Pool, Pools, RuleError, fit_response};
use crate::error::AgentError;

/// Maximum number of Services per call.
const PAGE: usize = 100;

pub(super) async fn find_balancers(api: &Api, request: FindBalancersRequest) -> Result<Reply, AgentError> {
    let count = request.asking.len();
    if count > PAGE {
        return Err(AgentError::Invalid(format!("{count} Services in one call; at most {PAGE} are allowed")));
    }
    api.group.settle(&api.client).await?;
    let world = api.group.read(Clone::clone);
    let observe = |query: &Query| api.observation(world.balancers.observe(&api.group.config.pools, query), &world);
    ok(&FindBalancersReply { found: fit_response(request.asking.iter().map(observe)) })
}

pub(super) async fn owners(api: &Api, request: OwnersRequest) -> Result<Reply, AgentError> {
    api.group.settle(&api.client).await?;
    let limit = request.limit.unwrap_or(usize::MAX).clamp(1, PAGE);
    let page = |world: &crate::state::World| world.balancers.owners(&request.cluster, request.after.as_ref(), limit);
    let (owners, more) = api.group.read(page);
    ok(&OwnersReply { owners, more })
}

pub(super) async fn change_balancer(api: &Api, request: ChangeRequest) -> Result<Reply, AgentError> {
    let ChangeRequest { asking: query, change } = request;
    let pools = api.group.config.pools.clone();
    check_targets(&pools, &change)?;
    let asking = query.clone();
    let edit = move |world: &mut crate::state::World| {
        let has_changed = world.balancers.apply(&pools, &asking, change)?;
        Ok(((), has_changed))
    };
    api.group.write(&api.client, edit).await.map_err(with_fix)?;
    api.traffic.sync(&api.group).await;
    let world = api.group.read(Clone::clone);
    ok(&api.observation(world.balancers.observe(&api.group.config.pools, &query), &world))
}

pub(super) async fn list_routes(api: &Api, request: ListRoutesRequest) -> Result<Reply, AgentError> {
    api.group.settle(&api.client).await?;
    let list = |world: &crate::state::World| {
        world.routes.of(request.cluster.as_str()).map(|route| (**route).clone()).collect()
    };
    ok(&ListRoutesReply { routes: api.group.read(list) })
}

pub(super) async fn create_route(api: &Api, request: CreateRouteRequest) -> Result<Reply, AgentError> {
    let edit = move |world: &mut crate::state::World| {
        let before = world.routes.at(request.cluster.as_str(), &request.destination.trunc()).cloned();
        let route = world.routes.create(request)?;
        let has_changed = before.as_deref() != Some(&*route);
        Ok((route, has_changed))
    };
    ok(&*api.group.write(&api.client, edit).await?)
}

pub(super) async fn delete_route(api: &Api, request: DeleteRouteRequest) -> Result<Reply, AgentError> {
    let edit = move |world: &mut crate::state::World| {
        world.routes.delete(request.cluster.as_str(), &request.id)?;
        Ok(((), true))
    };
    api.group.write(&api.client, edit).await?;
    ok(&Empty {})
}

impl Api {
    /// Adds what only this agent knows: errors of listeners, and problems.
    fn observation(&self, observed: Observation, world: &crate::state::World) -> Observation {
        let addresses = |balancer| world.balancers.addresses_of(balancer).map(|address| address.ip);
        let errors = observed.balancer.as_ref().map(|found| self.traffic.errors(found, addresses(found)));
        Observation { errors: errors.unwrap_or_default(), warnings: self.group.problems.all(), ..observed }
    }
}

/// Adds the fix to an error about the pools, whose names only agents have.
fn with_fix(error: AgentError) -> AgentError {
    match error {
        AgentError::Rule(RuleError::Exhausted(why)) => AgentError::Rule(RuleError::Exhausted(format!(
            "{why}; fix: add addresses to `pool` or `internalPool` of all agents, or delete Services that need none"
        ))),
        error => error,
    }
}

/// Checks that no target has an address of the pools: the agent would send the traffic to itself.
fn check_targets(pools: &Pools, change: &Change) -> Result<(), AgentError> {
    let targets: &Targets = match change {
        Change::CreateBalancer { targets, .. } => targets,
        Change::UpdateBalancer { targets, .. } | Change::UpdateTargets { targets, .. } => &targets.set,
        _ => return Ok(()),
    };
    match targets.iter().find_map(|target| pool_of(pools, target)) {
        None => Ok(()),
        Some((name, ip, key, pool)) => Err(AgentError::Rule(RuleError::Invalid(format!(
            "the Node {name:?} has the address {ip}, which is in the pool {pool} of the load balancers; fix: remove it from `{key}` of \
             all agents, or change the address of the Node"
        )))),
    }
}

fn pool_of<'a>(
    pools: &'a Pools,
    target: &'a BalancerTarget,
) -> Option<(&'a str, std::net::IpAddr, &'static str, &'a Pool)> {
    let all = pools.external.iter().map(|pool| ("pool", pool));
    let all: Vec<_> = all.chain(pools.internal.iter().map(|pool| ("internalPool", pool))).collect();
    target.addresses.iter().find_map(|ip| {
        let (key, pool) = all.iter().find(|(_, pool)| pool.contains(ip))?;
        Some((target.name.as_str(), *ip, *key, *pool))
    })
}
