//! The node-route-controller (ROUTE-1 to ROUTE-14): one route for each pod CIDR of every Node, and no others.
//!
//! Each cloud with routes has a cache of its route table: one listing, updated by each of our own writes. The unit of work is the
//! Node:
//!
//! ```text
//!  Node added or changed ──► queue ──► observe: cached table ──► plan ──► apply, per destination: delete, then create
//!                              ▲                                            └──► report: NetworkUnavailable, if it changes
//!  Node deleted ──► orphans ───┤
//!  every refresh period: list, compare all Nodes, queue those that differ
//! ```
//!
//! * **One write for one change.** A new Node costs the creation of its routes, and no listing.
//! * **No trust in the cache after a failure.** A write that failed may have succeeded in the cloud; the retry for that Node uses a
//!   listing that began after the failure.
//! * **A brake on deletions.** Routes of deleted Nodes are deleted at once as long as they are few, see
//!   [`Brake`](bowline_core::routes::Brake).
//! * **Concurrency** up to the limit that the cloud declares, and independently for each cloud: one that does not respond blocks no
//!   other.

mod console;
mod fleet;
mod metrics;
mod orphans;
mod progress;
mod refresh;
mod state;
mod sync;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bowline_cloud::Cloud;
use bowline_core::routes::{NetworkStatus, Nodes, RouteContext, RouteTable};
use bowline_core::{ClusterName, Node, NodeName, Route};
use bowline_kube::{Change, Cluster, EventSink, EventSource, Permission, WriteError};
use bowline_runtime::{Backoff, Component, Kind, Priority, Shutdown, Work};
use futures::future::join_all;
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::Context;
use crate::activity::Activity;
use crate::panics::propagate_panic;
use crate::reports::Reports;
use crate::spans;
use metrics::{Metrics, Outcome, Trigger};
use state::CloudState;
use sync::{Requeue, SyncResult};

pub(crate) use fleet::Fleet;
pub(crate) use metrics::METRICS;

/// Canonical name, in flags and health checks.
pub const NAME: &str = "node-route-controller";

/// Name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "route-controller";

/// RBAC rules that it needs beyond the watches that all controllers share.
pub const PERMISSIONS: &[Permission] = &[Cluster::LIST_NODES, Cluster::SET_NETWORK, EventSink::PERMISSION];

/// Consequence of an unknown UID of the cluster, and the remedy.
const WITHOUT_UID: &str =
    "routes are marked with --cluster-name alone; fix: allow the manager to get the namespace kube-system";

/// Name in Events.
const COMPONENT: &str = "route_controller";

/// Name of the work queue in metrics (WQ-5).
const QUEUE: &str = "Routes";

/// Back-off of a Node whose sync failed.
// upstream: no retry before the next event.
// The layers have already retried several times by then.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), max: Duration::from_secs(300) };

/// Debounce period for routes of deleted Nodes, so that the brake counts Nodes that are deleted together.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// Delay before the condition NetworkUnavailable that another client has written is overwritten.
// upstream: until the next listing, ten seconds by default.
const CONDITION_DEBOUNCE: Duration = Duration::from_secs(10);

/// Maximum number of concurrent syncs per cloud, whatever limit the cloud declares.
const MAX_SYNCS: usize = 400;

