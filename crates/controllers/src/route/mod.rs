//! The node-route-controller (ROUTE-1 to ROUTE-14): a route to every Node for each of its pod ranges, and no other.
//!
//! For each cloud that has routes there is an account of its table: one listing, brought up to date by each of
//! our own writes. The unit of work is the Node:
//!
//! ```text
//!  a Node came or changed ──► queue ──► account ──decide──► lanes: delete, then create ──► account
//!                               ▲                              └─► NetworkUnavailable, if it changes
//!  a Node is gone ──► strays ───┤
//!  every refresh period: list, compare everything, queue what differs
//! ```
//!
//! * **One write for one change.** A Node that comes costs the creation of its routes, and no listing.
//! * **The account is not believed after a failure.** A write that failed may have worked; the next try of that Node
//!   rests on a listing that began after it.
//! * **Deletions are braked.** Routes of Nodes that are gone go at once as long as they are few, see
//!   [`Brake`](bowline_core::routes::Brake).
//! * **In parallel**, as far as the cloud says that it can take, and each cloud by itself: one that does not answer holds
//!   up nobody else.

mod account;
mod check;
mod fleet;
mod metrics;
mod orphans;
mod pass;
mod rounds;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bowline_cloud::Cloud;
use bowline_core::routes::{NetworkStatus, Nodes, Scene, Table};
use bowline_core::{ClusterName, Node, NodeName, Route};
use bowline_kube::{Change, Cluster, EventSink, EventSource, Permission, WriteError};
use bowline_runtime::{Backoff, Kind, Part, Priority, Shutdown, Work};
use futures::future::join_all;
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::Context;
use crate::activity::Activity;
use crate::complaints::Complaints;
use crate::panics::pass_on_panic;
use crate::spans;
use account::Account;
use metrics::{Metrics, Outcome, Trigger};

pub(crate) use fleet::Fleet;
pub(crate) use metrics::METRICS;

/// The canonical name, in flags and health checks.
pub const NAME: &str = "node-route-controller";

/// The name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "route-controller";

/// What it asks of the API server beyond the watches that all share.
pub const PERMISSIONS: &[Permission] = &[Cluster::LIST_NODES, Cluster::SET_NETWORK, EventSink::PERMISSION];

/// Consequence of an unknown UID of the cluster, and the remedy.
const WITHOUT_UID: &str =
    "routes are marked with --cluster-name alone; fix: allow the manager to get the namespace kube-system";

/// The name in Events.
const COMPONENT: &str = "route_controller";

/// The queue's name in metrics (WQ-5).
const QUEUE: &str = "Routes";

/// How long a Node that failed waits for its next try.
// upstream: none before something else happens.
// The layers have tried several times already by then.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), max: Duration::from_secs(300) };

/// How long routes of a Node that is gone wait for those of others: Nodes that go together are judged together.
const GATHER: Duration = Duration::from_secs(1);

/// How long another one's word about a Node's network stands before ours is written over it.
// upstream: until the next listing, ten seconds by default.
const OTHERS_WORD: Duration = Duration::from_secs(10);

/// The most passes that are under way for a cloud, whatever it can take.
const MOST_PASSES: usize = 400;

