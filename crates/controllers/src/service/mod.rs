//! The service-lb-controller (SVC-1 to SVC-28): a balancer for every Service that wants one, and none for any other.
//!
//! The unit of work is the balancer. One pass over one of them:
//!
//! ```text
//!  Service, Nodes ──decide──► wish ──► finalizer, if missing ──► observe ──► plan ──► apply, step by step ──► status
//!                               │                                              └─ empty: nothing is written
//!                               └─ nothing is wanted: observe ──► plan ──► apply ──► status and finalizer, in one patch
//! ```
//!
//! * **Crash-safe.** The finalizer is there before the cloud is first asked, and goes last. Every pass starts from what the
//!   cloud has, so it may be cut off anywhere and begin again.
//! * **In parallel.** Passes over different balancers run side by side, `--concurrent-service-syncs` of them writing at once;
//!   two that share a load balancer write one after the other: the plan names the locks that it needs.
//! * **In turn.** New and changed Services go before refreshes, and namespaces take turns.
//! * **Never standing still.** A cloud that is at work ends the pass; the rest of the plan waits without a worker or a place.
//! * **Gathered.** Nodes that come and go make one refresh of every balancer, a moment after the last of them.

mod carry;
pub(crate) mod condition;
mod crowd;
pub(crate) mod decide;
mod hear;
mod job;
mod memory;
mod metrics;
mod nodes;
mod pass;
mod routing;
mod slots;
mod statuses;
pub(crate) mod target_sets;
mod tell;
pub(crate) mod trouble;
mod waiting;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use bowline_cloud::ErrorKind;
use bowline_core::service::{NodeSet, TargetRules};
use bowline_core::{ClusterName, Service, ServiceKey};
use bowline_kube::{Cluster, EventSink, EventSource, Permission};
use bowline_runtime::{Backoff, Kind, Part, Priority, Queue, Shutdown, Work};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::Context;
use crate::activity::Activity;
use crate::complaints::Complaints;
use crate::manager::ManagerError;
use crate::panics::pass_on_panic;
use crate::pause::Paused;
use crate::spans;
use crowd::Crowd;
use memory::Memory;
use metrics::Metrics;
use nodes::NodeSync;
use pass::{Done, Ended, Pass};
use slots::Slots;
use statuses::Statuses;
use target_sets::TargetSets;
use trouble::{Next, Trouble};
use waiting::{For, Waiting};

pub(crate) use metrics::METRICS;
pub use routing::{DefaultCloud, Routing, RoutingError};

/// The canonical name, in flags and health checks.
pub const NAME: &str = "service-lb-controller";

/// The name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "service-controller";

/// What it asks of the API server beyond the watches that all share.
pub const PERMISSIONS: &[Permission] = &[Cluster::READ_SERVICE, Cluster::CHANGE_SERVICE, EventSink::PERMISSION];

/// The name in Events.
const COMPONENT: &str = "service-controller";

/// The queue's name in metrics (WQ-5).
const QUEUE: &str = "service";

/// How long a Service that failed waits for its next try.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), max: Duration::from_secs(300) };

/// Longest wait after a failure that is unlikely to pass by itself: a permission or a quota that is missing, an invalid request. A
/// change of the Service or of the provider's configuration ends it.
const PERMANENT: Duration = Duration::from_secs(30 * 60);

/// How often the providers are asked whether they have another configuration; that makes no call.
const REVISION_PERIOD: Duration = Duration::from_secs(5);

/// So many passes for each that may write are under way: while one writes, others read.
const AHEAD: usize = 4;

