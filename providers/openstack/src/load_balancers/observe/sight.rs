//! What has been looked at for the wishes of one observation, so that nothing is asked twice. Where there are several wishes, what
//! the project has is listed once for all of them.

use std::collections::BTreeSet;

use bowline_cloud::{Error, Result};
use bowline_core::DesiredLoadBalancer;
use bowline_runtime::OnceMap;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::{AT_ONCE, told};
use crate::api::Collection;
use crate::api::network::{self, FloatingIp, Network, Port, SecurityGroup, Subnet};
use crate::api::octavia::{self, HealthMonitor, Listener, LoadBalancer, Pool};
use crate::session::Session;

/// So many servers are named in one question for their ports: its address must not get too long.
const SERVERS_AT_ONCE: usize = 50;

/// What has been looked at.
pub(crate) struct Sight<'a> {
    pub(super) session: &'a Session,
    listed: Option<Listed>,
    external: OnceMap<(), Vec<Network>>,
    networks: OnceMap<String, Option<Network>>,
    subnets: OnceMap<String, Option<Subnet>>,
    subnets_of: OnceMap<String, Vec<Subnet>>,
    /// By the servers of one question.
    ports_of: OnceMap<Vec<String>, Vec<Port>>,
}

/// All that the project has of each kind, once it is needed.
#[derive(Default)]
struct Listed {
    balancers: Listing<LoadBalancer>,
    listeners: Listing<Listener>,
    pools: Listing<Pool>,
    monitors: Listing<HealthMonitor>,
    floating_ips: Listing<FloatingIp>,
    groups: Listing<SecurityGroup>,
}

/// A failure is kept, too: a service that does not answer is not asked again for every wish.
type Listing<T> = OnceCell<Result<Vec<T>>>;

impl<'a> Sight<'a> {
    /// For these wishes: with listings if there are several.
    pub(crate) fn for_wishes(session: &'a Session, wanted: &[DesiredLoadBalancer]) -> Sight<'a> {
        Sight { listed: (wanted.len() > 1).then(Listed::default), ..Sight::blank(session) }
    }

    /// One that has seen nothing yet.
    pub(super) fn anew(&self) -> Sight<'a> {
        Sight::blank(self.session)
    }