/// Default of `--route-deletion-max-share`.
pub const MAX_SHARE: f64 = 0.5;

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`: recorded on every route of this cluster.
    pub cluster: ClusterName,
    /// `--cluster-cidr`: networks that contain the pod CIDRs.
    pub cluster_cidrs: Vec<IpNet>,
    /// Trigger of syncs.
    pub mode: Mode,
    /// `--route-deletion-max-share`: if more than this share of all routes would be deleted at once, none is deleted before the API
    /// server has confirmed twice that their Nodes are gone. 1 disables the brake.
    pub max_share: f64,
}

/// Trigger of syncs (feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Node events trigger the sync of single Nodes, and a periodic refresh compares all Nodes with the cloud.
    Watch {
        /// `--route-refresh-period`: interval of the refresh; zero for one refresh at the start only.
        refresh: Duration,
    },
    /// All Nodes are compared with the cloud periodically.
    Periodic {
        /// `--route-reconciliation-period`: interval from start to start.
        period: Duration,
    },
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Watch { refresh: Duration::from_secs(600) }
    }
}

impl Options {
    /// Options with the default mode and brake.
    pub fn new(cluster: ClusterName, cluster_cidrs: Vec<IpNet>) -> Options {
        Options { cluster, cluster_cidrs, mode: Mode::default(), max_share: MAX_SHARE }
    }
}

/// Key of the work queue of one cloud.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A Node: its routes and its condition.
    Node(NodeName),
    /// All routes without a Node.
    Orphans,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Node(name) => name.fmt(f),
            Key::Orphans => f.write_str("routes without a node"),
        }
    }
}

/// The controller.
pub struct RouteController {
    shared: Arc<Shared>,
}

/// State that all syncs share.
struct Shared {
    context: Context,
    options: Options,
    states: Vec<Arc<CloudState>>,
    events: EventSource,
    metrics: Metrics,
    /// Reported failures, by Node and pod CIDR; `None` for invalid pod CIDRs.
    reported: Reports<(NodeName, Option<IpNet>)>,
    /// Conditions that this process has last written, so that its own writes trigger no sync.
    written: Mutex<HashMap<NodeName, NetworkStatus>>,
    activity: Activity,
    /// UID of the cluster, once it was read; `None` if the manager lacks the permission.
    cluster_uid: OnceLock<Option<String>>,
}

impl RouteController {
    /// Registers the event handler; syncs begin with [`run`](RouteController::run). `None` if no cloud has routes (ROUTE-1).
    pub fn new(context: Context, options: Options) -> Result<Option<RouteController>, prometheus::Error> {
        let clouds = context.clouds.iter().filter(|cloud| cloud.has_routes()).cloned();
        let state = |cloud| Arc::new(CloudState::new(cloud, &options, &context.queues));
        let states: Vec<Arc<CloudState>> = clouds.map(state).collect();
        if states.is_empty() {
            tracing::warn!(controller = NAME, "no cloud has routes: the controller does not run");
            return Ok(None);
        }
        let shared = Arc::new(Shared {
            events: context.events.source(COMPONENT),
            metrics: Metrics::register(&context.metrics)?,
            reported: Reports::default(),
            written: Mutex::default(),
            activity: Activity::new(&context, NAME, "route", components(&states)),
            cluster_uid: OnceLock::new(),
            states,
            context,
            options,
        });
        shared.context.nodes.listen_for(&shared, Shared::on_node);
        shared.context.console.add(&shared, Shared::fill);
        Ok(Some(RouteController { shared }))
    }

    /// Runs until shutdown is requested, and then finishes the writes in progress.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.shared;
        let _running = shared.activity.runs();
        let ready = async { tokio::join!(shared.context.nodes.synced(), shared.read_cluster_uid()) };
        if shutdown.or(ready).await.is_none() {
            return;
        }
        let workers = join_all(shared.states.iter().map(|state| run_workers(&shared, state, &shutdown)));
        tokio::join!(workers, refresh::run(&shared, &shutdown));
    }
}

impl Shared {
    /// Reads the UID of the cluster, with retries while the API server does not respond: without the UID, no route that carries one
    /// may be deleted.
    async fn read_cluster_uid(&self) {
        let mut failures = 0;
        let uid = loop {
            match self.context.process.uid().await {
                Ok(uid) => break uid,
                Err(error @ WriteError::Rejected { .. }) => {
                    tracing::warn!(%error, "cannot read the UID of the cluster: {}", WITHOUT_UID);
                    break None;
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(%error, "cannot read the UID of the cluster yet");
                    tokio::time::sleep(BACKOFF.after(failures)).await;
                }
            }
        };
        let _ = self.cluster_uid.set(uid);
    }

    /// Returns the input of a route plan.
    fn route_context<'a>(&'a self, table: &'a RouteTable, nodes: &'a dyn Nodes) -> RouteContext<'a> {
        let cluster_uid = self.cluster_uid.get().and_then(Option::as_deref);
        RouteContext { table, nodes, ranges: &self.options.cluster_cidrs, cluster_uid }
    }
}

/// The queue and the check of each cloud, with the cloud's name where there are several.
fn components(states: &[Arc<CloudState>]) -> Vec<(Kind, String, Arc<dyn Component>)> {
    let name = |what: &str, state: &CloudState| component_name(what, state, states.len());
    let components = states.iter().flat_map(|state| -> [(Kind, String, Arc<dyn Component>); 2] {
        [
            (Kind::Queue, name(QUEUE, state), Arc::new(state.queue.clone())),
            (Kind::Controller, name("refresh", state), Arc::new(state.heartbeat.clone())),
        ]
    });
    components.collect()
}

fn component_name(what: &str, state: &CloudState, clouds: usize) -> String {
    if clouds == 1 { what.to_owned() } else { format!("{what} ({})", state.cloud.name()) }
}

/// Syncs the queued keys of one cloud until shutdown is requested, and then waits for the syncs in progress.
async fn run_workers(shared: &Arc<Shared>, state: &Arc<CloudState>, shutdown: &Shutdown) {
    let mut syncs = JoinSet::new();
    let permits = Arc::new(Semaphore::new(max_syncs(state)));
    while let Some(Some((permit, work))) = shutdown.or(while_syncing(&mut syncs, next(state, &permits))).await {
        let (shared, state, shutdown) = (shared.clone(), state.clone(), shutdown.clone());
        let span = spans::sync(NAME, work.key());
        syncs.spawn(async move {
            shared.sync(&state, &work, &shutdown).instrument(span).await;
            drop(permit);
        });
    }
    state.queue.shut_down();
    while let Some(ended) = syncs.join_next().await {
        propagate_panic(ended);
    }
}

/// Takes a permit for a sync, and then the next key.
async fn next(state: &CloudState, permits: &Arc<Semaphore>) -> Option<(OwnedSemaphorePermit, Work<Key>)> {
    let permit = permits.clone().acquire_owned().await.ok()?;
    Some((permit, state.queue.next().await?))
}

/// Waits for a future, and propagates the panic of a sync that ends meanwhile: a refresh would wait for that sync forever.
async fn while_syncing<T>(syncs: &mut JoinSet<()>, wait: impl Future<Output = T>) -> T {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            Some(ended) = syncs.join_next() => propagate_panic(ended),
            outcome = &mut wait => return outcome,
        }
    }
}

/// Maximum number of concurrent syncs: twice the number of concurrent route writes that the cloud supports, because one sync waits
/// for the API server while another one waits for the cloud.
// upstream: 200 calls, whatever the cloud.
fn max_syncs(state: &CloudState) -> usize {
    state.max_parallel().saturating_mul(2).clamp(2, MAX_SYNCS)
}

// ---- triggers

impl Shared {
    /// Queues a Node that may need a sync (ROUTE-3). The first refresh covers the Nodes that exist at the start.
    fn on_node(&self, change: &Change<Node>) {
        if let Change::Deleted(node) = change {
            self.forget_reports(node);
            self.written().remove(&node.name);
            self.states.iter().for_each(|state| state.queue.forget(&Key::Node(node.name.clone())));
        }
        if !self.is_watching() || !self.context.nodes.is_synced() {
            return;
        }
        match change {
            Change::Added(node) => {
                self.invalidate_old_routes(node);
                self.queue(node, Duration::ZERO);
                // The brake may have waited for the first Node.
                let waiting = self.states.iter().filter(|state| state.awaits_nodes());
                waiting.for_each(|state| state.queue.add(Key::Orphans, Priority::Low));
            }
            Change::Updated { old, new } if differs(old, new) => self.queue(new, Duration::ZERO),
            Change::Updated { old, new } => self.on_condition(old, new),
            Change::Deleted(_) => {
                let gather = |state: &Arc<CloudState>| state.queue.add_after(Key::Orphans, DEBOUNCE, Priority::Low);
                self.states.iter().for_each(gather);
            }
        }
    }

    /// Queues a Node whose condition NetworkUnavailable another client has changed. "True", as a starting kubelet writes it, is
    /// synced at once. Any other change is debounced, so that two disagreeing controllers do not overwrite each other all the time.
    fn on_condition(&self, old: &Node, new: &Node) {
        let is_own = || self.written().get(&new.name).is_some_and(|written| written.is_current(new.network.as_ref()));
        if old.network == new.network || is_own() {
            return;
        }
        let is_unavailable = new.network.as_ref().is_some_and(|network| network.status == "True");
        self.queue(new, if is_unavailable { Duration::ZERO } else { CONDITION_DEBOUNCE });
    }

    /// Queues the Node, at once or after a delay.
    fn queue(&self, node: &Node, delay: Duration) {
        let Some(state) = self.state_of(node).filter(|state| !state.has_no_routes()) else { return };
        let key = Key::Node(node.name.clone());
        if delay.is_zero() {
            state.queue.add(key, Priority::High);
        } else {
            state.queue.add_after(key, delay, Priority::Low);
        }
    }

    fn written(&self) -> MutexGuard<'_, HashMap<NodeName, NetworkStatus>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Invalidates the cache for a new Node that has routes already, as after a Node was recreated: they may target an earlier
    /// machine. Unless their provider ID is that of the Node, a new listing is needed.
    fn invalidate_old_routes(&self, node: &Node) {
        let is_another = |route: &Route| route.provider_id.is_none() || route.provider_id != node.provider_id;
        if let Some(state) = self.state_of(node)
            && state.read(|table| table.for_node(node).any(is_another))
        {
            state.invalidate(Some(&node.name));
        }
    }

    /// Returns the state of the cloud that owns this Node, if it has routes.
    fn state_of(&self, node: &Node) -> Option<&Arc<CloudState>> {
        self.states.iter().find(|state| self.owns(&state.cloud, node))
    }

    fn is_watching(&self) -> bool {
        matches!(self.options.mode, Mode::Watch { .. })
    }

    fn owns(&self, cloud: &Cloud, node: &Node) -> bool {
        fleet::owns(&self.context.clouds, cloud, node)
    }
}

/// Whether a field differs that routes depend on (R19), unlike in a heartbeat.
fn differs(old: &Node, new: &Node) -> bool {
    old.pod_cidrs != new.pod_cidrs
        || old.addresses != new.addresses
        || old.provider_id != new.provider_id
        || old.is_paused() != new.is_paused()
}

// ---- sync and requeue

impl Shared {
    /// Syncs one key, counts the result, and requeues the key.
    async fn sync(&self, state: &CloudState, work: &Work<Key>, shutdown: &Shutdown) {
        let key = work.key();
        let result = match key {
            Key::Node(name) => self.sync_node(state, name, shutdown).await,
            Key::Orphans => self.sync_orphans(state, shutdown).await,
        };
        if let Some(error) = &result.error {
            work.failed(error);
        }
        let outcome = Outcome::of(&result);
        if !state.progress.record(key, outcome) {
            self.metrics.synced(Trigger::NodeChange, outcome);
        }
        spans::ended(outcome.word());
        self.requeue(state, key, &result);
    }

    /// Requeues the key by the result of its sync (ROUTE-10).
    fn requeue(&self, state: &CloudState, key: &Key, result: &SyncResult) {
        match result.requeue() {
            Requeue::OnChange => state.queue.forget(key),
            // The next period retries it.
            _ if !self.is_watching() => state.queue.forget(key),
            Requeue::Backoff => drop(state.queue.retry(key.clone())),
            Requeue::After(delay) => state.queue.add_after(key.clone(), delay, Priority::Low),
        }
    }
}
