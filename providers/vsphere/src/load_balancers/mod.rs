//! Load balancers: virtual servers of NSX at the LB service of a tier-1 gateway.
//!
//! ```text
//!  Service ──► IP allocation
//!     └─ port ──► virtual server ──► server pool ──► monitor (TCP)
//!                    └──► LB service: existing, or created with the first virtual server and deleted after the last
//!
//!  Service ──► observe: each list once for a batch ──► State ──plan──► steps of one write each ──► apply
//! ```
//!
//! Objects are found by their tags, which are those of the Go manager. Every other object is foreign. The allocation is created
//! before and released after everything else, so that no address is in use twice and nothing is left without an owner.

mod annotations;
mod apply;
mod names;
mod objects;
mod observe;
mod plan;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Applied, LoadBalancerCapabilities, LoadBalancerKind, Result, TypedLoadBalancers};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, IpFamily, LoadBalancerKey, LoadBalancerState, Operation, Plan, PlanError,
    PollInterval, Progress, Protocol,
};

use crate::config::nsx::LoadBalancerConfig;
use crate::nsx::{Collection, Nsx, Realization, Record, Tags};
use names::OwnTags;
use objects::Object;
use observe::{Inventory, Pools};

/// Number of load balancers observed at once. All lists are read once for a batch, however many there are.
const BATCH: usize = 1000;

/// Intervals at which a new allocation is polled.
const POLL: PollInterval = PollInterval { first: Duration::from_millis(100), factor: 2.0, max: Duration::from_secs(1) };

/// Time after which an allocation without an address counts as failed.
const DEADLINE: Duration = Duration::from_secs(15);

/// Load balancers of NSX.
pub(crate) struct NsxLoadBalancers {
    nsx: Nsx,
    config: LoadBalancerConfig,
    tags: OwnTags,
}

/// What exists for a Service, and what its plan needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct State {
    objects: Objects,
    lookups: Lookups,
}

/// Objects of a Service.
#[derive(Debug, Clone, PartialEq, Default)]
struct Objects {
    allocations: Vec<Allocated>,
    virtual_servers: Vec<Record>,
    pools: Vec<Record>,
    monitors: Vec<Record>,
    /// IDs of objects that NSX is still deleting.
    deleted: BTreeSet<String>,
}

/// IP allocation in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allocation {
    pool: String,
    id: String,
}

/// Existing IP allocation.
#[derive(Debug, Clone, PartialEq)]
struct Allocated {
    allocation: Allocation,
    /// `None` if it was not read, because a virtual server has the address.
    realization: Option<Realization>,
}

/// Data that the plan needs and that does not belong to the Service.
#[derive(Debug, Clone, PartialEq, Default)]
struct Lookups {
    /// ID of the IP pool of the class that the Service requests.
    ip_pool: Option<Lookup>,
    /// Policy paths of the application profiles.
    profiles: BTreeMap<Protocol, Lookup>,
    service: LbServiceState,
    /// IDs of LB services of the cluster that NSX is still deleting.
    deleted_services: BTreeSet<String>,
    /// Whether another Service of the cluster has a virtual server.
    has_others: bool,
}

/// ID or path of an object, or the reason why there is none.
type Lookup = std::result::Result<String, PlanError>;

/// LB service that the virtual servers belong to.
#[derive(Debug, Clone, PartialEq, Default)]
enum LbServiceState {
    /// It was not read, because the plan does not need it.
    #[default]
    Unread,
    /// There is none, and this manager creates it.
    Missing,
    /// The existing one.
    Found { id: String, path: String, is_own: bool },
    /// It cannot be used.
    Unusable(PlanError),
}

/// Payload of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Allocates an address.
    Allocate { allocation: Allocation, tags: Tags },
    /// Releases an address.
    Release(Allocation),
    /// Creates an object, or updates the one that was observed.
    Write(Box<Write>),
    /// Deletes an object.
    Delete(&'static Collection, String),
    /// Deletes the LB service if no virtual server uses it.
    DeleteService { id: String, path: String, marks: Tags },
}

/// An object to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    object: Object,
    current: Option<Record>,
    /// Allocation with the address of a virtual server, if NSX had not realised it when the plan was made.
    address_of: Option<Allocation>,
}

/// Result of a poll: the allocated address.
pub(crate) type Polled = Option<String>;

impl NsxLoadBalancers {
    pub(crate) fn new(nsx: Nsx, config: LoadBalancerConfig) -> NsxLoadBalancers {
        let tags = OwnTags::new(&config.tags);
        NsxLoadBalancers { nsx, config, tags }
    }
}

/// Returns the capabilities. NSX can do more than the Go manager used; requests beyond that are reported by the plan.
pub(crate) fn capabilities() -> LoadBalancerCapabilities {
    let kind = LoadBalancerKind {
        name: "nsx",
        tcp: true,
        udp: true,
        mixed_protocols: true,
        ip_families: vec![IpFamily::IPv4],
        first_family: true,
        checks_spec: true,
        ..LoadBalancerKind::default()
    };
    LoadBalancerCapabilities { marks_uid: false, batch_observe: BATCH, ..LoadBalancerCapabilities::of(kind) }
}

/// Returns the reference page of the annotations.
pub(crate) fn annotation_reference() -> String {
    annotations::TABLE.reference()
}

