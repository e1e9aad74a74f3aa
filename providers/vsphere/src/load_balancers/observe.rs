//! Reads the objects of all Services. Each list is read once for a batch.
//!
//! ```text
//!  virtual servers, alone ──► server pools, monitors, IP pools (if needed) ──► allocations in every pool that may have one
//!       │ one call first: wrong credentials fail once, because NSX locks accounts
//!       └──► its tag `ippoolid` names pools that are no longer configured
//! ```
//!
//! For a deletion and for the list of all load balancers, that is every pool of the manager: the configuration may have changed since
//! the allocation, and the virtual server with the tag may be gone. A pool that cannot be read fails the Services that need it, and no
//! others.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{DesiredLoadBalancer, Ingress, LoadBalancerState, LoadBalancerStatus, PlanError, Protocol};
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use tokio::sync::OnceCell;

use super::names::{IP_POOL, Names, OwnTags, PORT, port_tag};
use super::{Allocated, Allocation, LbServiceState, Lookup, Lookups, Objects, State, annotations};
use crate::config::nsx::{AppProfile, IpPool, LbService, LoadBalancerClass, LoadBalancerConfig};
use crate::nsx::{INVALID_PATH, Listing, MONITORS, Nsx, POOLS, Realization, Record, SERVICES, VIRTUAL_SERVERS, advice};

const FIND: &str = "find load balancer";

/// Number of concurrent calls.
const PARALLEL: usize = 8;

/// IP pools whose allocations are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pools {
    /// Those of the classes, and those that virtual servers name.
    Used,
    /// All of the manager as well.
    All,
}

/// Everything that one batch reads.
pub(super) struct Inventory<'a> {
    nsx: &'a Nsx,
    config: &'a LoadBalancerConfig,
    tags: &'a OwnTags,
    /// Objects by cluster and Service.
    owned: BTreeMap<(String, String), Objects>,
    /// IP pools of the manager, or none if they are not needed.
    ip_pools: Result<Vec<Record>>,
    /// IP pools whose allocations could not be read.
    unread: BTreeMap<String, Error>,
    /// Application profiles, if a class names one.
    app_profiles: OnceCell<Vec<Record>>,
    services: OnceCell<Listing>,
}

