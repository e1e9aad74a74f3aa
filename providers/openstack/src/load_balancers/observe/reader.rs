//! Cached reads of one observation, so that nothing is read twice. For several Services, the resources of the project are listed
//! once.

use std::collections::BTreeSet;

use bowline_cloud::{Error, Result};
use bowline_core::DesiredLoadBalancer;
use bowline_runtime::OnceMap;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::{AT_ONCE, during_observe};
use crate::api::Collection;
use crate::api::network::{self, FloatingIp, Network, Port, SecurityGroup, Subnet};
use crate::api::octavia::{self, HealthMonitor, Listener, LoadBalancer, Pool};
use crate::session::Session;

/// Maximum number of servers in one query for ports, which limits the length of the URL.
const SERVERS_PER_QUERY: usize = 50;

/// Cached reads of one observation.
pub(crate) struct CloudReader<'a> {
    pub(super) session: &'a Session,
    listed: Option<Listed>,
    detected: OnceMap<(), Option<Network>>,
    networks: OnceMap<String, Option<Network>>,
    subnets: OnceMap<String, Option<Subnet>>,
    subnets_of: OnceMap<String, Vec<Subnet>>,
    /// By the servers of one query.
    ports_of: OnceMap<Vec<String>, Vec<Port>>,
}

/// Listings of the project, each read when it is first used.
#[derive(Default)]
struct Listed {
    balancers: Listing<LoadBalancer>,
    listeners: Listing<Listener>,
    pools: Listing<Pool>,
    monitors: Listing<HealthMonitor>,
    floating_ips: Listing<FloatingIp>,
    groups: Listing<SecurityGroup>,
}

/// An error is cached as well: a service that fails is not called again for every Service.
type Listing<T> = OnceCell<Result<Vec<T>>>;

impl<'a> CloudReader<'a> {
    /// Uses listings for more than one Service.
    pub(crate) fn new(session: &'a Session, desired: &[DesiredLoadBalancer]) -> CloudReader<'a> {
        CloudReader { listed: (desired.len() > 1).then(Listed::default), ..CloudReader::without_listings(session) }
    }

    /// Returns whether the project is listed, so that further searches cost no call.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    pub(crate) fn without_listings(session: &'a Session) -> CloudReader<'a> {
        let (listed, detected, networks, subnets, subnets_of, ports_of) = Default::default();
        CloudReader { session, listed, detected, networks, subnets, subnets_of, ports_of }
    }

    // ---- Octavia

    /// Reads a load balancer; `None` if it does not exist.
    pub(super) async fn balancer(&self, id: &str) -> Result<Option<LoadBalancer>> {
        if let Some(listed) = &self.listed
            && let Some(found) =
                self.all(&octavia::LOAD_BALANCERS, &listed.balancers).await?.iter().find(|it| it.id == id)
        {
            return Ok(Some(found.clone()));
        }
        octavia::LOAD_BALANCERS.find(self.session, id).await.map_err(during_observe)
    }

    pub(super) async fn balancers_named(&self, name: &str) -> Result<Vec<LoadBalancer>> {
        let matches = |balancer: &LoadBalancer| balancer.name == name;
        self.find_all(&octavia::LOAD_BALANCERS, |listed| &listed.balancers, ("name", name), matches).await
    }

    pub(super) async fn balancers_tagged(&self, tag: &str) -> Result<Vec<LoadBalancer>> {
        let matches = |balancer: &LoadBalancer| balancer.tags.iter().any(|it| it == tag);
        self.find_all(&octavia::LOAD_BALANCERS, |listed| &listed.balancers, ("tags", tag), matches).await
    }

    /// Returns the load balancers that have a listener with this tag, without the known one.
    pub(super) async fn balancers_with_listeners_tagged(
        &self,
        tag: &str,
        known: Option<&LoadBalancer>,
    ) -> Result<Vec<LoadBalancer>> {
        let matches = |listener: &Listener| listener.tags.iter().any(|it| it == tag);
        let listeners = self.find_all(&octavia::LISTENERS, |listed| &listed.listeners, ("tags", tag), matches).await?;
        let ids: BTreeSet<_> = listeners.iter().flat_map(|one| &one.loadbalancers).map(|of| of.id.as_str()).collect();
        let mut found = Vec::new();
        for id in ids.into_iter().filter(|id| known.is_none_or(|known| known.id != *id)) {
            found.extend(self.balancer(id).await?);
        }
        Ok(found)
    }

    pub(super) async fn listeners(&self, balancer: &str) -> Result<Vec<Listener>> {
        let Some(listed) = &self.listed else {
            return octavia::LISTENERS
                .list(self.session, &[("loadbalancer_id", balancer)])
                .await
                .map_err(during_observe);
        };
        let is_of = |listener: &&Listener| listener.loadbalancers.iter().any(|of| of.id == balancer);
        Ok(self.all(&octavia::LISTENERS, &listed.listeners).await?.iter().filter(is_of).cloned().collect())
    }

