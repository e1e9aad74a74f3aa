//! The service-lb-controller (SVC-1 to SVC-28): a load balancer for every Service that wants one, and none for any other.
//!
//! # Flow
//!
//! ```text
//!  events.rs   Service and Node events, refresh, configuration ──► work queue ──► workers (here)
//!                                                                     ▲              │ one key
//!                                                             requeue │              ▼
//!  sync.rs     ensure, clean up, delete orphans ──────────────────────┴────────── sync(key)
//!  observe.rs    │ current Service, targets, state of the cloud                      │ ensure:
//!  plan.rs       │ desired state ──► Plan, empty if nothing differs                  │   finalizer, if missing
//!  apply.rs      │ steps of the plan in the cloud, changes of the Service            │   observe ──► plan ──► apply
//!  report.rs     └ Events, condition, metrics, log                                   │   status and condition, in one patch
//!  unmanaged.rs  Services whose load balancer is left alone                          │
//!  console.rs    contribution to the console, with history.rs: the last plan and observation
//!  error.rs    why a sync failed, and when it is retried                             │ clean up:
//!  state.rs    what is kept of a Service between two syncs                           │   observe ──► plan ──► apply
//!                                                                                    ▼   status and finalizer, in one patch
//! ```
//!
//! A forecast (`crate::forecast`) makes the same decisions by the functions in `plan`, and applies nothing. Decisions that need
//! neither a cloud nor a clock are in `bowline_core::service`.
//!
//! # State
//!
//! `state::ServiceStates` maps each Service key to one `ServiceState`: the load balancer that may exist, load balancers of
//! deleted Services of the name, the open change by the user, the last targets, the unfinished plan with its locks, annotations to
//! write, own writes that the watch does not show yet, reports that were made, and the resource that the Service waits for. Three
//! things are not in it, because no Service owns them:
//!
//! * `observe::TargetSets`, by selection of Nodes: all Services with the same targets share one set.
//! * `events::NodeDebounce`, by Node: changes that no load balancer was updated for yet, and drain periods.
//! * The gauge of waiting Services (`crate::backlog`), by key: Prometheus collects it at any time.
//!
//! # Locking
//!
//! `ServiceStates` has one mutex, which no code holds across an `await` or while it emits an Event. The queue never syncs a key
//! twice at a time, so that between two accesses only event handlers change the state of the key. Load balancers that share a
//! resource in the cloud (a plan names those as its locks) are written one after the other; an unfinished plan keeps its locks.
//!
//! # Invariants
//!
//! * **Crash safety.** The finalizer is written before the first cloud call, and removed last. Every sync starts from the state of
//!   the cloud, so it may be interrupted anywhere and begin again; a new process starts with empty states.
//! * **Concurrency.** Syncs of different Services run in parallel, `--concurrent-service-syncs` of them writing at a time.
//! * **Fairness.** New and changed Services go before refreshes, and namespaces take turns.
//! * **No blocked worker.** A cloud that is at work ends the sync; a later one continues with the remaining steps.
//! * **Debounce.** Nodes that join or leave lead to one update of every load balancer, shortly after the last of them.
//! * **Idempotence.** An empty plan writes nothing, neither to the cloud nor to the API server.

mod apply;
mod console;
pub(crate) mod error;
mod events;
mod history;
pub(crate) mod observe;
pub(crate) mod plan;
mod report;
mod state;
mod sync;
mod unmanaged;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bowline_core::service::{NodeSet, TargetRules};
use bowline_core::{ClusterName, ServiceKey};
use bowline_kube::{Cluster, EventSink, EventSource, Permission};
use bowline_runtime::{Backoff, Component, Kind, PrioritySemaphore, Queue, Shutdown, Work};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::Context;
use crate::activity::Activity;
use crate::manager::ManagerError;
use crate::panics::propagate_panic;
use crate::spans;
use events::NodeDebounce;
use observe::TargetSets;
use report::Metrics;
use state::ServiceStates;

pub use bowline_cloud::{DefaultCloud, Routing, RoutingError};
pub(crate) use report::METRICS;

/// Canonical name, in flags and health checks.
pub const NAME: &str = "service-lb-controller";

/// Name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "service-controller";

