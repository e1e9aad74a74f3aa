//! The cloud: machines, load balancers, routes and call counters.
//!
//! ```text
//!  management calls ───────► World { Fleet, Balancers, RouteTables } ──► snapshot file
//!                              ▲
//!  user API (find, list, …) ───┘  counted, delayed, and subject to faults
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_agent::{Balancers, KernelRoutes, Pools, RuleError, Sockets};
use bowline_core::Address;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::api::Key;
use crate::cloud_load_balancers::BalancerOptions;
use crate::data_plane::open_sockets;
use crate::faults::{Fault, FaultEffect, FaultSpec, Faults, Injected};
use crate::fleet::Fleet;
use crate::kernel::{RouteOptions, open_kernel_routes};
use crate::pending_changes::PendingChanges;
use crate::routes::{RouteRecord, RouteTables};
use crate::snapshot;

/// Options of a cloud. Default: in memory, no latency, 100 machines per page.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Snapshot file, from which the state is restored after a restart; `None` keeps the state in memory.
    pub snapshot: Option<PathBuf>,
    /// Latency of every user call.
    pub latency: Duration,
    /// Maximum number of machines per page of a list and per lookup.
    pub page_size: usize,
    /// Seed of the random faults.
    pub seed: u64,
    /// Options of load balancers.
    pub balancers: BalancerOptions,
    /// Maximum number of routes per table; 0 and `None` mean no limit.
    pub max_routes: Option<usize>,
    /// Options of routes.
    pub routes: RouteOptions,
    /// File with the tokens of users, one per line; `None` disables authentication of users.
    pub token_file: Option<PathBuf>,
}

impl Default for CloudOptions {
    fn default() -> CloudOptions {
        CloudOptions {
            snapshot: None,
            latency: Duration::ZERO,
            page_size: 100,
            seed: 0,
            balancers: BalancerOptions::default(),
            routes: RouteOptions::default(),
            max_routes: None,
            token_file: None,
        }
    }
}

/// Machine to create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewMachine {
    /// Name, by which Nodes without a provider ID are looked up.
    pub name: String,
    /// ID; generated if empty.
    pub id: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Region.
    pub region: String,
    /// Addresses, in the order of the Node's addresses.
    pub addresses: Vec<Address>,
    /// Additional labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Tags set by users.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// Pod CIDRs that the cloud itself routes to the machine. CIDRs of different machines do not overlap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_ranges: Vec<IpNet>,
    /// Network namespace of the machine: a name under `/run/netns`, or a path. Used with
    /// [`RouteOptions::kernel`](crate::RouteOptions::kernel) only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_namespace: Option<String>,
}

/// Machine of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Properties; the ID is never empty.
    #[serde(flatten)]
    pub spec: NewMachine,
    /// State.
    pub state: MachineState,
}

/// State of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// Running.
    Running,
    /// Stopped.
    Stopped,
}

/// A cloud. Clones share it. Its methods are management calls: they have no latency, are not subject to faults and are not
/// counted. User calls, through the provider or over HTTP, have latency, are subject to faults and are counted.
#[derive(Clone)]
pub struct LocalCloud {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    snapshot: Option<PathBuf>,
    page_size: usize,
    pub(crate) pools: Pools,
    pub(crate) sockets: Option<Sockets>,
    pub(crate) kernel: Option<Arc<KernelRoutes>>,
    pub(crate) max_routes: Option<usize>,
    token_file: Option<PathBuf>,
    pub(crate) route_changes: watch::Sender<u64>,
    state: Mutex<State>,
}

/// Mutable state.
pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) pending: PendingChanges,
    faults: Faults,
    latency: Duration,
    calls: BTreeMap<String, u64>,
    /// Bytes of requests and of responses.
    bytes: (u64, u64),
}

/// Resources of the cloud, which survive a restart.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) balancers: Balancers,
    pub(crate) routes: RouteTables,
}

