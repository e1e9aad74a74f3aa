//! What has been looked at for the wishes of one observation, so that nothing is asked twice. Where there are several wishes, what
//! the project has is listed once for all of them.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::Error;
use bowline_core::LoadBalancerWish;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream, try_join};
use tokio::sync::OnceCell;

use super::AT_ONCE;
use crate::api::network::{self, FloatingIp, Network, Port, SecurityGroup, Subnet};
use crate::api::octavia::{self, HealthMonitor, Listener, LoadBalancer, Pool};
use crate::session::Session;

/// What came of a call.
pub(super) type Outcome<T> = Result<T, Error>;

/// So many servers are named in one question for their ports: its address must not get too long.
const SERVERS_AT_ONCE: usize = 50;

/// What has been looked at.
pub(super) struct Sight<'a> {
    session: &'a Session,
    listed: Option<Listed>,
    external: OnceCell<Vec<Network>>,
    networks: Once<String, Option<Network>>,
    subnets: Once<String, Option<Subnet>>,
    subnets_of: Once<String, Vec<Subnet>>,
    /// By the servers of one question.
    ports_of: Once<Vec<String>, Vec<Port>>,
}

/// All that the project has.
struct Listed {
    balancers: Vec<LoadBalancer>,
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
    monitors: HashMap<String, HealthMonitor>,
    /// Not all who ask need these.
    floating_ips: Outcome<Vec<FloatingIp>>,
    groups: Outcome<Vec<SecurityGroup>>,
}

impl<'a> Sight<'a> {
    /// For these wishes: with listings if there are several.
    pub(super) async fn for_wishes(session: &'a Session, wishes: &[LoadBalancerWish]) -> Outcome<Sight<'a>> {
        let listed = match wishes {
            [] | [_] => None,
            _ => Some(Listed::of(session).await?),
        };
        Ok(Sight { listed, ..Sight::blank(session) })
    }

    /// One that has seen nothing yet.
    pub(super) fn anew(&self) -> Sight<'a> {
        Sight::blank(self.session)
    }