/// RBAC rules that it needs beyond the watches that all controllers share.
pub const PERMISSIONS: &[Permission] = &[Cluster::READ_SERVICE, Cluster::CHANGE_SERVICE, EventSink::PERMISSION];

/// Name in Events.
const COMPONENT: &str = "service-controller";

/// Name of the work queue in metrics (WQ-5).
const QUEUE: &str = "service";

/// Back-off of a Service whose sync failed.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), max: Duration::from_secs(300) };

/// Maximum back-off after a failure that is unlikely to be transient: a permission or a quota that is missing, an invalid request.
/// A change of the Service or of the provider's configuration ends it.
const MAX_PERMANENT_BACKOFF: Duration = Duration::from_secs(30 * 60);

/// Interval of the check for another configuration of a cloud, which makes no call.
const REVISION_PERIOD: Duration = Duration::from_secs(5);

/// Number of concurrent syncs for each one that may write: while one writes, others read.
const SYNCS_PER_WRITE: usize = 4;

/// Maximum number of concurrent syncs, whatever the clouds claim.
const MAX_SYNCS: usize = 1_000;

/// Maximum number of Services that are taken from the queue together if many wait.
const BATCH: u32 = 16;

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`: recorded on every cloud resource of this cluster.
    pub cluster: ClusterName,
    /// `--concurrent-service-syncs`: number of load balancers that are written concurrently.
    pub concurrency: usize,
    /// `--load-balancer-nodes`: which Nodes become targets, and when.
    pub nodes: NodeSet,
    /// `--load-balancer-drain-period`: how long a Node that is leaving keeps its connections, where the cloud can drain;
    /// zero removes it with the next update for another reason, as the Go managers do.
    pub drain: Duration,
    /// `--load-balancer-node-gather-period`: debounce period for new Nodes while another one is still to be initialised or if load
    /// balancers were updated within it; otherwise new Nodes become targets 500 ms after the last, or after this, if shorter.
    pub gather: Duration,
    /// `--load-balancer-classes`: that cloud also serves Services of the class `bowline.dev/<cloud>`.
    pub classes: bool,
    /// `--load-balancer-default-cloud`: cloud of the Services without a class.
    pub default_cloud: DefaultCloud,
    /// `--load-balancer-refresh-period`: interval at which an unchanged load balancer is compared with the cloud; zero for
    /// never.
    pub refresh: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cluster: ClusterName::from("kubernetes"),
            concurrency: 16,
            nodes: NodeSet::Initialized,
            drain: Duration::from_secs(30),
            gather: Duration::from_secs(3),
            classes: true,
            default_cloud: DefaultCloud::First,
            refresh: Duration::from_secs(600),
        }
    }
}

impl Options {
    /// Rules for the targets of all load balancers.
    pub(crate) fn target_rules(&self) -> TargetRules {
        TargetRules { nodes: self.nodes, drain: !self.drain.is_zero(), max: None }
    }
}

/// The controller.
pub struct ServiceController {
    shared: Arc<Shared>,
}

/// Everything that all syncs share.
struct Shared {
    context: Context,
    options: Options,
    routing: Routing,
    rules: TargetRules,
    events: EventSource,
    queue: Queue<ServiceKey>,
    states: Arc<ServiceStates>,
    target_sets: TargetSets,
    node_changes: NodeDebounce,
    /// Limit on concurrent writes to clouds.
    write_permits: PrioritySemaphore,
    /// Label keys in the node selectors of all Services.
    selector_labels: RwLock<BTreeSet<String>>,
    /// A load balancer has no target, so that Nodes that join are not debounced for long.
    lacks_targets: AtomicBool,
    metrics: Metrics,
    activity: Activity,
}

/// Cause of a difference that a sync may find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// The user has created or changed the Service.
    UserChange,
    /// Nodes have joined or left.
    Nodes,
    /// The cloud differs from the desired state, which has not changed.
    Drift,
}

impl Trigger {
    fn as_str(self) -> &'static str {
        match self {
            Trigger::UserChange => "userChange",
            Trigger::Nodes => "nodes",
            Trigger::Drift => "drift",
        }
    }
}

impl ServiceController {
    /// Registers the event handlers; syncs begin with [`run`](ServiceController::run). `None` if no cloud has load balancers
    /// (SVC-1).
    pub fn new(context: Context, options: Options) -> Result<Option<ServiceController>, ManagerError> {
        let routing = Routing::new(&context.clouds, &options.default_cloud, options.classes)?;
        if routing.is_empty() {
            tracing::warn!(controller = NAME, "no cloud has load balancers: the controller does not run");
            return Ok(None);
        }
        let queue = Queue::new(QUEUE, BACKOFF, &context.queues).with_flows(namespace_of);
        let states = Arc::new(ServiceStates::default());
        let components: [(Kind, String, Arc<dyn Component>); 2] = [
            (Kind::Queue, QUEUE.to_owned(), Arc::new(queue.clone())),
            (Kind::Controller, "paused".to_owned(), states.clone()),
        ];
        let shared = Arc::new(Shared {
            activity: Activity::new(&context, NAME, "service", components),
            rules: options.target_rules(),
            events: context.events.source(COMPONENT),
            queue,
            states,
            target_sets: TargetSets::default(),
            node_changes: NodeDebounce::new(options.gather, options.drain),
            write_permits: PrioritySemaphore::new(options.concurrency),
            selector_labels: RwLock::default(),
            lacks_targets: AtomicBool::new(false),
            metrics: Metrics::register(&context.metrics)?,
            routing,
            context,
            options,
        });
        shared.watch();
        shared.context.console.add(&shared, Shared::fill);
        Ok(Some(ServiceController { shared }))
    }

    /// Runs until shutdown is requested, and then finishes the current step of every sync.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.shared;
        let _running = shared.activity.runs();
        let synced = async { tokio::join!(shared.context.nodes.synced(), shared.context.services.synced()) };
        if shutdown.or(synced).await.is_none() {
            return;
        }
        let follow = shutdown.or(shared.follow_nodes());
        let refresh = shutdown.or(shared.refresh());
        let revise = shutdown.or(shared.follow_configuration());
        tokio::join!(run_workers(&shared, &shutdown), follow, refresh, revise);
    }
}

/// Syncs the queued Services until shutdown is requested, and then waits for the syncs under way.
async fn run_workers(shared: &Arc<Shared>, shutdown: &Shutdown) {
    let mut syncs = JoinSet::new();
    let permits = Arc::new(Semaphore::new(shared.concurrent_syncs()));
    while let Some(batch) = shutdown.or(next_batch(shared, &permits)).await {
        for (work, permit) in batch {
            let (shared, shutdown) = (shared.clone(), shutdown.clone());
            let span = spans::sync(NAME, work.key());
            syncs.spawn(async move {
                shared.sync(&work, &shutdown).instrument(span).await;
                drop(permit);
            });
        }
        while let Some(ended) = syncs.try_join_next() {
            propagate_panic(ended);
        }
    }
    shared.queue.shut_down();
    while let Some(ended) = syncs.join_next().await {
        propagate_panic(ended);
    }
}

impl Shared {
    /// Number of concurrent syncs. Most of them only read, so there are at least as many as a cloud observes in one batch: a refresh
    /// of all Services then takes no more calls than the cloud needs to show all load balancers.
    fn concurrent_syncs(&self) -> usize {
        let clouds = self.context.clouds.iter();
        let limits = clouds.filter_map(|cloud| cloud.layers().capabilities().load_balancers.as_ref());
        let batch = limits.map(|limits| limits.batch_observe).max().unwrap_or_default();
        let for_writes = self.options.concurrency.saturating_mul(SYNCS_PER_WRITE).max(2 * BATCH as usize);
        for_writes.max(batch.min(MAX_SYNCS)).min(Semaphore::MAX_PERMITS)
    }
}

/// Takes the next Services from the queue, each with a permit for its sync.
async fn next_batch(
    shared: &Shared,
    permits: &Arc<Semaphore>,
) -> Vec<(Work<ServiceKey>, Option<OwnedSemaphorePermit>)> {
    let size = if shared.queue.len() < BATCH as usize { 1 } else { BATCH };
    // The semaphore is never closed.
    let mut free = permits.clone().acquire_many_owned(size).await.ok();
    let batch = shared.queue.next_batch(size as usize).await;
    batch.into_iter().map(|work| (work, free.as_mut().and_then(|free| free.split(1)))).collect()
}

/// Flow of a Service in the queue: namespaces take turns.
fn namespace_of(service: &ServiceKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    service.namespace.hash(&mut hasher);
    hasher.finish()
}
