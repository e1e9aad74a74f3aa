//! Creation and update.

use std::collections::BTreeSet;

use bowline_core::{FieldChange, LoadBalancerSpec, Plan, PlanError, PortSpec, Protocol, Step, Verb};

use super::super::names::{CLASS, IP_POOL, Names, PORT, port_tag};
use super::super::objects::{Member, Object, Placement, VirtualServerParts, family_of, members};
use super::super::{Allocated, Allocation, Change, LbServiceState, Lookup, State};
use super::{deletions, node_port, release, service_lock, write};
use crate::config::nsx::{LbService, LoadBalancerConfig};
use crate::nsx::{MONITORS, POOLS, Record, SERVICES, VIRTUAL_SERVERS};

/// Plan of a Service that has a load balancer.
pub(super) struct Update<'a> {
    config: &'a LoadBalancerConfig,
    names: &'a Names<'a>,
    spec: &'a LoadBalancerSpec,
    state: &'a State,
    /// Requested class.
    class: &'a str,
    plan: Plan<Change>,
}

/// Where the address of the virtual servers comes from.
enum AddressSource<'a> {
    Known(&'a str),
    Allocation(Allocation),
}

/// Objects behind the virtual server of one port.
struct Backend<'a> {
    port: &'a PortSpec,
    node_port: u16,
    existing: OfPort<'a>,
    /// Policy path of the pool.
    pool: String,
    /// Steps for monitor and pool.
    monitor_step: Option<Step<Change>>,
    pool_step: Option<Step<Change>>,
}

/// Existing objects of one port.
#[derive(Clone, Copy)]
struct OfPort<'a> {
    virtual_server: Option<&'a Record>,
    pool: Option<&'a Record>,
    monitor: Option<&'a Record>,
}