    /// What the project has is known already, so that looking for something in it costs nothing.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    fn blank(session: &'a Session) -> Sight<'a> {
        let (listed, external, networks, subnets, subnets_of, ports_of) = Default::default();
        Sight { session, listed, external, networks, subnets, subnets_of, ports_of }
    }

    // ---- Octavia

    /// `None` if there is no such balancer.
    pub(super) async fn balancer(&self, id: &str) -> Outcome<Option<LoadBalancer>> {
        let listed = self.listed.iter().flat_map(|listed| &listed.balancers).find(|balancer| balancer.id == id);
        match listed {
            Some(balancer) => Ok(Some(balancer.clone())),
            None => unless_missing(octavia::LOAD_BALANCERS.get(self.session, id).await),
        }
    }

    pub(super) async fn balancers_named(&self, name: &str) -> Outcome<Vec<LoadBalancer>> {
        let ask = async { octavia::LOAD_BALANCERS.list(self.session, &[("name", name)]).await };
        self.fitting(|listed| Ok(&listed.balancers), ask, |balancer| balancer.name == name).await
    }

    pub(super) async fn balancers_tagged(&self, tag: &str) -> Outcome<Vec<LoadBalancer>> {
        let ask = async { octavia::LOAD_BALANCERS.list(self.session, &[("tags", tag)]).await };
        self.fitting(|listed| Ok(&listed.balancers), ask, |balancer| has(&balancer.tags, tag)).await
    }

    /// Those that have a listener with this tag, but for one that is known already.
    pub(super) async fn balancers_with_listeners_tagged(
        &self,
        tag: &str,
        known: Option<&LoadBalancer>,
    ) -> Outcome<Vec<LoadBalancer>> {
        let ask = async { octavia::LISTENERS.list(self.session, &[("tags", tag)]).await };
        let listeners = self.fitting(|listed| Ok(&listed.listeners), ask, |listener| has(&listener.tags, tag)).await?;
        let ids: BTreeSet<_> = listeners.iter().flat_map(|one| &one.loadbalancers).map(|of| of.id.as_str()).collect();
        let mut found = Vec::new();
        for id in ids.into_iter().filter(|id| known.is_none_or(|known| known.id != *id)) {
            found.extend(self.balancer(id).await?);
        }
        Ok(found)
    }

    pub(super) async fn listeners(&self, balancer: &str) -> Outcome<Vec<Listener>> {
        let Some(listed) = &self.listed else {
            return octavia::LISTENERS.list(self.session, &[("loadbalancer_id", balancer)]).await;
        };
        let is_of = |listener: &&Listener| listener.loadbalancers.iter().any(|of| of.id == balancer);
        Ok(listed.listeners.iter().filter(is_of).cloned().collect())
    }

    pub(super) async fn pools(&self, balancer: &str) -> Outcome<Vec<Pool>> {
        let Some(listed) = &self.listed else {
            return octavia::POOLS.list(self.session, &[("loadbalancer_id", balancer)]).await;
        };
        let is_of = |pool: &&Pool| pool.loadbalancers.iter().any(|of| of.id == balancer);
        Ok(listed.pools.iter().filter(is_of).cloned().collect())
    }

    /// One that a pool has. If it is not there, that is an error: the pool says that it is.
    pub(super) async fn monitor(&self, id: &str) -> Outcome<HealthMonitor> {
        match self.listed.as_ref().and_then(|listed| listed.monitors.get(id)) {
            Some(monitor) => Ok(monitor.clone()),
            None => octavia::HEALTH_MONITORS.get(self.session, id).await,
        }
    }

    // ---- Neutron

    /// The one at a port.
    pub(super) async fn floating_ip_at(&self, port: &str) -> Outcome<Option<FloatingIp>> {
        self.floating_ip("port_id", port, |floating| floating.port_id == port).await
    }

    /// The one of an address.
    pub(super) async fn floating_ip_of(&self, address: &str) -> Outcome<Option<FloatingIp>> {
        self.floating_ip("floating_ip_address", address, |floating| floating.floating_ip_address == address).await
    }

    async fn floating_ip(
        &self,
        field: &str,
        value: &str,
        fits: impl Fn(&FloatingIp) -> bool,
    ) -> Outcome<Option<FloatingIp>> {
        let ask = async { network::FLOATING_IPS.list(self.session, &[(field, value)]).await };
        let found = self.fitting(Listed::floating_ips, ask, fits).await?;
        Ok(found.into_iter().next())
    }

    /// Those of a description.
    pub(super) async fn floating_ips_described(&self, description: &str) -> Outcome<Vec<FloatingIp>> {
        let ask = async { network::FLOATING_IPS.list(self.session, &[("description", description)]).await };
        self.fitting(Listed::floating_ips, ask, |floating| floating.description == description).await
    }

    pub(super) async fn groups_named(&self, name: &str) -> Outcome<Vec<SecurityGroup>> {
        self.groups("name", name, |group| group.name == name).await
    }

    pub(super) async fn groups_described(&self, description: &str) -> Outcome<Vec<SecurityGroup>> {
        self.groups("description", description, |group| group.description == description).await
    }

    async fn groups(
        &self,
        field: &str,
        value: &str,
        fits: impl Fn(&SecurityGroup) -> bool,
    ) -> Outcome<Vec<SecurityGroup>> {
        let ask = async { network::SECURITY_GROUPS.list(self.session, &[(field, value)]).await };
        self.fitting(Listed::groups, ask, fits).await
    }

    /// All networks to the outside that we may see.
    pub(super) async fn external_networks(&self) -> Outcome<&[Network]> {
        let ask = || async {
            let mut networks = network::NETWORKS.list(self.session, &[("router:external", "true")]).await?;
            networks.retain(|network| network.external);
            Ok(networks)
        };
        self.external.get_or_try_init(ask).await.map(Vec::as_slice)
    }

    /// `None` if there is no such network, or none that we may see.
    pub(super) async fn network(&self, id: &str) -> Outcome<Option<Network>> {
        let ask = || async { unless_missing(network::NETWORKS.get(self.session, id).await) };
        self.networks.get(id.to_owned(), ask).await
    }

    /// `None` if there is no such subnet, or none that we may see.
    pub(super) async fn subnet(&self, id: &str) -> Outcome<Option<Subnet>> {
        let ask = || async { unless_missing(network::SUBNETS.get(self.session, id).await) };
        self.subnets.get(id.to_owned(), ask).await
    }

    pub(super) async fn subnets_of(&self, network: &str) -> Outcome<Vec<Subnet>> {
        let ask = || async { network::SUBNETS.list(self.session, &[("network_id", network)]).await };
        self.subnets_of.get(network.to_owned(), ask).await
    }

    /// The ports of one server.
    pub(super) async fn ports_of(&self, server: &str) -> Outcome<Vec<Port>> {
        self.ports_of_some(&[server]).await
    }

    /// The ports of many servers, in few questions.
    pub(super) async fn ports_of_all(&self, servers: &[&str]) -> Outcome<Vec<Port>> {
        let asked: Vec<_> = servers.chunks(SERVERS_AT_ONCE).map(|some| self.ports_of_some(some)).collect();
        let pages: Vec<_> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        Ok(pages.into_iter().flatten().collect())
    }

    async fn ports_of_some(&self, servers: &[&str]) -> Outcome<Vec<Port>> {
        let query: Vec<_> = servers.iter().map(|server| ("device_id", *server)).collect();
        let ask = || async { network::PORTS.list(self.session, &query).await };
        self.ports_of.get(servers.iter().map(|&server| server.to_owned()).collect(), ask).await
    }

    /// Those that fit: of what the project has, or else of what is asked for.
    async fn fitting<T: Clone>(
        &self,
        listed: impl FnOnce(&Listed) -> Outcome<&[T]>,
        ask: impl Future<Output = Outcome<Vec<T>>>,
        fits: impl Fn(&T) -> bool,
    ) -> Outcome<Vec<T>> {
        if let Some(all) = &self.listed {
            return Ok(listed(all)?.iter().filter(|one| fits(one)).cloned().collect());
        }
        let mut found = ask.await?;
        found.retain(fits);
        Ok(found)
    }
}

