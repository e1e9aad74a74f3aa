//! The cloud itself: machines, balancers, routes, and a count of every call.
//!
//! ```text
//!  the owner's hands ──► World { Fleet, Balancers, RouteTables } ──► snapshot file
//!                          ▲
//!  api (find, list, …) ────┘  counted, delayed, and wrong if a fault says so
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{Address, LoadBalancerKey, Protocol};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::api::Key;
use crate::balancers::{BalancerOptions, Balancers, Whose};
use crate::data_plane::Sockets;
use crate::faults::{Fault, FaultSpec, Faults, Injected, Mishap};
use crate::fleet::Fleet;
use crate::kernel::{Forwarding, RouteOptions};
use crate::routes::{RouteRecord, RouteTables};
use crate::snapshot;
use crate::workload::Workload;

/// How a cloud is set up. The default is in memory, instant, and shows 100 machines at a time.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Where its state survives a restart; `None` keeps it in memory only.
    pub snapshot: Option<PathBuf>,
    /// What every call takes.
    pub latency: Duration,
    /// How many machines one page of a listing holds, and how many one lookup may name.
    pub page_size: usize,
    /// What makes chance repeatable.
    pub seed: u64,
    /// How load is balanced.
    pub balancers: BalancerOptions,
    /// How many routes one table may have; 0 and `None` set no limit.
    pub max_routes: Option<usize>,
    /// How packets are led.
    pub routes: RouteOptions,
    /// Where the tokens of its users are, one in a line; `None` takes calls from anybody.
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

/// A machine to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewMachine {
    /// Its name; Nodes without provider ID are looked for by it.
    pub name: String,
    /// Its key; made up if empty.
    pub id: String,
    /// The kind of machine.
    pub instance_type: String,
    /// The failure domain.
    pub zone: String,
    /// The region.
    pub region: String,
    /// In the order that Nodes should have them.
    pub addresses: Vec<Address>,
    /// Further labels for the Node.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the Node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Tags, by which users mark what is theirs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// The pod ranges that the cloud itself leads to it. No two machines have addresses in common.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_ranges: Vec<IpNet>,
    /// Where its packets go: a name under `/run/netns`, or the path of a network namespace. It matters with
    /// [`RouteOptions::kernel`](crate::RouteOptions::kernel) only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_namespace: Option<String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// All that it was made with; the ID is never empty.
    #[serde(flatten)]
    pub spec: NewMachine,
    /// Whether it runs.
    pub state: MachineState,
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// It runs.
    Running,
    /// It is stopped.
    Stopped,
}

/// A cloud. Clones are the same cloud. Methods here are the owner's hands: they are instant, never fail on purpose and are
/// not counted. Calls through the provider or over HTTP are slow, fail and are counted as the cloud is told to.
#[derive(Clone)]
pub struct LocalCloud {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    snapshot: Option<PathBuf>,
    page_size: usize,
    pub(crate) balancing: BalancerOptions,
    pub(crate) sockets: Option<Sockets>,
    pub(crate) kernel: Option<Forwarding>,
    pub(crate) max_routes: Option<usize>,
    token_file: Option<PathBuf>,
    pub(crate) route_changes: watch::Sender<u64>,
    now: Mutex<Now>,
}

/// All that changes.
pub(crate) struct Now {
    pub(crate) world: World,
    pub(crate) work: Workload,
    faults: Faults,
    latency: Duration,
    calls: BTreeMap<String, u64>,
    /// Bytes of requests and of answers.
    bytes: (u64, u64),
}

/// All that the cloud has at one moment, and that survives a restart.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) balancers: Balancers,
    pub(crate) routes: RouteTables,
}

