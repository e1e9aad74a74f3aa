//! A bench for load balancers and routes of agents, with machines in a file.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bowline_agent_client::{
    AddressRequest, AgentErrors, Balancer, BalancerSettings, Change, ChangeRequest, Listener, Observation, Query,
    RouteRecord, client,
};
use bowline_cloud::{Calls, CloudProvider, LoadBalancerKind};
use bowline_conformance::agent_records::{address_resource, balancer_resource, seen_load_balancer};
use bowline_conformance::{
    Bench, BenchResult, ForeignLoadBalancer, ForeignRoute, InducedFault, LoadBalancerBench, RouteBench,
    SeenLoadBalancer, SeenResource, SeenRoute, SeenTarget, WantedMachine,
};
use bowline_core::{ClusterName, Instance, IpFamily, LoadBalancerKey, Protocol, ProviderId};
use bowline_http::Api;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::group::{Group, PATIENCE};
use crate::conformance::inventory::InventoryBench;

/// Cluster of routes that another user creates.
const OTHER: &str = "other-owner";

pub(super) struct AgentBench {
    machines: InventoryBench,
    group: Group,
}

impl AgentBench {
    pub(super) async fn new(agents: usize) -> AgentBench {
        let group = Group::start(agents).await;
        AgentBench { machines: InventoryBench::new(&group.settings()).await, group }
    }

    pub(super) async fn boxed(agents: usize) -> Box<dyn Bench> {
        Box::new(AgentBench::new(agents).await)
    }

    /// Ends the active agent as SIGKILL does, and returns its index.
    pub(super) async fn end_active_agent(&mut self) -> usize {
        let (index, _) = self.group.active().await;
        self.group.kill(index);
        index
    }

    /// API of the active agent, past the proxies.
    async fn api(&self) -> Api {
        let (_, address) = self.group.active().await;
        let api = Api::new(self.group.client(), &Calls::default(), "bench").base(&format!("https://{address}"));
        let version = HeaderValue::from_static(bowline_agent_client::API_VERSION);
        api.errors(AgentErrors).header(HeaderName::from_static(bowline_agent_client::API_HEADER), version)
    }

    /// Writes as another client of the agents, again while the group elects the active agent.
    async fn write<T: DeserializeOwned>(&self, path: &[&str], request: &(impl Serialize + Sync)) -> Option<T> {
        let begun = Instant::now();
        loop {
            match client::write(&self.api().await, "write", path, request).await {
                Err(error) if error.kind().is_transient() && begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                outcome => return outcome.ok(),
            }
        }
    }

    fn seen_route(&self, cluster: &str, route: RouteRecord) -> SeenRoute {
        let by_id = route.provider_id.as_ref().and_then(ProviderId::rest).map(str::to_owned);
        let machine = by_id.or_else(|| self.machines.id_of(route.node.as_str()));
        let (id, destination) = (route.id, route.destination);
        SeenRoute { id, destination, machine, owner: Some(ClusterName::from(cluster)) }
    }
}

#[async_trait]
impl Bench for AgentBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.machines.provider()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        self.machines.restarted().await
    }

    fn secrets(&self) -> Vec<String> {
        self.group.secrets()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        self.machines.add(machine).await
    }

    async fn stop(&self, instance: &Instance) {
        self.machines.stop(instance).await;
    }

    async fn start(&self, instance: &Instance) {
        self.machines.start(instance).await;
    }

    async fn delete(&self, instance: &Instance) {
        self.machines.delete(instance).await;
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.machines.rename(instance, name).await
    }

    fn can_affect_machines(&self, fault: InducedFault) -> bool {
        self.machines.can_occur(fault)
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        *self.group.faults.fault.lock().unwrap() = fault;
        match fault {
            Some(fault) if !self.machines.can_occur(fault) => true,
            fault => self.machines.inject_fault(fault).await,
        }
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        *self.group.faults.crash_after.lock().unwrap() = calls;
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.group.faults.calls() + self.machines.reads())
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        self.machines.malformed_ids()
    }
}