impl Listed {
    async fn of(session: &Session) -> Outcome<Listed> {
        let (balancers, listeners, pools, monitors, floating_ips, groups) = try_join!(
            octavia::LOAD_BALANCERS.list(session, &[]),
            octavia::LISTENERS.list(session, &[]),
            octavia::POOLS.list(session, &[]),
            octavia::HEALTH_MONITORS.list(session, &[]),
            network::FLOATING_IPS.list(session, &[]).map(Ok),
            network::SECURITY_GROUPS.list(session, &[]).map(Ok)
        )?;
        let monitors = monitors.into_iter().map(|monitor| (monitor.id.clone(), monitor)).collect();
        Ok(Listed { balancers, listeners, pools, monitors, floating_ips, groups })
    }

    fn floating_ips(&self) -> Outcome<&[FloatingIp]> {
        self.floating_ips.as_deref().map_err(Error::clone)
    }

    fn groups(&self) -> Outcome<&[SecurityGroup]> {
        self.groups.as_deref().map_err(Error::clone)
    }
}

/// Answers that are asked for once. A failure is not kept: it may be another's turn to have luck.
struct Once<K, V>(Mutex<HashMap<K, Arc<OnceCell<V>>>>);

impl<K, V> Default for Once<K, V> {
    fn default() -> Self {
        Once(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Once<K, V> {
    async fn get<F: Future<Output = Outcome<V>>>(&self, key: K, ask: impl FnOnce() -> F) -> Outcome<V> {
        let cell = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        cell.get_or_try_init(ask).await.cloned()
    }
}

fn has(tags: &[String], tag: &str) -> bool {
    tags.iter().any(|there| there == tag)
}

fn unless_missing<T>(asked: Outcome<T>) -> Outcome<Option<T>> {
    match asked {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