    pub(super) async fn pools(&self, balancer: &str) -> Result<Vec<Pool>> {
        let Some(listed) = &self.listed else {
            return octavia::POOLS.list(self.session, &[("loadbalancer_id", balancer)]).await.map_err(during_observe);
        };
        let is_of = |pool: &&Pool| pool.loadbalancers.iter().any(|of| of.id == balancer);
        Ok(self.all(&octavia::POOLS, &listed.pools).await?.iter().filter(is_of).cloned().collect())
    }

    /// Reads the health monitor of a pool. It is an error if it does not exist, because the pool refers to it.
    pub(super) async fn monitor(&self, id: &str) -> Result<HealthMonitor> {
        if let Some(listed) = &self.listed
            && let Some(found) =
                self.all(&octavia::HEALTH_MONITORS, &listed.monitors).await?.iter().find(|it| it.id == id)
        {
            return Ok(found.clone());
        }
        octavia::HEALTH_MONITORS.get(self.session, id).await.map_err(during_observe)
    }

    // ---- Neutron

    /// Returns the floating IPs with this value of a field.
    pub(super) async fn floating_ips(
        &self,
        field: &str,
        value: &str,
        of: fn(&FloatingIp) -> &String,
    ) -> Result<Vec<FloatingIp>> {
        let matches = |floating: &FloatingIp| of(floating) == value;
        self.find_all(&network::FLOATING_IPS, |listed| &listed.floating_ips, (field, value), matches).await
    }

    /// Returns the security groups with this value of a field.
    pub(super) async fn groups(
        &self,
        field: &str,
        value: &str,
        of: fn(&SecurityGroup) -> &String,
    ) -> Result<Vec<SecurityGroup>> {
        let matches = |group: &SecurityGroup| of(group) == value;
        self.find_all(&network::SECURITY_GROUPS, |listed| &listed.groups, (field, value), matches).await
    }

    /// Returns the first external network with an IPv4 subnet, or with a subnet that is not visible.
    pub(crate) async fn detected_network(&self) -> Result<Option<Network>> {
        let detect = || async {
            let networks = network::NETWORKS.list(self.session, &[("router:external", "true")]).await?;
            for network in networks.into_iter().filter(|network| network.external && !network.subnets.is_empty()) {
                if network.serves_ipv4(&self.subnets_of(&network.id).await?) {
                    return Ok(Some(network));
                }
            }
            Ok(None)
        };
        self.detected.get((), detect).await.map_err(during_observe)
    }

    /// Reads a network; `None` if it does not exist or is not visible.
    pub(super) async fn network(&self, id: &str) -> Result<Option<Network>> {
        self.networks.get(id.to_owned(), || network::NETWORKS.find(self.session, id)).await.map_err(during_observe)
    }

    /// Reads a subnet; `None` if it does not exist or is not visible.
    pub(super) async fn subnet(&self, id: &str) -> Result<Option<Subnet>> {
        self.subnets.get(id.to_owned(), || network::SUBNETS.find(self.session, id)).await.map_err(during_observe)
    }

    pub(super) async fn subnets_of(&self, network: &str) -> Result<Vec<Subnet>> {
        let read = || async { network::SUBNETS.list(self.session, &[("network_id", network)]).await };
        self.subnets_of.get(network.to_owned(), read).await.map_err(during_observe)
    }

    /// Reads the ports of these servers, several servers per query.
    pub(super) async fn ports_of(&self, servers: &[&str]) -> Result<Vec<Port>> {
        let reads: Vec<_> = servers.chunks(SERVERS_PER_QUERY).map(|some| self.ports_of_some(some)).collect();
        let pages: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(pages.into_iter().flatten().collect())
    }

    async fn ports_of_some(&self, servers: &[&str]) -> Result<Vec<Port>> {
        let query: Vec<_> = servers.iter().map(|server| ("device_id", *server)).collect();
        let read = || async { network::PORTS.list(self.session, &query).await };
        self.ports_of.get(servers.iter().map(|&server| server.to_owned()).collect(), read).await.map_err(during_observe)
    }

    /// Returns the matching resources, from the listing or with this query.
    async fn find_all<T: Clone + DeserializeOwned>(
        &self,
        all: &Collection<T>,
        listing: fn(&Listed) -> &Listing<T>,
        query: (&str, &str),
        matches: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>> {
        if let Some(listed) = &self.listed {
            return Ok(self.all(all, listing(listed)).await?.iter().filter(|one| matches(one)).cloned().collect());
        }
        let mut found = all.list(self.session, &[query]).await.map_err(during_observe)?;
        found.retain(matches);
        Ok(found)
    }

    /// Returns all resources of a kind in the project.
    async fn all<'l, T: DeserializeOwned>(&self, all: &Collection<T>, listing: &'l Listing<T>) -> Result<&'l [T]> {
        let listed = listing.get_or_init(|| async { all.list(self.session, &[]).await.map_err(during_observe) }).await;
        listed.as_deref().map_err(Error::clone)
    }
}