/// Reason why the cloud rejects a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// The machine does not exist.
    #[error("there is no machine {0:?}")]
    NoSuchMachine(String),
    /// A machine with that ID exists.
    #[error("a machine with the ID {0:?} already exists")]
    Exists(String),
    /// Several machines have the name.
    #[error("the name {0:?} matches {count} machines: {ids}; rename all but one", count = .1.len(), ids = .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// The route does not exist.
    #[error("there is no route {0:?}")]
    NoSuchRoute(String),
    /// The table has a route for the destination.
    #[error("the route {id:?} to {machine:?} already has the destination {cidr}{gone}", id = .0.id, cidr = .0.spec.destination,
        machine = .0.spec.machine, gone = if .0.blackhole { "; its machine is deleted" } else { "" })]
    DestinationTaken(Arc<RouteRecord>),
    /// The pod CIDR overlaps with that of another machine.
    #[error("the pod CIDR {0} overlaps with {1} of the machine {2:?}")]
    PodCidrTaken(IpNet, IpNet, String),
    /// A rule of load balancers and addresses.
    #[error(transparent)]
    Rule(RuleError),
    /// The pool or the quota is exhausted.
    #[error("{0}")]
    Exhausted(String),
    /// An earlier change is in progress, for this long.
    #[error("an earlier change of this load balancer is still in progress")]
    Busy(Duration),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The snapshot cannot be read or written.
    #[error("the snapshot {0}: {1}")]
    Snapshot(PathBuf, String),
}

impl From<RuleError> for CloudError {
    fn from(error: RuleError) -> CloudError {
        match error {
            RuleError::Invalid(message) => CloudError::Invalid(message),
            RuleError::Exhausted(message) => CloudError::Exhausted(message),
            rule => CloudError::Rule(rule),
        }
    }
}

impl LocalCloud {
    /// Opens a cloud and restores its snapshot, if there is one. With a data plane or kernel routes, it must be called on a Tokio
    /// runtime, which then drives the sockets.
    pub fn open(options: CloudOptions) -> Result<LocalCloud, CloudError> {
        if options.page_size == 0 {
            return Err(CloudError::Invalid("the page size must be at least 1".to_owned()));
        }
        let world = options.snapshot.as_deref().map_or_else(|| Ok(World::default()), snapshot::load)?;
        let (faults, pending) = (Faults::new(options.seed), PendingChanges::new(options.balancers.work_time));
        let state = Mutex::new(State {
            world,
            pending,
            faults,
            latency: options.latency,
            calls: BTreeMap::new(),
            bytes: (0, 0),
        });
        let CloudOptions { snapshot, page_size, balancers, max_routes, token_file, .. } = options;
        let (max_routes, route_changes) = (max_routes.filter(|limit| *limit > 0), watch::Sender::default());
        let sockets = balancers.data_plane.then(open_sockets).transpose()?;
        let kernel = options.routes.kernel.then(open_kernel_routes).transpose()?;
        let shared = Shared {
            snapshot,
            page_size,
            pools: balancers.pools(),
            sockets,
            kernel,
            max_routes,
            route_changes,
            token_file,
            state,
        };
        let cloud = LocalCloud { shared: Arc::new(shared) };
        cloud.spawn_updates(cloud.all_balancer_ids());
        cloud.spawn_kernel_routes();
        Ok(cloud)
    }

    /// Creates a running machine.
    pub fn add(&self, machine: NewMachine) -> Result<Machine, CloudError> {
        self.edit_fleet(|fleet| fleet.add(machine))
    }