impl<'a> Update<'a> {
    pub(super) fn new(
        config: &'a LoadBalancerConfig,
        names: &'a Names<'a>,
        spec: &'a LoadBalancerSpec,
        state: &'a State,
        class: &'a str,
        errors: Vec<PlanError>,
    ) -> Update<'a> {
        Update { config, names, spec, state, class, plan: Plan { errors, ..Plan::default() } }
    }

    pub(super) fn run(mut self) -> Plan<Change> {
        let source = self.address_source();
        let missing = self.state.lookups.profiles.values().filter_map(|lookup| lookup.as_ref().err());
        missing.for_each(|error| self.plan.errors.push(error.clone()));
        let family = self.state.objects.address().and_then(|address| address.parse().ok());
        let members = members(self.names, self.spec, family.as_ref().map(family_of));
        let mut backends: Vec<_> = self.spec.ports.iter().filter_map(|port| self.backend(port, &members)).collect();
        let monitors: Vec<_> = backends.iter_mut().filter_map(|backend| backend.monitor_step.take()).collect();
        let pools: Vec<_> = backends.iter_mut().filter_map(|backend| backend.pool_step.take()).collect();
        let servers: Vec<_> = source
            .map(|source| backends.iter().filter_map(|backend| self.virtual_server(backend, &source)).collect())
            .unwrap_or_default();
        let service = self.create_service(&servers);
        self.plan.steps.extend(monitors.into_iter().chain(pools).chain(service).chain(servers));
        // While something that is needed cannot be created, everything else stays.
        if self.plan.errors.is_empty() {
            self.delete_unused(&backends);
        }
        self.plan
    }

    fn found<T: Clone>(&mut self, lookup: &std::result::Result<T, PlanError>) -> Option<T> {
        lookup.as_ref().map_err(|error| self.add_error(error)).ok().cloned()
    }

    fn add_error(&mut self, error: &PlanError) {
        if !self.plan.errors.contains(error) {
            self.plan.errors.push(error.clone());
        }
    }

    // ---- address

    /// Returns where the address comes from, and plans its allocation. Without a source, no virtual server can be created.
    fn address_source(&mut self) -> Option<AddressSource<'a>> {
        let (objects, lookups) = (&self.state.objects, &self.state.lookups);
        if let Some(address) = objects.address() {
            return Some(AddressSource::Known(address));
        }
        if let Some(allocated) = objects.allocation() {
            return Some(AddressSource::Allocation(allocated.allocation.clone()));
        }
        let pool = self.found(lookups.ip_pool.as_ref()?)?;
        if !self.is_creatable() {
            return None;
        }
        // NSX could not realise these; a new one may find a free address.
        self.plan.steps.extend(objects.allocations.iter().map(release));
        let allocation = Allocation { id: self.names.id("ip-allocations", ""), pool };
        self.plan.steps.push(self.allocate(&allocation));
        Some(AddressSource::Allocation(allocation))
    }

    /// Whether a virtual server can be created for any port. Otherwise an address would have no use.
    fn is_creatable(&mut self) -> bool {
        let profiles = &self.state.lookups.profiles;
        let has_profile =
            |port: &PortSpec| node_port(port).is_some() && matches!(profiles.get(&port.protocol), Some(Ok(_)));
        let is_possible = self.spec.ports.iter().any(has_profile);
        self.service_path().and_then(|path| self.found(&path)).is_some() && is_possible
    }

    fn allocate(&self, allocation: &Allocation) -> Step<Change> {
        let change = Change::Allocate { allocation: allocation.clone(), tags: self.names.service_tags() };
        let shown = vec![FieldChange::new("pool", None, Some(allocation.pool.clone()))];
        let step = Step::new(Verb::Create, "IP allocation", self.names.of_service(), shown, change);
        Step { independent: true, repeatable: true, ..step }
    }

    // ---- ports

    /// Plans monitor and server pool of a port that is possible.
    fn backend(&self, port: &'a PortSpec, members: &[Member]) -> Option<Backend<'a>> {
        let (existing, node_port) = (self.existing(port), node_port(port)?);
        let monitor = (port.protocol == Protocol::Tcp).then(|| Object::monitor(self.names, port, node_port));
        let monitor_path = monitor.as_ref().map(|monitor| path_of(existing.monitor, monitor));
        let snat_disabled = self.config.snat_disabled;
        let pool = Object::pool(self.names, port, members.to_vec(), monitor_path.as_deref(), snat_disabled);
        Some(Backend {
            port,
            node_port,
            existing,
            pool: path_of(existing.pool, &pool),
            monitor_step: monitor.and_then(|monitor| write(monitor, existing.monitor, None)),
            pool_step: write(pool, existing.pool, None),
        })
    }

    /// Returns the objects of a port. Of several with its tag, those that are in use.
    fn existing(&self, port: &PortSpec) -> OfPort<'a> {
        let (objects, tag) = (&self.state.objects, port_tag(port));
        let virtual_server = objects.virtual_servers.iter().find(|one| one.tag(PORT) == Some(&tag));
        let is_used_pool = |one: &Record| virtual_server.is_some_and(|it| it.text("pool_path") == one.path());
        let pool = find(&objects.pools, &tag, is_used_pool);
        let paths = pool.map(|pool| pool.list("active_monitor_paths")).unwrap_or_default();
        let is_used_monitor = |one: &Record| paths.iter().any(|path| path.as_str() == Some(one.path()));
        let monitors = if port.protocol == Protocol::Tcp { objects.monitors.as_slice() } else { &[] };
        OfPort { virtual_server, pool, monitor: find(monitors, &tag, is_used_monitor) }
    }

    /// Plans the virtual server of a port. An existing one keeps its profile if the configured one is not found.
    fn virtual_server(&mut self, backend: &Backend<'_>, source: &AddressSource<'_>) -> Option<Step<Change>> {
        let lookup = self.state.lookups.profiles.get(&backend.port.protocol);
        let profile = lookup.and_then(|lookup| lookup.as_deref().ok());
        let existing = backend.existing.virtual_server;
        let placement = match existing {
            Some(_) => None,
            None => Some(self.placement(source).filter(|_| profile.is_some())?),
        };
        let (address, address_of) = match source {
            AddressSource::Known(address) => (Some(*address), None),
            AddressSource::Allocation(allocation) => (None, Some(allocation.clone())),
        };
        let parts = VirtualServerParts { address, profile, pool: &backend.pool, placement };
        let object = Object::virtual_server(self.names, backend.port, backend.node_port, &parts);
        write(object, existing, address_of)
    }

    /// Returns LB service, pool and class of a new virtual server: pool and class are those of the existing ones.
    fn placement(&mut self, source: &AddressSource<'_>) -> Option<Placement> {
        let service = self.service_path().and_then(|lookup| self.found(&lookup))?;
        let objects = &self.state.objects;
        let of_first = |scope| objects.virtual_servers.first().and_then(|first| first.tag(scope)).map(str::to_owned);
        let of_source = || match source {
            AddressSource::Allocation(allocation) => Some(allocation.pool.clone()),
            AddressSource::Known(_) => objects.allocation().map(|one| one.allocation.pool.clone()),
        };
        let ip_pool = of_first(IP_POOL).or_else(of_source).unwrap_or_default();
        Some(Placement { service, ip_pool, class: of_first(CLASS).unwrap_or_else(|| self.class.to_owned()) })
    }

    // ---- LB service

    /// Returns the path of the LB service for a new virtual server: that of the existing ones, or else the configured one.
    fn service_path(&self) -> Option<Lookup> {
        if let Some(path) = self.state.objects.lb_service() {
            return Some(Ok(path.to_owned()));
        }
        match (&self.state.lookups.service, &self.config.service) {
            (LbServiceState::Found { path, .. }, _) => Some(Ok(path.clone())),
            (LbServiceState::Unusable(error), _) => Some(Err(error.clone())),
            (LbServiceState::Missing, LbService::Managed { tier1 }) => {
                Some(Ok(SERVICES.policy_path(&self.names.lb_service_id(tier1))))
            }
            _ => None,
        }
    }

    /// Plans the LB service for the first virtual server.
    fn create_service(&mut self, servers: &[Step<Change>]) -> Option<Step<Change>> {
        let LbService::Managed { tier1 } = &self.config.service else { return None };
        let is_needed = servers.iter().any(|step| step.verb == Verb::Create);
        if !is_needed || self.state.lookups.service != LbServiceState::Missing {
            return None;
        }
        self.plan.locks.insert(service_lock(tier1));
        write(Object::lb_service(self.names, tier1, &self.config.size), None, None)
    }

    // ---- deletion

    fn delete_unused(&mut self, backends: &[Backend<'a>]) {
        let kept = |object: fn(&OfPort<'a>) -> Option<&'a Record>| -> Vec<&str> {
            backends.iter().filter_map(|backend| object(&backend.existing)).map(Record::id).collect()
        };
        let objects = &self.state.objects;
        let steps = [
            deletions(&VIRTUAL_SERVERS, &objects.virtual_servers, &kept(|of| of.virtual_server)),
            deletions(&POOLS, &objects.pools, &kept(|of| of.pool)),
            deletions(&MONITORS, &objects.monitors, &kept(|of| of.monitor)),
        ];
        self.plan.steps.extend(steps.into_iter().flatten());
        // Of several allocations, the one in use stays. If it is not certain which one that is, all stay. One whose address a
        // virtual server still has is released after that has moved.
        let used = objects.allocation().filter(|one| one.address().is_some() && one.address() == objects.address());
        if let Some(used) = used {
            let servers = backends.iter().filter_map(|backend| backend.existing.virtual_server);
            let served: BTreeSet<_> = servers.map(|server| server.text("ip_address")).collect();
            let is_served = |one: &Allocated| one.address().is_some_and(|address| served.contains(address));
            let unused = objects.allocations.iter().filter(|one| one.allocation != used.allocation && !is_served(one));
            self.plan.steps.extend(unused.map(release));
        }
    }
}

/// Returns the object with this port tag, preferably one in use.
fn find<'a>(records: &'a [Record], tag: &str, is_used: impl Fn(&Record) -> bool) -> Option<&'a Record> {
    let of_port = || records.iter().filter(|one| one.tag(PORT) == Some(tag));
    of_port().find(|one| is_used(one)).or_else(|| of_port().next())
}

/// Policy path of an existing object, or of the one that is created.
fn path_of(existing: Option<&Record>, object: &Object) -> String {
    match existing.map(|one| (one.path(), one.id())) {
        Some(("", id)) => object.collection.policy_path(id),
        Some((path, _)) => path.to_owned(),
        None => object.path(),
    }
}