    /// What the project has is known already, so that looking for something in it costs nothing.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    pub(crate) fn blank(session: &'a Session) -> Sight<'a> {
        let (listed, external, networks, subnets, subnets_of, ports_of) = Default::default();
        Sight { session, listed, external, networks, subnets, subnets_of, ports_of }
    }

    // ---- Octavia

    /// `None` if there is no such balancer.
    pub(super) async fn balancer(&self, id: &str) -> Result<Option<LoadBalancer>> {
        if let Some(listed) = &self.listed
            && let Some(found) =
                self.all(&octavia::LOAD_BALANCERS, &listed.balancers).await?.iter().find(|it| it.id == id)
        {
            return Ok(Some(found.clone()));
        }
        octavia::LOAD_BALANCERS.find(self.session, id).await.map_err(told)
    }

    pub(super) async fn balancers_named(&self, name: &str) -> Result<Vec<LoadBalancer>> {
        let fits = |balancer: &LoadBalancer| balancer.name == name;
        self.fitting(&octavia::LOAD_BALANCERS, |listed| &listed.balancers, ("name", name), fits).await
    }

    pub(super) async fn balancers_tagged(&self, tag: &str) -> Result<Vec<LoadBalancer>> {
        let fits = |balancer: &LoadBalancer| balancer.tags.iter().any(|it| it == tag);
        self.fitting(&octavia::LOAD_BALANCERS, |listed| &listed.balancers, ("tags", tag), fits).await
    }

    /// Those that have a listener with this tag, but for one that is known already.
    pub(super) async fn balancers_with_listeners_tagged(
        &self,
        tag: &str,
        known: Option<&LoadBalancer>,
    ) -> Result<Vec<LoadBalancer>> {
        let fits = |listener: &Listener| listener.tags.iter().any(|it| it == tag);
        let listeners = self.fitting(&octavia::LISTENERS, |listed| &listed.listeners, ("tags", tag), fits).await?;
        let ids: BTreeSet<_> = listeners.iter().flat_map(|one| &one.loadbalancers).map(|of| of.id.as_str()).collect();
        let mut found = Vec::new();
        for id in ids.into_iter().filter(|id| known.is_none_or(|known| known.id != *id)) {
            found.extend(self.balancer(id).await?);
        }
        Ok(found)
    }

    pub(super) async fn listeners(&self, balancer: &str) -> Result<Vec<Listener>> {
        let Some(listed) = &self.listed else {
            return octavia::LISTENERS.list(self.session, &[("loadbalancer_id", balancer)]).await.map_err(told);
        };
        let is_of = |listener: &&Listener| listener.loadbalancers.iter().any(|of| of.id == balancer);
        Ok(self.all(&octavia::LISTENERS, &listed.listeners).await?.iter().filter(is_of).cloned().collect())
    }

    pub(super) async fn pools(&self, balancer: &str) -> Result<Vec<Pool>> {
        let Some(listed) = &self.listed else {
            return octavia::POOLS.list(self.session, &[("loadbalancer_id", balancer)]).await.map_err(told);
        };
        let is_of = |pool: &&Pool| pool.loadbalancers.iter().any(|of| of.id == balancer);
        Ok(self.all(&octavia::POOLS, &listed.pools).await?.iter().filter(is_of).cloned().collect())
    }

    /// One that a pool has. If it is not there, that is an error: the pool says that it is.
    pub(super) async fn monitor(&self, id: &str) -> Result<HealthMonitor> {
        if let Some(listed) = &self.listed
            && let Some(found) =
                self.all(&octavia::HEALTH_MONITORS, &listed.monitors).await?.iter().find(|it| it.id == id)
        {
            return Ok(found.clone());
        }
        octavia::HEALTH_MONITORS.get(self.session, id).await.map_err(told)
    }

    // ---- Neutron

    /// Those with this value of a field.
    pub(super) async fn floating_ips(
        &self,
        field: &str,
        value: &str,
        of: fn(&FloatingIp) -> &String,
    ) -> Result<Vec<FloatingIp>> {
        let fits = |floating: &FloatingIp| of(floating) == value;
        self.fitting(&network::FLOATING_IPS, |listed| &listed.floating_ips, (field, value), fits).await
    }

    /// Those with this value of a field.
    pub(super) async fn groups(
        &self,
        field: &str,
        value: &str,
        of: fn(&SecurityGroup) -> &String,
    ) -> Result<Vec<SecurityGroup>> {
        let fits = |group: &SecurityGroup| of(group) == value;
        self.fitting(&network::SECURITY_GROUPS, |listed| &listed.groups, (field, value), fits).await
    }

    /// All networks to the outside that we may see.
    async fn external_networks(&self) -> Result<Vec<Network>> {
        let ask = || async {
            let mut networks = network::NETWORKS.list(self.session, &[("router:external", "true")]).await?;
            networks.retain(|network| network.external);
            Ok(networks)
        };
        self.external.get((), ask).await.map_err(told)
    }

    /// The first external network that has a subnet for IPv4, or one of which we are not told what it is for.
    pub(crate) async fn detected_network(&self) -> Result<Option<Network>> {
        for network in self.external_networks().await?.into_iter().filter(|network| !network.subnets.is_empty()) {
            if network.serves_ipv4(&self.subnets_of(&network.id).await?) {
                return Ok(Some(network));
            }
        }
        Ok(None)
    }

    /// `None` if there is no such network, or none that we may see.
    pub(super) async fn network(&self, id: &str) -> Result<Option<Network>> {
        self.networks.get(id.to_owned(), || network::NETWORKS.find(self.session, id)).await.map_err(told)
    }

    /// `None` if there is no such subnet, or none that we may see.
    pub(super) async fn subnet(&self, id: &str) -> Result<Option<Subnet>> {
        self.subnets.get(id.to_owned(), || network::SUBNETS.find(self.session, id)).await.map_err(told)
    }

    pub(super) async fn subnets_of(&self, network: &str) -> Result<Vec<Subnet>> {
        let ask = || async { network::SUBNETS.list(self.session, &[("network_id", network)]).await };
        self.subnets_of.get(network.to_owned(), ask).await.map_err(told)
    }

    /// The ports of these servers, in few questions.
    pub(super) async fn ports_of(&self, servers: &[&str]) -> Result<Vec<Port>> {
        let asked: Vec<_> = servers.chunks(SERVERS_AT_ONCE).map(|some| self.ports_of_some(some)).collect();
        let pages: Vec<_> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        Ok(pages.into_iter().flatten().collect())
    }

    async fn ports_of_some(&self, servers: &[&str]) -> Result<Vec<Port>> {
        let query: Vec<_> = servers.iter().map(|server| ("device_id", *server)).collect();
        let ask = || async { network::PORTS.list(self.session, &query).await };
        self.ports_of.get(servers.iter().map(|&server| server.to_owned()).collect(), ask).await.map_err(told)
    }

    /// Those that fit: of what the project has, or else of what is asked for with this query.
    async fn fitting<T: Clone + DeserializeOwned>(
        &self,
        all: &Collection<T>,
        listing: fn(&Listed) -> &Listing<T>,
        query: (&str, &str),
        fits: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>> {
        if let Some(listed) = &self.listed {
            return Ok(self.all(all, listing(listed)).await?.iter().filter(|one| fits(one)).cloned().collect());
        }
        let mut found = all.list(self.session, &[query]).await.map_err(told)?;
        found.retain(fits);
        Ok(found)
    }

    /// All that the project has of a kind.
    async fn all<'l, T: DeserializeOwned>(&self, all: &Collection<T>, listing: &'l Listing<T>) -> Result<&'l [T]> {
        let listed = listing.get_or_init(|| async { all.list(self.session, &[]).await.map_err(told) }).await;
        listed.as_deref().map_err(Error::clone)
    }
}