/// Why the cloud cannot do that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// There is no such machine.
    #[error("there is no machine {0:?}")]
    NoSuchMachine(String),
    /// There is one with that ID already.
    #[error("there is a machine with the ID {0:?} already")]
    Exists(String),
    /// The name fits more than one machine.
    #[error("the name {0:?} fits {count} machines: {ids}; rename all but one", count = .1.len(), ids = .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// There is no such route.
    #[error("there is no route {0:?}")]
    NoSuchRoute(String),
    /// The table has the range already.
    #[error("the route {id:?} leads {range} to {machine:?} already{gone}", id = .0.id, range = .0.spec.destination,
        machine = .0.spec.machine, gone = if .0.blackhole { ", which is gone" } else { "" })]
    DestinationTaken(Arc<RouteRecord>),
    /// A machine has addresses of the pod range already.
    #[error("the pod range {0} overlaps with {1}, which the machine {2:?} has")]
    PodRangeTaken(IpNet, IpNet, String),
    /// There is no such balancer.
    #[error("there is no balancer {0:?}")]
    NoSuchBalancer(String),
    /// There is no such address.
    #[error("there is no address {0:?}")]
    NoSuchAddress(String),
    /// A balancer of that name exists.
    #[error("there is a balancer {0:?} already, which belongs to {owner}", owner = Whose(.1.as_ref()))]
    NameTaken(String, Option<LoadBalancerKey>),
    /// A balancer belongs to somebody else.
    #[error("the balancer {0:?} belongs to {owner}", owner = Whose(.1.as_ref()))]
    Foreign(String, Option<LoadBalancerKey>),
    /// An address belongs to somebody else.
    #[error("the address {0} belongs to {owner}", owner = Whose(.1.as_ref()))]
    AddressTaken(IpAddr, Option<LoadBalancerKey>),
    /// Another balancer listens there.
    #[error("the port {2}/{1} of {0} is taken by {owner}", owner = Whose(.3.as_ref()))]
    PortTaken(IpAddr, Protocol, u16, Option<LoadBalancerKey>),
    /// A balancer still has the address.
    #[error("the address {0} is in use by the balancer {1:?}; delete that first")]
    InUse(String, String),
    /// Things are not as the request takes them to be.
    #[error("{0}")]
    Changed(String),
    /// There are no addresses left.
    #[error("{0}")]
    Exhausted(String),
    /// The cloud is at work on an earlier change for this long.
    #[error("the cloud is still at work on an earlier change of this balancer")]
    Busy(Duration),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The snapshot cannot be read or written.
    #[error("the snapshot {0}: {1}")]
    Snapshot(PathBuf, String),
}

impl LocalCloud {
    /// A cloud with what its snapshot holds, if it has one. With a data plane or routes of the kernel this must be called on
    /// a Tokio runtime, on which the sockets then are.
    pub fn open(options: CloudOptions) -> Result<LocalCloud, CloudError> {
        if options.page_size == 0 {
            return Err(CloudError::Invalid("a page must hold at least one machine".to_owned()));
        }
        let world = options.snapshot.as_deref().map_or_else(|| Ok(World::default()), snapshot::load)?;
        let (faults, work) = (Faults::new(options.seed), Workload::new(options.balancers.work_time));
        let now =
            Mutex::new(Now { world, work, faults, latency: options.latency, calls: BTreeMap::new(), bytes: (0, 0) });
        let CloudOptions { snapshot, page_size, balancers: balancing, max_routes, token_file, .. } = options;
        let (max_routes, route_changes) = (max_routes.filter(|most| *most > 0), watch::Sender::default());
        let sockets = balancing.data_plane.then(Sockets::open).transpose()?;
        let kernel = options.routes.kernel.then(Forwarding::open).transpose()?;
        let shared =
            Shared { snapshot, page_size, balancing, sockets, kernel, max_routes, route_changes, token_file, now };
        let cloud = LocalCloud { shared: Arc::new(shared) };
        cloud.serve_soon(cloud.all_balancer_ids());
        cloud.keep_forwarding();
        Ok(cloud)
    }

    /// Makes a machine, running.
    pub fn add(&self, machine: NewMachine) -> Result<Machine, CloudError> {
        self.edit_fleet(|fleet| fleet.add(machine))
    }