#[async_trait]
impl TypedLoadBalancers for NsxLoadBalancers {
    type State = State;
    type Change = Change;
    type Polled = Polled;

    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<State>>>> {
        if desired.is_empty() {
            return Vec::new();
        }
        // The allocation of a load balancer that is to be deleted may be in a pool that is not configured any more.
        let pools = if desired.iter().any(|one| one.spec.is_none()) { Pools::All } else { Pools::Used };
        match Inventory::read(&self.nsx, &self.config, &self.tags, pools).await {
            Ok(inventory) => inventory.observe_all(desired).await,
            Err(error) => desired.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let inventory = Inventory::read(&self.nsx, &self.config, &self.tags, Pools::All).await?;
        inventory.check_complete()?;
        let services: BTreeSet<_> = inventory.services(cluster.as_str()).filter_map(|it| it.split_once('/')).collect();
        let key = |(namespace, service): (&str, &str)| LoadBalancerKey {
            cluster: cluster.clone(),
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            uid: String::new(),
        };
        Ok(services.into_iter().map(key).collect())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&State>) -> Result<Plan<Change>> {
        plan::plan(&self.config, &self.tags, desired, state)
    }

    async fn apply(&self, _: &LoadBalancerKey, change: &Change, polled: Option<&Polled>) -> Result<Applied<State>> {
        apply::apply(&self.nsx, change, polled.and_then(Option::as_deref)).await
    }

    async fn poll(&self, _: &LoadBalancerKey, operation: &Operation) -> Result<Progress<Polled>> {
        apply::poll(&self.nsx, operation).await
    }
}

impl Allocation {
    /// Policy path, by which NSX reports the realised state.
    fn path(&self) -> String {
        format!("/infra/ip-pools/{}/ip-allocations/{}", self.pool, self.id)
    }

    fn segments(&self) -> [&str; 5] {
        ["infra", "ip-pools", &self.pool, "ip-allocations", &self.id]
    }

    /// Returns the operation of NSX that allocates the address.
    fn operation(&self) -> Operation {
        Operation {
            id: self.path(),
            description: format!("NSX has not allocated an address from IP pool {} yet", self.pool),
            advice: format!(
                "check the IP pool and the alarms of the NSX manager, or select a class with another pool (annotation {})",
                annotations::CLASS.key
            ),
            poll_interval: POLL,
            deadline: DEADLINE,
            observable: true,
        }
    }
}

impl Allocated {
    fn address(&self) -> Option<&str> {
        match &self.realization {
            Some(Realization::Realized { address }) => address.as_deref(),
            _ => None,
        }
    }

    fn is_failed(&self) -> bool {
        matches!(self.realization, Some(Realization::Failed { .. }))
    }
}

impl Objects {
    fn is_empty(&self) -> bool {
        let Objects { allocations, virtual_servers, pools, monitors, deleted: _ } = self;
        allocations.is_empty() && virtual_servers.is_empty() && pools.is_empty() && monitors.is_empty()
    }

    /// Address of the virtual servers. If they differ, an allocated one, and of several the one that most virtual servers have.
    fn served_address(&self) -> Option<&str> {
        let served =
            self.virtual_servers.iter().map(|one| one.text("ip_address")).filter(|address| !address.is_empty());
        let ranked = served.clone().map(|address| {
            let is_allocated = self.allocations.iter().any(|one| one.address() == Some(address));
            (is_allocated, served.clone().filter(|other| *other == address).count(), Reverse(address))
        });
        ranked.max().map(|(_, _, Reverse(address))| address)
    }

    /// Whether all virtual servers have one address.
    fn has_one_address(&self) -> bool {
        let mut addresses = self.virtual_servers.iter().map(|one| one.text("ip_address"));
        addresses.next().is_some_and(|first| !first.is_empty() && addresses.all(|address| address == first))
    }

    /// Policy path of the LB service that the virtual servers belong to.
    fn lb_service(&self) -> Option<&str> {
        self.virtual_servers.iter().map(|one| one.text("lb_service_path")).find(|path| !path.is_empty())
    }

    /// Lets allocations in other pools than the requested one fail that NSX has not realised. They would block the Service for ever.
    fn abandon_pending(&mut self, requested: Option<&Lookup>) {
        let Some(Ok(requested)) = requested.filter(|_| self.virtual_servers.is_empty()) else { return };
        let is_pending = |one: &&mut Allocated| one.realization == Some(Realization::Pending);
        for one in self.allocations.iter_mut().filter(is_pending).filter(|one| one.allocation.pool != *requested) {
            let message = format!("no address until the Service requested one of IP pool {requested}");
            one.realization = Some(Realization::Failed { message, is_exhausted: false });
        }
    }

    /// Allocation whose address the load balancer has or gets. Those that NSX cannot realise do not count.
    fn allocation(&self) -> Option<&Allocated> {
        let mut usable = self.allocations.iter().filter(|one| !one.is_failed());
        let served = self.served_address();
        let matching = usable.clone().find(|one| one.address().is_some() && one.address() == served);
        let realised = || usable.clone().find(|one| one.address().is_some());
        matching.or_else(realised).or_else(|| usable.next())
    }

    /// Address of the load balancer, if it is known.
    fn address(&self) -> Option<&str> {
        self.served_address().or_else(|| self.allocation()?.address())
    }
}
