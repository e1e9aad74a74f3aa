//! Items of `bowline check`, and quotas: the status of each agent, and what it says about the group.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bowline_cloud::{CheckResult, Error, ErrorKind, Quota, Result};
use bowline_core::IpFamily;
use bowline_http::Api;
use futures::future::join_all;
use http::Method;

use crate::agents::Agents;
use crate::client::read;
use crate::status::{AgentRole, AgentStatus, PoolStatus};

const READ: &str = "read the status of the agents";

/// Subjects of the items.
const GROUP: &str = "group of agents";
const ACTIVE: &str = "active agent";
const POOL: &str = "address pool of the agents";

/// Maximum number of machines that an error names.
const SHOWN: usize = 5;

/// An agent that answered, with its endpoint.
type Answered<'a> = (&'a str, &'a AgentStatus);

impl Agents {
    /// Checks each agent and the group. `known` has names and addresses of machines, which must not be in the pool.
    pub async fn diagnose(&self, known: &[(String, IpAddr)]) -> Vec<CheckResult> {
        let statuses = self.statuses().await;
        let mut results: Vec<_> = statuses.iter().map(|(endpoint, status)| item(endpoint, status)).collect();
        let answered: Vec<Answered<'_>> =
            statuses.iter().filter_map(|(endpoint, status)| Some((*endpoint, status.as_ref().ok()?))).collect();
        if answered.is_empty() {
            return results;
        }
        results.push(CheckResult::new(ACTIVE, one_active(&answered)));
        results.extend(
            conditions(&answered, answered.len() == statuses.len())
                .into_iter()
                .map(|condition| CheckResult::new(GROUP, Err(Error::new(ErrorKind::Unavailable, READ, condition)))),
        );
        results.push(CheckResult::new(POOL, pool(&pools(&answered), known)));
        results
    }

    /// Returns usage and size of the pools.
    pub async fn quotas(&self) -> Result<Vec<Quota>> {
        let statuses = self.statuses().await;
        if let [(_, Err(error)), rest @ ..] = statuses.as_slice()
            && rest.iter().all(|(_, status)| status.is_err())
        {
            return Err(error.clone());
        }
        let answered: Vec<Answered<'_>> =
            statuses.iter().filter_map(|(endpoint, status)| Some((*endpoint, status.as_ref().ok()?))).collect();
        let quota = |pool: &PoolStatus| Quota { resource: resource(pool), used: pool.used, limit: pool.size };
        Ok(pools(&answered).into_iter().map(quota).collect())
    }

    async fn statuses(&self) -> Vec<(&str, Result<AgentStatus>)> {
        join_all(self.each.iter().map(|(endpoint, api)| async { (endpoint.as_str(), status(api).await) })).await
    }
}

async fn status(api: &Api) -> Result<AgentStatus> {
    read(api.call("status_get", Method::GET, &["v1", "status"])).await
}

/// Item of one agent.
fn item(endpoint: &str, status: &Result<AgentStatus>) -> CheckResult {
    let described = status.as_ref().map_err(|error| error.clone().during(READ)).map(|status| {
        let AgentStatus { name, version, role, term, state, .. } = status;
        let role = match role {
            AgentRole::Active => format!("active in term {term}, with state {state}"),
            AgentRole::Standby => format!("standby in term {term}, with state {state}"),
            AgentRole::Fenced => "fenced: it must not be active at the moment".to_owned(),
            AgentRole::Follower => "follower: it is never active".to_owned(),
        };
        format!("{name}, version {version}, {role}")
    });
    CheckResult::new(format!("agent {endpoint}"), described)
}

/// Checks that one agent is active.
fn one_active(answered: &[Answered<'_>]) -> Result<String> {
    let names = |role: AgentRole| -> BTreeSet<&str> {
        answered.iter().filter(|(_, status)| status.role == role).map(|(_, status)| status.name.as_str()).collect()
    };
    let active = names(AgentRole::Active);
    let list = active.iter().copied().collect::<Vec<_>>().join(" and ");
    match active.len() {
        1 => Ok(format!("{list} holds the addresses")),
        0 => {
            let message = "no agent that answers is active, so load balancers are not reachable; fix: start the agents, and check that \
                they reach each other";
            Err(Error::new(ErrorKind::Unavailable, READ, message))
        }
        _ => {
            let message = format!(
                "{list} are active at the same time, so several hosts may hold the same addresses; fix: check that the agents reach \
                 each other, and that each lists the others as peers"
            );
            Err(Error::new(ErrorKind::Unavailable, READ, message))
        }
    }
}

/// Conditions of the group that need an operator.
fn conditions(answered: &[Answered<'_>], are_all: bool) -> BTreeSet<String> {
    let mut conditions: BTreeSet<String> = BTreeSet::new();
    for (_, status) in answered {
        conditions.extend(status.problems.iter().cloned());
        let unreachable = status.peers.iter().filter(|peer| !peer.reachable);
        conditions.extend(unreachable.map(|peer| {
            let reason = peer.message.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{} does not reach the agent {}{reason}", status.name, peer.name)
        }));
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (endpoint, status) in answered {
        if !known.insert(&status.name) {
            let name = &status.name;
            conditions.insert(format!("{endpoint} leads to {name}, as another endpoint does; fix: correct endpoints"));
        }
    }
    let peers = answered.iter().flat_map(|(_, status)| &status.peers);
    // While an agent does not answer, its name is unknown.
    let missing = peers.filter(|peer| are_all && !known.contains(peer.name.as_str()));
    conditions.extend(missing.map(|peer| {
        format!(
            "the agent {} of the group is not in endpoints; fix: add it, so that it is found when it is active",
            peer.name
        )
    }));
    conditions
}

/// Pools of the group, as the active agent reports them; without one, as the first agent does.
fn pools<'a>(answered: &[Answered<'a>]) -> Vec<&'a PoolStatus> {
    let active = answered.iter().find(|(_, status)| status.role == AgentRole::Active);
    active.or(answered.first()).map(|(_, status)| status.pools.iter().collect()).unwrap_or_default()
}