/// Where many Services wait, so many begin together, because what they read is then read together.
const LOT: u32 = 16;

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`: what is made in a cloud is marked with it.
    pub cluster: ClusterName,
    /// `--concurrent-service-syncs`: balancers that are written at once.
    pub concurrency: usize,
    /// `--load-balancer-nodes`: which Nodes become targets, and when.
    pub nodes: NodeSet,
    /// `--load-balancer-drain-period`: how long a Node that is leaving keeps its connections, where the cloud can drain;
    /// zero takes it out when something else calls for an update, as the Go managers do.
    pub drain: Duration,
    /// `--load-balancer-node-gather-period`: debounce period for new Nodes while another one is still to be initialised or if load
    /// balancers were updated within it; otherwise new Nodes become targets 500 ms after the last, or after this, if shorter.
    pub gather: Duration,
    /// `--load-balancer-classes`: Services of the class `bowline.dev/<cloud>` are taken, too, by that cloud.
    pub classes: bool,
    /// `--load-balancer-default-cloud`: who takes Services without a class.
    pub default_cloud: DefaultCloud,
    /// `--load-balancer-refresh-period`: how often a balancer that nothing happens to is compared with the cloud; zero
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
    /// How Nodes become targets and leave.
    pub(crate) fn target_rules(&self) -> TargetRules {
        TargetRules { nodes: self.nodes, drain: !self.drain.is_zero(), max: None }
    }
}

/// The controller.
pub struct ServiceController {
    shared: Arc<Shared>,
}

/// What all passes work with.
struct Shared {
    context: Context,
    options: Options,
    routing: Routing,
    rules: TargetRules,
    events: EventSource,
    queue: Queue<ServiceKey>,
    /// Places for those who write to a cloud.
    slots: Slots,
    /// Services that an operator has paused.
    paused: Arc<Paused<ServiceKey>>,
    memory: Memory,
    statuses: Statuses,
    crowd: Crowd,
    target_sets: TargetSets,
    waiting: Waiting,
    metrics: Metrics,
    /// What was said of a Service that rests.
    complaints: Complaints<ServiceKey>,
    /// What was said of annotations that mean nothing.
    remarks: Complaints<ServiceKey>,
    /// Nodes that were reported as left out of a load balancer.
    left_out: Complaints<ServiceKey>,
    /// Of whose balancer it was said that it has no targets.
    targetless: Complaints<ServiceKey>,
    /// What was said of balancers that are made and do not work.
    ailing: Complaints<ServiceKey>,
    /// The update of all balancers that is under way because of Nodes.
    node_sync: Mutex<Option<NodeSync>>,
    /// The labels of Nodes that Services choose targets by.
    selecting: RwLock<BTreeSet<String>>,
    /// A balancer was seen without any target.
    starving: AtomicBool,
    activity: Activity,
}

/// Why a pass finds something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The user has made or changed the Service.
    News,
    /// Nodes have come or gone.
    Nodes,
    /// The cloud differs from what was wanted before.
    Drift,
}

impl ServiceController {
    /// Listens to Services and Nodes from now on; works once it [runs](ServiceController::run). `None` if no cloud has
    /// balancers (SVC-1).
    pub fn new(context: Context, options: Options) -> Result<Option<ServiceController>, ManagerError> {
        let routing = Routing::new(&context.clouds, &options.default_cloud, options.classes)?;
        if routing.is_empty() {
            tracing::warn!(controller = NAME, "no cloud has load balancers: the controller does not run");
            return Ok(None);
        }
        let queue = Queue::new(QUEUE, BACKOFF, &context.queues).with_flows(namespace_of);
        let paused = Arc::new(Paused::default());
        let parts: [(Kind, String, Arc<dyn Part>); 2] = [
            (Kind::Queue, QUEUE.to_owned(), Arc::new(queue.clone())),
            (Kind::Controller, "paused".to_owned(), paused.clone()),
        ];
        let shared = Arc::new(Shared {
            activity: Activity::new(&context, NAME, "service", parts),
            rules: options.target_rules(),
            events: context.events.source(COMPONENT),
            queue,
            slots: Slots::new(options.concurrency),
            paused,
            memory: Memory::default(),
            statuses: Statuses::default(),
            target_sets: TargetSets::default(),
            crowd: Crowd::new(options.gather, options.drain),
            waiting: Waiting::default(),
            metrics: Metrics::register(&context.metrics)?,
            complaints: Complaints::default(),
            remarks: Complaints::default(),
            left_out: Complaints::default(),
            targetless: Complaints::default(),
            ailing: Complaints::default(),
            node_sync: Mutex::default(),
            selecting: RwLock::default(),
            starving: AtomicBool::new(false),
            routing,
            context,
            options,
        });
        shared.listen();
        Ok(Some(ServiceController { shared }))
    }

    /// Runs until shutdown is requested, and then finishes the step in hand of every pass.
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
        tokio::join!(work(&shared, &shutdown), follow, refresh, revise);
    }
}

/// Works until shutdown is requested, and then finishes what is in hand.
async fn work(shared: &Arc<Shared>, shutdown: &Shutdown) {
    let mut passes = JoinSet::new();
    let places = shared.options.concurrency.saturating_mul(AHEAD).clamp(2 * LOT as usize, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(places));
    while let Some(lot) = shutdown.or(next_lot(shared, &places)).await {
        for (work, place) in lot {
            let (shared, shutdown) = (shared.clone(), shutdown.clone());
            let span = spans::sync(NAME, work.key());
            passes.spawn(async move {
                shared.sync(&work, &shutdown).instrument(span).await;
                drop(place);
            });
        }
        while let Some(ended) = passes.try_join_next() {
            pass_on_panic(ended);
        }
    }
    shared.queue.shut_down();
    while let Some(ended) = passes.join_next().await {
        pass_on_panic(ended);
    }
}

/// The Services whose turn it is, each with a place for its pass.
async fn next_lot(shared: &Shared, places: &Arc<Semaphore>) -> Vec<(Work<ServiceKey>, Option<OwnedSemaphorePermit>)> {
    let size = if shared.queue.len() < LOT as usize { 1 } else { LOT };
    // Nobody closes it.
    let mut free = places.clone().acquire_many_owned(size).await.ok();
    let lot = shared.queue.next_batch(size as usize).await;
    lot.into_iter().map(|work| (work, free.as_mut().and_then(|free| free.split(1)))).collect()
}

/// The rest of the plan is kept for the next sync.
fn continues(outcome: &Ended) -> bool {
    match outcome {
        Ok(done) => *done == Done::Waiting,
        Err((_, trouble)) => trouble.is_calm(),
    }
}

/// Namespaces take turns.
fn namespace_of(service: &ServiceKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    service.namespace.hash(&mut hasher);
    hasher.finish()
}

// ---- passes

impl Shared {
    /// Compares all balancers with the cloud, now and then. Those that rest are among them: what is in their way may be in
    /// the cloud, of which nobody is told.
    async fn refresh(&self) {
        if self.options.refresh.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.options.refresh).await;
            // One in back-off has its own time.
            let keys = self.concerned().filter(|key| self.queue.failures(key) == 0);
            keys.for_each(|key| self.queue.add(key, Priority::Low));
        }
    }

    /// All Services that may need something, and those that are gone and have left something.
    fn concerned(&self) -> impl Iterator<Item = ServiceKey> {
        let services = self.context.services.all().into_iter().filter(|service| self.concerns(service));
        services.map(|service| service.key()).chain(self.memory.debtors())
    }

    /// Syncs all Services again when a provider has another configuration, those in back-off as well.
    async fn follow_configuration(&self) {
        let revisions = || self.context.clouds.iter().map(|cloud| cloud.layers().revision()).collect::<Vec<_>>();
        let mut known = revisions();
        loop {
            tokio::time::sleep(REVISION_PERIOD).await;
            let now = revisions();
            if std::mem::replace(&mut known, now.clone()) != now {
                for key in self.concerned() {
                    self.queue.forget(&key);
                    self.queue.add(key, Priority::Low);
                }
            }
        }
    }

    /// One pass, and what follows from how it ended (SVC-20).
    async fn sync(&self, work: &Work<ServiceKey>, shutdown: &Shutdown) {
        let key = work.key();
        let pass = Pass { shared: self, key, shutdown };
        let freed = self.waiting.freed();
        let outcome = pass.run().await;
        self.node_sync_goes_on(key);
        if !continues(&outcome) {
            // A plan that no later sync continues must not keep its locks.
            drop(self.memory.unfinished(key));
        }
        match outcome {
            Ok(Done::Waiting) => {
                self.passed("waiting");
                self.block(key, "InProgress");
            }
            Ok(done) => {
                self.metrics.waiting.remove(key);
                self.passed(if done == Done::DryRun { "dry_run" } else { "success" });
                self.complaints.forget(key);
                self.waiting.forget(key);
                self.queue.forget(key);
            }
            Err((service, trouble)) => {
                work.failed(&trouble);
                self.block(key, &trouble.reason());
                self.failed(&pass, service.as_ref(), &trouble).await;
                self.wait(key, &trouble, freed);
            }
        }
    }

    /// Counts the Service as waiting for this reason, as long as it is there.
    fn block(&self, key: &ServiceKey, reason: &str) {
        let service = self.context.services.get(&key.to_string());
        match service.as_ref().and_then(|service| self.routing.cloud(service)) {
            Some(cloud) => self.metrics.waiting.block(key.clone(), cloud.name(), reason),
            None => self.metrics.waiting.remove(key),
        }
    }

    /// How a pass ended.
    fn passed(&self, outcome: &'static str) {
        self.metrics.passed(outcome);
        spans::ended(outcome);
    }

    /// Keeps in mind that this Service waits for what another one may let go.
    fn wait(&self, key: &ServiceKey, trouble: &Trouble, freed: u64) {
        match For::of(trouble) {
            Some(what) if self.waiting.add(key, what, freed) => {}
            Some(_) => self.queue.add(key.clone(), Priority::Low),
            None => self.waiting.forget(key),
        }
    }

    /// Something in a cloud is free again: those who wait for it try.
    fn let_go(&self) {
        self.waiting.let_go().into_iter().for_each(|key| self.queue.add(key, Priority::Low));
    }

    async fn failed(&self, pass: &Pass<'_>, service: Option<&Arc<Service>>, trouble: &Trouble) {
        let key = pass.key;
        if trouble.is_kind(ErrorKind::Cancelled) {
            self.passed("cancelled");
            if let Some(service) = service {
                pass.write_notes(service).await;
            }
            return;
        }
        match trouble {
            trouble if trouble.is_calm() => self.passed("in_progress"),
            trouble if trouble.is_gone() => self.passed("gone"),
            trouble => {
                self.metrics.passed("failure");
                spans::failed("failure", trouble);
            }
        }
        let delay = match trouble.next() {
            Next::Backoff if trouble.is_permanent() => Some(self.queue.retry_up_to(key.clone(), PERMANENT)),
            Next::Backoff => Some(self.queue.retry(key.clone())),
            Next::After(delay) => {
                self.queue.add_after(key.clone(), delay, Priority::High);
                Some(delay)
            }
            Next::Rest => {
                self.queue.forget(key);
                None
            }
        };
        match service {
            Some(_) if trouble.is_gone() => tracing::info!(error = %trouble, "the Service is gone"),
            Some(service) => self.tell_failure(pass, service, trouble, delay).await,
            None => {}
        }
    }
}