impl<'a> Inventory<'a> {
    pub(super) async fn read(
        nsx: &'a Nsx,
        config: &'a LoadBalancerConfig,
        tags: &'a OwnTags,
        pools_to_read: Pools,
    ) -> Result<Inventory<'a>> {
        let virtual_servers = nsx.list_all(&VIRTUAL_SERVERS).await?;
        let ip_pools = async { Ok(ip_pools(nsx, config, pools_to_read).await) };
        let (pools, mut monitors, ip_pools) =
            futures::try_join!(nsx.list_all(&POOLS), nsx.list_all(&MONITORS), ip_pools)?;
        let mut inventory = Inventory {
            nsx,
            config,
            tags,
            owned: BTreeMap::new(),
            ip_pools,
            unread: BTreeMap::new(),
            app_profiles: OnceCell::new(),
            services: OnceCell::new(),
        };
        inventory.sort(virtual_servers, |objects| &mut objects.virtual_servers);
        inventory.sort(pools, |objects| &mut objects.pools);
        // Other types are those of users: HTTP, ICMP.
        monitors.objects.retain(|one| one.text("resource_type") == "LBTcpMonitorProfile");
        inventory.sort(monitors, |objects| &mut objects.monitors);
        inventory.read_allocations(pools_to_read).await;
        Ok(inventory)
    }

    /// Adds own objects to those of their Services, in the order of their IDs.
    fn sort(&mut self, Listing { mut objects, deleted }: Listing, list: impl Fn(&mut Objects) -> &mut Vec<Record>) {
        objects.sort_by(|one, other| one.id().cmp(other.id()));
        for record in objects {
            if let Some(key) = key_of(self.tags, &record) {
                list(self.owned.entry(key).or_default()).push(record);
            }
        }
        self.record_deleted(&deleted);
    }

    /// Records the IDs of own objects that NSX is still deleting.
    fn record_deleted(&mut self, deleted: &[Record]) {
        for record in deleted {
            if let Some(key) = key_of(self.tags, record) {
                self.owned.entry(key).or_default().deleted.insert(record.id().to_owned());
            }
        }
    }

    async fn read_allocations(&mut self, pools: Pools) {
        let nsx = self.nsx;
        let read = |pool: String| async move { (allocations_of(nsx, &pool).await, pool) };
        let lists: Vec<_> = stream::iter(self.allocation_pools(pools)).map(read).buffered(PARALLEL).collect().await;
        for (listed, pool) in lists {
            match listed {
                Ok(listing) => self.sort_allocations(&pool, listing),
                Err(error) => drop(self.unread.insert(pool.clone(), error.context("IP pool", pool))),
            }
        }
    }

    fn sort_allocations(&mut self, pool: &str, Listing { mut objects, deleted }: Listing) {
        self.record_deleted(&deleted);
        objects.sort_by(|one, other| one.id().cmp(other.id()));
        for record in objects {
            let Some(key) = key_of(self.tags, &record) else { continue };
            let allocation = Allocation { pool: pool.to_owned(), id: record.id().to_owned() };
            self.owned.entry(key).or_default().allocations.push(Allocated { allocation, realization: None });
        }
    }

    /// IDs of all pools that may have an allocation of this cluster.
    fn allocation_pools(&self, pools: Pools) -> BTreeSet<String> {
        let configured = self.config.classes.values().filter_map(|class| self.ip_pool(class).ok()?.ok());
        let servers = self.owned.values().flat_map(|objects| &objects.virtual_servers);
        let all = self.ip_pools.iter().flatten().filter(|_| pools == Pools::All).map(|pool| pool.id().to_owned());
        configured.chain(servers.filter_map(named_pool)).chain(all).collect()
    }

    /// Fails if any pool could not be read.
    pub(super) fn check_complete(&self) -> Result<()> {
        self.ip_pools.as_ref().map_err(Error::clone)?;
        self.unread.values().next().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Fails if a pool could not be read that the Service needs: those that its virtual servers name, or else that of its class.
    fn check_pools(&self, class: Option<&LoadBalancerClass>, objects: &Objects) -> Result<()> {
        let mut needed: Vec<_> = objects.virtual_servers.iter().filter_map(named_pool).collect();
        if let Some(class) = class.filter(|_| needed.is_empty()) {
            needed.extend(self.ip_pool(class)?.ok());
        }
        let unread = needed.iter().find_map(|pool| self.unread.get(pool));
        unread.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Services of a cluster that have any object.
    pub(super) fn services(&self, cluster: &str) -> impl Iterator<Item = &str> {
        let of_cluster = self.owned.iter().filter(move |((of, _), objects)| of == cluster && !objects.is_empty());
        of_cluster.map(|((_, service), _)| service.as_str())
    }

    pub(super) async fn observe_all(
        &self,
        desired: &[DesiredLoadBalancer],
    ) -> Vec<Result<Option<LoadBalancerState<State>>>> {
        let all: Vec<_> = desired.iter().map(|desired| self.observe(desired).boxed()).collect();
        stream::iter(all).buffered(PARALLEL).collect().await
    }

    async fn observe(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState<State>>> {
        let names = self.tags.names(&desired.key);
        let found = self.owned.get(&(names.cluster().to_owned(), names.service()));
        let mut objects = found.cloned().unwrap_or_default();
        if desired.spec.is_none() {
            return self.observe_removal(&names, objects).await;
        }
        self.check_pools(self.class(desired), &objects)?;
        self.read_addresses(&mut objects).await?;
        let lookups = self.lookups(desired, &names, &objects).await?;
        objects.abandon_pending(lookups.ip_pool.as_ref());
        Ok(Some(with_status(State { objects, lookups }, true)))
    }

    /// Observes what is to be deleted: addresses do not matter. If no allocation was found, every pool must have been read.
    async fn observe_removal(&self, names: &Names<'_>, objects: Objects) -> Result<Option<LoadBalancerState<State>>> {
        if objects.allocations.is_empty() {
            self.check_complete()?;
        }
        if objects.is_empty() {
            return Ok(None);
        }
        // An existing one is never deleted, so it is not read.
        let service = match &self.config.service {
            LbService::Managed { tier1 } => self.managed_service(names, tier1).await?,
            LbService::Existing { .. } => LbServiceState::Unread,
        };
        let lookups = Lookups { service, has_others: self.has_others(names), ..Lookups::default() };
        Ok(Some(with_status(State { objects, lookups }, false)))
    }

    /// Class that the Service requests; an unknown one is an error of the plan.
    fn class(&self, desired: &DesiredLoadBalancer) -> Option<&'a LoadBalancerClass> {
        self.config.classes.get(annotations::class(&desired.annotations))
    }

    /// Reads the addresses of allocations, unless all virtual servers show that of the only one.
    async fn read_addresses(&self, objects: &mut Objects) -> Result<()> {
        if objects.has_one_address() && objects.allocations.len() < 2 {
            return Ok(());
        }
        for allocated in &mut objects.allocations {
            allocated.realization = Some(self.nsx.realization(&allocated.allocation.path()).await?);
        }
        Ok(())
    }

    async fn lookups(&self, desired: &DesiredLoadBalancer, names: &Names<'_>, objects: &Objects) -> Result<Lookups> {
        let (class, mut profiles) = (self.class(desired), BTreeMap::new());
        let ports = || desired.spec.iter().flat_map(|spec| &spec.ports);
        let protocols: BTreeSet<_> = ports().map(|port| port.protocol).collect();
        for protocol in protocols {
            if let Some(profile) = class.and_then(|class| profile_of(class, protocol)) {
                profiles.insert(protocol, self.profile(profile, protocol).await?);
            }
        }
        let has_server = |tag: &str| objects.virtual_servers.iter().any(|one| one.tag(PORT) == Some(tag));
        let is_placed = objects.lb_service().is_some() || ports().all(|port| has_server(&port_tag(port)));
        let service = if is_placed { LbServiceState::Unread } else { self.service(names).await? };
        let ip_pool = class.and_then(|class| self.ip_pool(class).ok());
        let (has_others, deleted_services) = (self.has_others(names), self.deleted_services(names));
        Ok(Lookups { ip_pool, profiles, service, has_others, deleted_services })
    }

    fn has_others(&self, names: &Names<'_>) -> bool {
        let service = names.service();
        let mut of_cluster = self.owned.iter().filter(|((cluster, _), _)| cluster == names.cluster());
        of_cluster.any(|((_, other), objects)| *other != service && !objects.virtual_servers.is_empty())
    }

    // ---- LB service

    async fn service(&self, names: &Names<'_>) -> Result<LbServiceState> {
        match &self.config.service {
            LbService::Existing { id, tier1 } => self.existing_service(id, tier1.as_deref()).await,
            LbService::Managed { tier1 } => self.managed_service(names, tier1).await,
        }
    }

    async fn existing_service(&self, id: &str, tier1: Option<&str>) -> Result<LbServiceState> {
        let read = || async {
            let found = self.nsx.find(SERVICES.get, &SERVICES.one(id)).await;
            found.map(|found| Listing { objects: found.into_iter().collect(), ..Listing::default() })
        };
        let found = self.services.get_or_try_init(read).await?;
        let Some(found) = found.objects.first() else {
            let message = format!("load balancer service {id:?} does not exist; correct lbServiceId (lb-service-id)");
            return Ok(LbServiceState::Unusable(plan_error(ErrorKind::NotFound, "LB service", message)));
        };
        let router = found.text("connectivity_path");
        Ok(match tier1.filter(|tier1| *tier1 != router) {
            Some(tier1) => {
                let message = format!("load balancer service {id:?} is configured for router {router:?} not {tier1:?}");
                LbServiceState::Unusable(plan_error(ErrorKind::InvalidConfig, "LB service", message))
            }
            None => found_service(found, false),
        })
    }

    /// Finds the LB service at the tier-1 gateway, of which NSX permits one, or else the one with the marks of the cluster.
    async fn managed_service(&self, names: &Names<'_>, tier1: &str) -> Result<LbServiceState> {
        let read = || async { self.nsx.list_all(&SERVICES).await };
        let all = self.services.get_or_try_init(read).await?;
        let is_own = |one: &Record| self.tags.is_of_cluster(one, names.cluster());
        let attached = all.objects.iter().find(|one| one.text("connectivity_path") == tier1);
        let found = attached.or_else(|| all.objects.iter().find(|one| is_own(one)));
        Ok(found.map_or(LbServiceState::Missing, |found| found_service(found, is_own(found))))
    }

    /// IDs of LB services of the cluster that NSX is still deleting.
    fn deleted_services(&self, names: &Names<'_>) -> BTreeSet<String> {
        let deleted = self.services.get().into_iter().flat_map(|all| &all.deleted);
        let own = deleted.filter(|one| self.tags.is_of_cluster(one, names.cluster()));
        own.map(|one| one.id().to_owned()).collect()
    }

    // ---- pools and profiles of a class

    fn ip_pool(&self, class: &LoadBalancerClass) -> Result<Lookup> {
        let name = match &class.pool {
            IpPool::Id(id) => return Ok(Ok(id.clone())),
            IpPool::Name(name) => name,
        };
        let all = self.ip_pools.as_ref().map_err(Error::clone)?;
        let found = all.iter().find(|pool| pool.text("display_name") == name);
        Ok(found.map(|pool| pool.id().to_owned()).ok_or_else(|| {
            let message = format!("load balancer IP pool named {name} not found; {}", advice::IP_POOL);
            plan_error(ErrorKind::NotFound, "IP pool", message)
        }))
    }

    async fn profile(&self, profile: &AppProfile, protocol: Protocol) -> Result<Lookup> {
        let name = match profile {
            AppProfile::Path(path) => return Ok(Ok(path.clone())),
            AppProfile::Name(name) => name,
        };
        let path = ["infra", "lb-app-profiles"];
        let read = || async { self.nsx.list("list_lb_app_profiles", &path).await.map(|all| all.objects) };
        Ok(profile_named(self.app_profiles.get_or_try_init(read).await?, name, protocol))
    }
}

/// Reads the IP pools of the manager, if all are needed or a class has one by its name.
async fn ip_pools(nsx: &Nsx, config: &LoadBalancerConfig, pools: Pools) -> Result<Vec<Record>> {
    match pools == Pools::All || config.classes.values().any(|class| matches!(class.pool, IpPool::Name(_))) {
        true => nsx.list("list_ip_pools", &["infra", "ip-pools"]).await.map(|all| all.objects),
        false => Ok(Vec::new()),
    }
}

/// Reads the allocations in a pool; none if NSX itself reports that the pool does not exist.
async fn allocations_of(nsx: &Nsx, pool: &str) -> Result<Listing> {
    let listed = nsx.list("list_ip_allocations", &["infra", "ip-pools", pool, "ip-allocations"]).await;
    match listed {
        Err(error) if error.is_not_found() || error.code() == Some(INVALID_PATH) => Ok(Listing::default()),
        listed => listed,
    }
}

/// IP pool that a virtual server names.
fn named_pool(server: &Record) -> Option<String> {
    server.tag(IP_POOL).filter(|pool| !pool.is_empty()).map(str::to_owned)
}

fn key_of(tags: &OwnTags, record: &Record) -> Option<(String, String)> {
    tags.service_of(record).map(|(cluster, service)| (cluster.to_owned(), service.to_owned()))
}

fn profile_of(class: &LoadBalancerClass, protocol: Protocol) -> Option<&AppProfile> {
    match protocol {
        Protocol::Tcp => Some(&class.tcp_profile),
        Protocol::Udp => Some(&class.udp_profile),
        Protocol::Sctp => None,
    }
}

/// Returns the path of the profile with this name and the type of the protocol.
fn profile_named(all: &[Record], name: &str, protocol: Protocol) -> Lookup {
    let kind = if protocol == Protocol::Udp { "LBFastUdpProfile" } else { "LBFastTcpProfile" };
    let mut found = all.iter().filter(|one| one.text("display_name") == name && one.text("resource_type") == kind);
    let error = |kind, message| Err(plan_error(kind, "application profile", message));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.path().to_owned()),
        (Some(_), Some(_)) => {
            let message =
                format!("profile name {name} for resource type {kind} is not unique; {}", advice::UNIQUE_PROFILE);
            error(ErrorKind::InvalidConfig, message)
        }
        (None, _) => {
            let message = format!("application profile named {name} of type {kind} not found; {}", advice::PROFILE);
            error(ErrorKind::NotFound, message)
        }
    }
}

fn found_service(found: &Record, is_own: bool) -> LbServiceState {
    let path = Some(found.path()).filter(|path| !path.is_empty());
    let path = path.map_or_else(|| SERVICES.policy_path(found.id()), str::to_owned);
    LbServiceState::Found { id: found.id().to_owned(), path, is_own }
}

pub(super) fn plan_error(kind: ErrorKind, subject: &str, message: String) -> PlanError {
    Error::new(kind, FIND, message).retry(bowline_cloud::Retry::Backoff).to_plan_error(subject)
}

/// Adds what the Service shows of a state.
fn with_status(resources: State, is_desired: bool) -> LoadBalancerState<State> {
    let objects = &resources.objects;
    let ip = objects.served_address().map(str::to_owned);
    let ingress = ip.map(|ip| Ingress { ip: Some(ip), ..Ingress::default() });
    let status = LoadBalancerStatus { ingress: ingress.into_iter().collect() };
    // An allocation that NSX never realises must not block the deletion.
    let pending = objects.allocation().filter(|one| is_desired && one.realization == Some(Realization::Pending));
    let pending = pending.filter(|_| objects.served_address().is_none()).map(|one| one.allocation.operation());
    LoadBalancerState { pending, ..LoadBalancerState::new(status, resources) }
}