    /// Stops the machine of this ID.
    pub fn stop(&self, id: &str) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.set_state(id, MachineState::Stopped)).map(drop)
    }

    /// Starts the machine of this ID.
    pub fn start(&self, id: &str) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.set_state(id, MachineState::Running)).map(drop)
    }

    /// Removes the machine of this ID. Routes that led to it lead nowhere then.
    pub fn delete(&self, id: &str) -> Result<(), CloudError> {
        self.edit_machines(|world| {
            world.fleet.remove(id)?;
            world.routes.lose(id);
            Ok(())
        })
    }

    /// Replaces what the machine of this ID was made with; its ID stays.
    pub fn change(&self, id: &str, change: impl FnOnce(&mut NewMachine)) -> Result<Machine, CloudError> {
        self.try_change(id, |spec| {
            let mut spec = spec.clone();
            change(&mut spec);
            Ok(spec)
        })
    }

    /// As [`change`](LocalCloud::change), for a change that may turn out impossible.
    pub(crate) fn try_change(
        &self,
        id: &str,
        change: impl FnOnce(&NewMachine) -> Result<NewMachine, CloudError>,
    ) -> Result<Machine, CloudError> {
        self.edit_fleet(|fleet| fleet.change(id, change))
    }

    /// Leads a pod range to a machine, beside those that it has, as the cloud's users order it.
    pub(crate) fn assign(&self, machine: &Key, range: IpNet) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.assign(machine, range))
    }

    /// Puts a tag on a machine or takes it off, as the cloud's users order it.
    pub(crate) fn tag(&self, machine: &Key, tag: &str, present: bool) -> Result<(), CloudError> {
        self.edit_fleet(|fleet| fleet.tag(machine, tag, present))
    }

    /// The machine of this ID.
    pub fn machine(&self, id: &str) -> Result<Machine, CloudError> {
        self.now().world.fleet.get(id).map(|machine| Machine::clone(machine))
    }

    /// All machines, by ID.
    pub fn machines(&self) -> Vec<Machine> {
        self.now().world.fleet.iter().map(|machine| Machine::clone(machine)).collect()
    }

    /// All machines, by ID, without a copy of any: for those who look often.
    pub fn fleet(&self) -> Vec<Arc<Machine>> {
        self.now().world.fleet.iter().cloned().collect()
    }

    /// How many machines one page of a listing holds, and how many one lookup may name.
    pub fn page_size(&self) -> usize {
        self.shared.page_size
    }

    /// Whether its routes are routes of the kernel.
    pub(crate) fn has_kernel_routes(&self) -> bool {
        self.shared.kernel.is_some()
    }

    /// Where the tokens of its users are.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.shared.token_file.as_deref()
    }

    /// From now on, goes wrong like this, beside what it does already; the number takes it back.
    pub fn inject(&self, fault: FaultSpec) -> u64 {
        let now = &mut *self.now();
        now.faults.inject(fault, &now.world)
    }

    /// Takes a fault back; `false` if it is not in force any more.
    pub fn repair(&self, number: u64) -> bool {
        self.now().faults.repair(number)
    }

    /// Takes all faults back.
    pub fn repair_all(&self) {
        self.now().faults.repair_all();
    }

    /// How long every call takes from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.now().latency = latency;
    }

    /// How often each kind of call was made (`find`, `list`, `create-balancer`, `create-route`, …), failed ones included.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.now().calls.clone()
    }

    /// Bytes of all requests and of all answers, without their headers.
    pub fn bytes(&self) -> (u64, u64) {
        self.now().bytes
    }

    /// Adds the sizes of a request and its answer.
    pub(crate) fn count_bytes(&self, request: usize, answer: usize) {
        let bytes = &mut self.now().bytes;
        *bytes = (bytes.0 + request as u64, bytes.1 + answer as u64);
    }

    /// Counts calls and bytes from zero again.
    pub fn reset_calls(&self) {
        let now = &mut *self.now();
        now.calls.clear();
        now.bytes = (0, 0);
    }

    /// The faults in force.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        self.injected().into_iter().map(|fault| (fault.number, fault.spec.fault)).collect()
    }

    /// The faults in force, with all that is known of them.
    pub(crate) fn injected(&self) -> Vec<Injected> {
        self.now().faults.iter().cloned().collect()
    }

    /// What every call takes.
    pub(crate) fn latency(&self) -> Duration {
        self.now().latency
    }

    /// A call of this kind begins: it is counted, and what becomes of it is settled.
    pub(crate) fn begin(&self, call: &str) -> Mishap {
        let now = &mut *self.now();
        // No allocation for a kind that was seen before: this runs on every call.
        match now.calls.get_mut(call) {
            Some(count) => *count += 1,
            None => drop(now.calls.insert(call.to_owned(), 1)),
        }
        let mut mishap = now.faults.strike(call);
        mishap.delay = mishap.delay.saturating_add(now.latency);
        mishap
    }

    /// Reads what there is now.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        read(&self.now().world)
    }

    /// Reads what there was, or what there is now.
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
        let outcome = self.edit(&mut self.now(), edit)?;
        self.tell_of_routes();
        if self.shared.sockets.is_some() {
            self.serve_soon(self.read(|world| world.balancers.of_machines()));
        }
        Ok(outcome)
    }

    /// Changes what there is and saves it; either both or neither.
    pub(crate) fn edit<T>(
        &self,
        now: &mut Now,
        edit: impl FnOnce(&mut World) -> Result<T, CloudError>,
    ) -> Result<T, CloudError> {
        let Some(path) = &self.shared.snapshot else { return edit(&mut now.world) };
        let mut changed = now.world.clone();
        let outcome = edit(&mut changed)?;
        snapshot::save(path, &changed)?;
        now.world = changed;
        Ok(outcome)
    }

    /// Nothing here leaves the state half changed, so a panic elsewhere under the lock spoils nothing.
    pub(crate) fn now(&self) -> MutexGuard<'_, Now> {
        self.shared.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