#[async_trait]
impl LoadBalancerBench for AgentBench {
    async fn resources(&self) -> Vec<SeenResource> {
        let state = self.group.state().await;
        let balancers = state.balancers.into_iter().map(balancer_resource);
        balancers.chain(state.addresses.into_iter().map(address_resource)).collect()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let state = self.group.state().await;
        let balancer = state.balancers.into_iter().find(|balancer| balancer.owner.as_ref() == Some(key))?;
        let ip = |id: &String| state.addresses.iter().find(|address| address.id == *id).map(|address| address.ip);
        let target = |target: &bowline_agent_client::BalancerTarget| SeenTarget {
            machine: self.machines.id_of(&target.name).unwrap_or_else(|| target.name.clone()),
            draining: target.draining,
        };
        let targets = balancer.targets.iter().map(target).collect();
        let addresses = balancer.addresses.iter().filter_map(ip).collect();
        Some(SeenLoadBalancer { addresses, targets, ..seen_load_balancer(balancer) })
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let unowned = LoadBalancerKey {
            cluster: OTHER.into(),
            namespace: "default".to_owned(),
            service: foreign.name.clone(),
            uid: format!("uid-of-{}", foreign.name),
        };
        let key = foreign.owner.clone().unwrap_or(unowned);
        let internal = foreign.address.is_some_and(is_internal);
        let family = if foreign.address.is_some_and(|ip| ip.is_ipv6()) { IpFamily::IPv6 } else { IpFamily::IPv4 };
        let desired = AddressRequest { family, internal, share_group: None, ip: foreign.address };
        let (name, addresses) = (Some(foreign.name.clone()), vec![desired.clone()]);
        let asking = Query { key, name, adopt: None, addresses };
        let listeners = vec![Listener { protocol: Protocol::Tcp, port: 443, node_port: 30443 }];
        let settings = BalancerSettings { internal, listeners, ..BalancerSettings::default() };
        let create = Change::CreateBalancer { name: foreign.name.clone(), settings, targets: Vec::new().into() };
        let change = |change| ChangeRequest { asking: asking.clone(), change };
        let path = ["v1", "balancers", "change"];
        self.write::<Observation>(&path, &change(Change::CreateAddress { desired })).await?;
        let created: Observation = self.write(&path, &change(create)).await?;
        let mut balancer = Balancer::clone(&*created.balancer?);
        if foreign.owner.is_none() {
            let release = Change::ReleaseBalancer { id: balancer.id.clone() };
            self.write::<Observation>(&path, &change(release)).await?;
            balancer.owner = None;
        }
        Some(balancer_resource(balancer))
    }

    fn list_page(&self) -> Option<usize> {
        Some(super::proxy::PAGE)
    }

    async fn free_address(&self, kind: Option<&str>) -> Option<IpAddr> {
        let is_internal = kind == Some(LoadBalancerKind::INTERNAL);
        if is_internal { "127.65.7.77" } else { "127.64.7.77" }.parse().ok()
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.group.faults.writes())
    }

    /// The active agent answers from its own state.
    async fn stale(&self) -> BenchResult {
        BenchResult::Never
    }

    /// A change is complete when the agent answers.
    async fn slow(&self) -> BenchResult {
        BenchResult::Never
    }

    async fn fail_next(&self, _: u64) -> BenchResult {
        BenchResult::Never
    }
}

#[async_trait]
impl RouteBench for AgentBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        let routes = self.group.state().await.routes.into_iter();
        let seen = |(cluster, routes): (String, Vec<RouteRecord>)| {
            routes.into_iter().map(move |route| self.seen_route(&cluster, route)).collect::<Vec<_>>()
        };
        routes.flat_map(seen).collect()
    }

    /// Every route has the mark of a cluster, so this is one of another cluster.
    async fn put_foreign(&self, _: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let request = bowline_agent_client::CreateRouteRequest {
            cluster: OTHER.into(),
            name: String::new(),
            destination: foreign.destination,
            node: foreign.machine.clone().into(),
            provider_id: Some(ProviderId::of("cloudlycke", &foreign.machine)),
            addresses: Vec::new(),
            cluster_uid: None,
            limit: None,
        };
        Some(self.seen_route(OTHER, self.write(&["v1", "routes", "create"], &request).await?))
    }
}

fn is_internal(ip: IpAddr) -> bool {
    let text = ip.to_string();
    text.starts_with("127.65.") || text.starts_with("fd00:2:")
}