    /// Stops the machine with this ID.
    pub fn stop(&self, id: &str) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.set_state(id, MachineState::Stopped)).map(drop)
    }

    /// Starts the machine with this ID.
    pub fn start(&self, id: &str) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.set_state(id, MachineState::Running)).map(drop)
    }

    /// Deletes the machine with this ID. Its routes become blackholes.
    pub fn delete(&self, id: &str) -> Result<(), CloudError> {
        self.edit_machines(|world| {
            world.fleet.remove(id)?;
            world.routes.mark_blackholes(id);
            Ok(())
        })
    }

    /// Changes the properties of the machine with this ID, except the ID.
    pub fn change(&self, id: &str, change: impl FnOnce(&mut NewMachine)) -> Result<Machine, CloudError> {
        self.try_change(id, |spec| {
            let mut spec = spec.clone();
            change(&mut spec);
            Ok(spec)
        })
    }

    /// As [`change`](LocalCloud::change), with a change that may fail.
    pub(crate) fn try_change(
        &self,
        id: &str,
        change: impl FnOnce(&NewMachine) -> Result<NewMachine, CloudError>,
    ) -> Result<Machine, CloudError> {
        self.edit_fleet(|fleet| fleet.change(id, change))
    }

    /// Adds a pod CIDR to a machine. User call.
    pub(crate) fn assign(&self, machine: &Key, cidr: IpNet) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.assign(machine, cidr))
    }

    /// Adds a tag to a machine or removes it. User call.
    pub(crate) fn tag(&self, machine: &Key, tag: &str, present: bool) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.tag(machine, tag, present))
    }

    /// Returns the machine with this ID.
    pub fn machine(&self, id: &str) -> Result<Machine, CloudError> {
        self.state().world.fleet.get(id).map(|machine| Machine::clone(machine))
    }

    /// Returns all machines, by ID.
    pub fn machines(&self) -> Vec<Machine> {
        self.state().world.fleet.iter().map(|machine| Machine::clone(machine)).collect()
    }

    /// Returns all machines, by ID, without copying them: for frequent callers.
    pub fn fleet(&self) -> Vec<Arc<Machine>> {
        self.state().world.fleet.iter().cloned().collect()
    }

    /// Maximum number of machines per page of a list and per lookup.
    pub fn page_size(&self) -> usize {
        self.shared.page_size
    }

    /// Whether the cloud has kernel routes.
    pub(crate) fn has_kernel_routes(&self) -> bool {
        self.shared.kernel.is_some()
    }

    /// File with the tokens of users.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.shared.token_file.as_deref()
    }

    /// Injects a fault, in addition to those in force. Returns its number, for [`repair`](LocalCloud::repair).
    pub fn inject(&self, fault: FaultSpec) -> u64 {
        let state = &mut *self.state();
        state.faults.inject(fault, &state.world)
    }

    /// Removes a fault; `false` if it is no longer in force.
    pub fn repair(&self, number: u64) -> bool {
        self.state().faults.repair(number)
    }

    /// Removes all faults.
    pub fn repair_all(&self) {
        self.state().faults.repair_all();
    }

    /// Sets the latency of every user call.
    pub fn set_latency(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// Number of user calls by kind (`find`, `list`, `create-balancer`, `create-route`, …), including failed ones.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.state().calls.clone()
    }

    /// Bytes of all requests and of all responses, without headers.
    pub fn bytes(&self) -> (u64, u64) {
        self.state().bytes
    }

    /// Adds the sizes of a request and its response.
    pub(crate) fn count_bytes(&self, request: usize, response: usize) {
        let bytes = &mut self.state().bytes;
        *bytes = (bytes.0 + request as u64, bytes.1 + response as u64);
    }

    /// Resets the counters of calls and bytes.
    pub fn reset_calls(&self) {
        let state = &mut *self.state();
        state.calls.clear();
        state.bytes = (0, 0);
    }

    /// Returns the faults in force.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        self.injected().into_iter().map(|fault| (fault.number, fault.spec.fault)).collect()
    }

    /// Returns the faults in force, with their state.
    pub(crate) fn injected(&self) -> Vec<Injected> {
        self.state().faults.iter().cloned().collect()
    }

    /// Latency of every user call.
    pub(crate) fn latency(&self) -> Duration {
        self.state().latency
    }

    /// Starts a user call: counts it and returns the effect of the faults on it.
    pub(crate) fn begin(&self, call: &str) -> FaultEffect {
        let state = &mut *self.state();
        // Runs on every call, so it allocates only for a new kind.
        match state.calls.get_mut(call) {
            Some(count) => *count += 1,
            None => drop(state.calls.insert(call.to_owned(), 1)),
        }
        let mut effect = state.faults.apply(call);
        effect.delay = effect.delay.saturating_add(state.latency);
        effect
    }

    /// Reads the current resources.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        read(&self.state().world)
    }

    /// Reads past resources, or the current ones.
    pub(crate) fn view<T>(&self, past: Option<&World>, read: impl FnOnce(&World) -> T) -> T {
        match past {
            Some(past) => read(past),
            None => self.read(read),
        }
    }

    fn edit_fleet<T>(&self, edit: impl FnOnce(&mut Fleet) -> Result<T, CloudError>) -> Result<T, CloudError> {
        self.edit_machines(|world| edit(&mut world.fleet))
    }

    fn edit_machines<T>(&self, edit: impl FnOnce(&mut World) -> Result<T, CloudError>) -> Result<T, CloudError> {
        let result = self.edit(&mut self.state(), edit)?;
        self.notify_route_change();
        if self.shared.sockets.is_some() {
            self.spawn_updates(self.read(|world| world.balancers.with_machine_targets()));
        }
        Ok(result)
    }

    /// Changes the resources and writes the snapshot, or neither.
    pub(crate) fn edit<T>(
        &self,
        state: &mut State,
        edit: impl FnOnce(&mut World) -> Result<T, CloudError>,
    ) -> Result<T, CloudError> {
        let Some(path) = &self.shared.snapshot else { return edit(&mut state.world) };
        let mut changed = state.world.clone();
        let outcome = edit(&mut changed)?;
        snapshot::save(path, &changed)?;
        state.world = changed;
        Ok(outcome)
    }

    /// Locks the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Shared {
    /// Locks the state. No change is applied partially, so a poisoned lock is still consistent.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