/// The default of `--route-deletion-max-share`.
pub const MAX_SHARE: f64 = 0.5;

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`: what is made in a cloud is marked with it.
    pub cluster: ClusterName,
    /// `--cluster-cidr`: where pods may live.
    pub ranges: Vec<IpNet>,
    /// How it hears of changes.
    pub mode: Mode,
    /// `--route-deletion-max-share`: if more than this share of all routes would go at once, none goes before the API server
    /// has confirmed twice that their Nodes are gone. 1 switches the brake off.
    pub max_share: f64,
}

/// How the controller hears of changes (the feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// From the watch, Node by Node; now and then everything is compared with the cloud.
    Watch {
        /// `--route-refresh-period`: how often; zero for never again after the start.
        refresh: Duration,
    },
    /// Everything is compared with the cloud, again and again.
    Periodic {
        /// `--route-reconciliation-period`: from one beginning to the next.
        period: Duration,
    },
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Watch { refresh: Duration::from_secs(600) }
    }
}

impl Options {
    /// The default mode and brake, for a cluster whose pods live in these ranges.
    pub fn new(cluster: ClusterName, ranges: Vec<IpNet>) -> Options {
        Options { cluster, ranges, mode: Mode::default(), max_share: MAX_SHARE }
    }
}

/// What is worked on, in one cloud.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A Node: its routes and its condition.
    Node(NodeName),
    /// The routes that lead to no Node.
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

/// What all passes work with.
struct Shared {
    context: Context,
    options: Options,
    accounts: Vec<Arc<Account>>,
    events: EventSource,
    metrics: Metrics,
    /// What was said of each range of a Node that could not be led to it, and of what is no range.
    complaints: Complaints<(NodeName, Option<IpNet>)>,
    /// What Nodes were last told of their network: our own word is no news.
    told: Mutex<HashMap<NodeName, NetworkStatus>>,
    activity: Activity,
    /// UID of the cluster, once it was asked for; `None` where the manager may not read it.
    cluster_uid: OnceLock<Option<String>>,
}

impl RouteController {
    /// Listens to the Nodes from now on; works once it [runs](RouteController::run). `None` if no cloud has routes (ROUTE-1).
    pub fn new(context: Context, options: Options) -> Result<Option<RouteController>, prometheus::Error> {
        let clouds = context.clouds.iter().filter(|cloud| cloud.has_routes()).cloned();
        let account = |cloud| Arc::new(Account::new(cloud, &options, &context.queues));
        let accounts: Vec<Arc<Account>> = clouds.map(account).collect();
        if accounts.is_empty() {
            tracing::warn!(controller = NAME, "no cloud has routes: the controller does not run");
            return Ok(None);
        }
        let shared = Arc::new(Shared {
            events: context.events.source(COMPONENT),
            metrics: Metrics::register(&context.metrics)?,
            complaints: Complaints::default(),
            told: Mutex::default(),
            activity: Activity::new(&context, NAME, "route", parts(&accounts)),
            cluster_uid: OnceLock::new(),
            accounts,
            context,
            options,
        });
        shared.context.nodes.listen_for(&shared, Shared::heard);
        Ok(Some(RouteController { shared }))
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.shared;
        let _running = shared.activity.runs();
        let ready = async { tokio::join!(shared.context.nodes.synced(), shared.learn_cluster_uid()) };
        if shutdown.or(ready).await.is_none() {
            return;
        }
        let working = join_all(shared.accounts.iter().map(|account| work(&shared, account, &shutdown)));
        tokio::join!(working, check::run(&shared, &shutdown));
    }
}

impl Shared {
    /// Reads the UID of the cluster. Without it no route may be removed that carries one, so an API server that does not answer
    /// is waited for.
    async fn learn_cluster_uid(&self) {
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

    /// All that a decision is made from.
    fn scene<'a>(&'a self, table: &'a Table, nodes: &'a dyn Nodes) -> Scene<'a> {
        let cluster_uid = self.cluster_uid.get().and_then(Option::as_deref);
        Scene { table, nodes, ranges: &self.options.ranges, cluster_uid }
    }
}

/// The queue and the check of each cloud, with the cloud's name where there are several.
fn parts(accounts: &[Arc<Account>]) -> Vec<(Kind, String, Arc<dyn Part>)> {
    let name = |what: &str, account: &Account| match accounts.len() {
        1 => what.to_owned(),
        _ => format!("{what} ({})", account.cloud.name()),
    };
    let parts = accounts.iter().flat_map(|account| -> [(Kind, String, Arc<dyn Part>); 2] {
        [
            (Kind::Queue, name(QUEUE, account), Arc::new(account.queue.clone())),
            (Kind::Controller, name("check", account), Arc::new(account.checking.clone())),
        ]
    });
    parts.collect()
}

/// Works on one cloud until shutdown is requested, and then finishes what is in hand.
async fn work(shared: &Arc<Shared>, account: &Arc<Account>, shutdown: &Shutdown) {
    let mut passes = JoinSet::new();
    let places = Arc::new(Semaphore::new(places(account)));
    while let Some(Some((place, work))) = shutdown.or(while_passing(&mut passes, next(account, &places))).await {
        let (shared, account, shutdown) = (shared.clone(), account.clone(), shutdown.clone());
        let span = spans::sync(NAME, work.key());
        passes.spawn(async move {
            shared.sync(&account, &work, &shutdown).instrument(span).await;
            drop(place);
        });
    }
    account.queue.shut_down();
    while let Some(ended) = passes.join_next().await {
        pass_on_panic(ended);
    }
}

/// A place for a pass, and then what it is about.
async fn next(account: &Account, places: &Arc<Semaphore>) -> Option<(OwnedSemaphorePermit, Work<Key>)> {
    let place = places.clone().acquire_owned().await.ok()?;
    Some((place, account.queue.next().await?))
}

/// Waits, and hears of each pass that ends meanwhile: one that panicked would leave a check waiting for ever.
async fn while_passing<T>(passes: &mut JoinSet<()>, wait: impl Future<Output = T>) -> T {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            Some(ended) = passes.join_next() => pass_on_panic(ended),
            outcome = &mut wait => return outcome,
        }
    }
}

/// Twice as many syncs as the cloud can write routes at once: while one sync waits for the cloud, another one waits for the API
/// server.
// upstream: 200 calls, whatever the cloud.
fn places(account: &Account) -> usize {
    account.max_parallel().saturating_mul(2).clamp(2, MOST_PASSES)
}

// ---- what is queued

impl Shared {
    /// Queues what may need work (ROUTE-3). What is there at the start is the first check's.
    fn heard(&self, change: &Change<Node>) {
        if let Change::Deleted(node) = change {
            self.forget_complaints(node);
            self.told().remove(&node.name);
            self.accounts.iter().for_each(|account| account.queue.forget(&Key::Node(node.name.clone())));
        }
        if !self.is_watching() || !self.context.nodes.is_synced() {
            return;
        }
        match change {
            Change::Added(node) => {
                self.doubt_old_routes(node);
                self.queue(node, Duration::ZERO);
                // The first Node is what the brake may have waited for.
                let waiting = self.accounts.iter().filter(|account| account.awaits_nodes());
                waiting.for_each(|account| account.queue.add(Key::Orphans, Priority::Low));
            }
            Change::Updated { old, new } if differs(old, new) => self.queue(new, Duration::ZERO),
            Change::Updated { old, new } => self.heard_of_network(old, new),
            Change::Deleted(_) => {
                let gather = |account: &Arc<Account>| account.queue.add_after(Key::Orphans, GATHER, Priority::Low);
                self.accounts.iter().for_each(gather);
            }
        }
    }

    /// Whether a Node's pods can be reached is ours to say. One that is said to be out of reach, as by a kubelet that starts,
    /// is looked at now; another word for the same can wait, so that two who disagree do not write all the time.
    fn heard_of_network(&self, old: &Node, new: &Node) {
        let is_ours = || self.told().get(&new.name).is_some_and(|told| told.is_current(new.network.as_ref()));
        if old.network == new.network || is_ours() {
            return;
        }
        let is_out_of_reach = new.network.as_ref().is_some_and(|network| network.status == "True");
        self.queue(new, if is_out_of_reach { Duration::ZERO } else { OTHERS_WORD });
    }

    /// The Node needs a pass, now or after a while.
    fn queue(&self, node: &Node, wait: Duration) {
        let Some(account) = self.account_of(node).filter(|account| !account.is_aside()) else { return };
        let key = Key::Node(node.name.clone());
        if wait.is_zero() {
            account.queue.add(key, Priority::High);
        } else {
            account.queue.add_after(key, wait, Priority::Low);
        }
    }

    fn told(&self) -> MutexGuard<'_, HashMap<NodeName, NetworkStatus>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A Node comes to which routes lead already, as when one comes back under its name: they may lead to a machine of the
    /// past. Unless they say that it is the same one, only a listing tells.
    fn doubt_old_routes(&self, node: &Node) {
        let is_another = |route: &Route| route.provider_id.is_none() || route.provider_id != node.provider_id;
        if let Some(account) = self.account_of(node)
            && account.read(|table| table.for_node(node).any(is_another))
        {
            account.doubt(Some(&node.name));
        }
    }

    /// The account of the cloud that this Node belongs to, if it has routes.
    fn account_of(&self, node: &Node) -> Option<&Arc<Account>> {
        self.accounts.iter().find(|account| self.owns(&account.cloud, node))
    }

    fn is_watching(&self) -> bool {
        matches!(self.options.mode, Mode::Watch { .. })
    }

    fn owns(&self, cloud: &Cloud, node: &Node) -> bool {
        fleet::owns(&self.context.clouds, cloud, node)
    }
}

/// Something has changed that routes depend on (R19); a heartbeat has not.
fn differs(old: &Node, new: &Node) -> bool {
    old.pod_cidrs != new.pod_cidrs
        || old.addresses != new.addresses
        || old.provider_id != new.provider_id
        || old.is_paused() != new.is_paused()
}

// ---- passes

impl Shared {
    /// One pass, and what follows from how it ended.
    async fn sync(&self, account: &Account, work: &Work<Key>, shutdown: &Shutdown) {
        let key = work.key();
        let done = match key {
            Key::Node(name) => self.sync_node(account, name, shutdown).await,
            Key::Orphans => self.sync_strays(account, shutdown).await,
        };
        if let Some(why) = &done.why {
            work.failed(why);
        }
        let outcome = Outcome::of(&done);
        if !account.rounds.finished(key, outcome) {
            self.metrics.synced(Trigger::NodeChange, outcome);
        }
        spans::ended(outcome.word());
        self.settle(account, key, &done);
    }

    /// When the key gets its next try (ROUTE-10).
    fn settle(&self, account: &Account, key: &Key, done: &pass::Done) {
        match done.next() {
            pass::Next::Rest => account.queue.forget(key),
            // The next period is its next try.
            _ if !self.is_watching() => account.queue.forget(key),
            pass::Next::Backoff => drop(account.queue.retry(key.clone())),
            pass::Next::After(delay) => account.queue.add_after(key.clone(), delay, Priority::Low),
        }
    }
}