/// Checks that there is a pool, and that it contains no address of a machine.
fn pool(pools: &[&PoolStatus], known: &[(String, IpAddr)]) -> Result<String> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidConfig, READ, message));
    if pools.is_empty() {
        return invalid("the agents have no addresses; fix: set pool in their configuration".to_owned());
    }
    let is_inside = |ip: IpAddr| pools.iter().flat_map(|pool| &pool.ranges).any(|range| range.contains(ip));
    let inside: Vec<_> = known.iter().filter(|(_, ip)| is_inside(*ip)).collect();
    if !inside.is_empty() {
        let shown = inside.iter().take(SHOWN).map(|(name, ip)| format!("{ip} of {name}"));
        let more = if inside.len() > SHOWN { ", …" } else { "" };
        let shown = shown.collect::<Vec<_>>().join(", ");
        return invalid(format!(
            "the pool contains the address {shown}{more}; fix: choose addresses that no host and no DHCP server uses"
        ));
    }
    let sizes = pools.iter().map(|pool| format!("{} of {} {} are free", pool.free(), pool.size, resource(pool)));
    Ok(sizes.collect::<Vec<_>>().join(", "))
}

fn resource(pool: &PoolStatus) -> String {
    let family = if pool.family == IpFamily::IPv4 { "IPv4" } else { "IPv6" };
    format!("{}{family} addresses of the agents", if pool.internal { "internal " } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{AddressRange, PeerStatus};

    fn agent(name: &str, role: AgentRole, peers: &[&str]) -> AgentStatus {
        let ip = |text: &str| text.parse().unwrap();
        let peer = |name: &&str| PeerStatus {
            name: (*name).to_owned(),
            endpoint: String::new(),
            reachable: !name.ends_with('!'),
            message: name.ends_with('!').then(|| "connection refused".to_owned()),
        };
        AgentStatus {
            name: name.to_owned(),
            version: "1.4.0".to_owned(),
            role,
            term: 3,
            state: "3.17".to_owned(),
            addresses: 0,
            connections: 0,
            pools: vec![PoolStatus {
                internal: false,
                family: IpFamily::IPv4,
                ranges: vec![AddressRange { first: ip("192.0.2.200"), last: ip("192.0.2.219") }],
                size: 20,
                used: 2,
            }],
            peers: peers.iter().map(peer).collect(),
            problems: Vec::new(),
        }
    }

    fn kind(result: Result<String>) -> (ErrorKind, String) {
        let error = result.unwrap_err();
        (error.kind(), error.message().to_owned())
    }

    #[test]
    fn exactly_one_agent_must_be_active() {
        let [one, two] = ["lb-1", "lb-2"].map(|name| agent(name, AgentRole::Active, &[]));
        let standby = agent("lb-2", AgentRole::Standby, &[]);
        assert_eq!(one_active(&[("a", &one), ("b", &standby)]).unwrap(), "lb-1 holds the addresses");
        assert!(kind(one_active(&[("b", &standby)])).1.contains("no agent that answers is active"));
        let (_, message) = kind(one_active(&[("a", &one), ("b", &two)]));
        assert!(message.starts_with("lb-1 and lb-2 are active at the same time"), "{message}");
    }

    #[test]
    fn each_condition_of_the_group_is_reported_once() {
        let split = "lb-1 and lb-2 were both active".to_owned();
        let mut one = agent("lb-1", AgentRole::Active, &["lb-2", "lb-3!"]);
        let mut two = agent("lb-2", AgentRole::Standby, &["lb-1", "lb-3"]);
        (one.problems, two.problems) = (vec![split.clone()], vec![split.clone()]);
        let unreachable = "lb-1 does not reach the agent lb-3!: connection refused".to_owned();
        let found = conditions(&[("a", &one), ("b", &two)], false);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [split, unreachable]);
        let two = agent("lb-2", AgentRole::Standby, &["lb-1", "lb-3"]);
        let found: Vec<_> = conditions(&[("a", &two), ("b", &two)], true).into_iter().collect();
        assert!(found[0].starts_with("b leads to lb-2, as another endpoint does"), "{found:?}");
        assert!(found[1].starts_with("the agent lb-1 of the group is not in endpoints"), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_pool_must_exist_and_contain_no_machine() {
        let one = agent("lb-1", AgentRole::Active, &[]);
        let pools: Vec<_> = one.pools.iter().collect();
        let known = |ip: &str| [("node-1".to_owned(), ip.parse().unwrap())];
        let free = "18 of 20 IPv4 addresses of the agents are free";
        for outside in ["192.0.2.199", "192.0.2.220", "2001:db8::1"] {
            assert_eq!(pool(&pools, &known(outside)).unwrap(), free);
        }
        let (error, message) = kind(pool(&pools, &known("192.0.2.219")));
        assert_eq!(error, ErrorKind::InvalidConfig);
        assert!(message.starts_with("the pool contains the address 192.0.2.219 of node-1; fix: "), "{message}");
        assert!(kind(pool(&[], &[])).1.contains("no addresses"));
        let many: Vec<_> = (0..7).map(|number| (format!("n-{number}"), "192.0.2.200".parse().unwrap())).collect();
        assert!(kind(pool(&pools, &many)).1.contains("of n-4, …; fix"));
    }
}
