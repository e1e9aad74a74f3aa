//! The cloud-node-lifecycle-controller (LIFE-1 to LIFE-10): taints Nodes of stopped machines, deletes Nodes of deleted machines.
//!
//! It syncs all Nodes of a cloud once per period:
//!
//! ```text
//!  Nodes ──► Fleet ──► questions ──► observe: one read for all that are not Ready ──► decide ──► taints
//!                                                                                       │ machines that seem gone
//!                                    observe, past every cache: those and witnesses ◄───┘
//!                                             │
//!                                             └──► conclude ──► deletions, recorded first, and Nodes that are held back
//! ```
//!
//! Each cloud has its own loop, and Nodes of no cloud have another, so that a cloud that hangs blocks its own Nodes only.
//!
//! Both decisions are pure functions of `bowline_core::lifecycle`, which documents the rules.

mod apply;
mod console;
mod metrics;
mod pace;
mod record;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::{Clouds, Error, ErrorKind, Freshness, KnownState, NoOwner, Ownership};
use bowline_core::lifecycle::{self, CachedResults, Fleet, FreshResults, Held, LookupResult, Memory, Moment, Policy};
use bowline_core::{InstanceRef, InstanceState, Node, NodeName};
use bowline_kube::{Change, Cluster, EventSink, EventSource, EventType, ObjectRef, Permission};
use bowline_runtime::{Component, Heartbeat, Kind, Shutdown};
use futures::future::{join, join_all};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::Context;
use crate::activity::Activity;
use crate::reports::Reports;
use crate::spans;
use metrics::Metrics;
use pace::Pace;

pub(crate) use metrics::METRICS;

/// Canonical name, in flags, health checks and Events.
pub const NAME: &str = "cloud-node-lifecycle-controller";

// upstream: the same as for the cloud-node-controller.
/// Name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "node-controller";

/// RBAC rules that it needs beyond the watches that all controllers share.
pub const PERMISSIONS: &[Permission] =
    &[Cluster::READ_NODE, Cluster::SET_TAINTS, Cluster::DELETE_NODE, EventSink::PERMISSION];

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--node-monitor-period`: pause between two syncs.
    pub monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: number of concurrent writes.
    pub concurrency: usize,
    /// Conditions for a deletion.
    pub policy: Policy,
    /// Also delete a Node without a provider ID that no provider knows by name, as the Go manager does.
    pub delete_unclaimed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            monitor_period: Duration::from_secs(5),
            concurrency: 16,
            policy: Policy::default(),
            delete_unclaimed: false,
        }
    }
}

/// The controller.
pub struct NodeLifecycleController {
    context: Context,
    options: Options,
    events: EventSource,
    metrics: Metrics,
    reported: Arc<Reports<NodeName>>,
    loops: Vec<Loop>,
    held: Arc<HeldNodes>,
    activity: Activity,
}

/// Nodes that are held back, of each loop.
type HeldNodes = Mutex<HashMap<Owner, Vec<Held>>>;

/// Cloud that owns a Node; `None` for Nodes of no cloud.
type Owner = Option<Arc<str>>;

/// Sync loop for the Nodes of one owner.
struct Loop {
    owner: Owner,
    heartbeat: Heartbeat,
}

/// State that a loop keeps between two syncs.
#[derive(Default)]
struct State {
    memory: Memory,
    pace: Pace,
    /// Whether the memory includes the recorded deletions.
    is_restored: bool,
}

impl NodeLifecycleController {
    /// Creates the controller; syncs begin with [`run`](NodeLifecycleController::run).
    pub fn new(context: Context, options: Options) -> Result<NodeLifecycleController, prometheus::Error> {
        let reported = Arc::new(Reports::default());
        context.nodes.listen_for(&reported, |reported: &Reports<NodeName>, change| {
            if let Change::Deleted(node) = change {
                reported.forget(&node.name);
            }
        });
        let owners = context.clouds.iter().map(|cloud| Some(cloud.name().clone())).chain([None]);
        let loops: Vec<_> = owners.map(|owner| Loop { owner, heartbeat: Heartbeat::new() }).collect();
        let components = loops.iter().map(|Loop { owner, heartbeat }| {
            let name = owner.as_ref().map_or("sync".to_owned(), |owner| format!("sync-{owner}"));
            (Kind::Controller, name, Arc::new(heartbeat.clone()) as Arc<dyn Component>)
        });
        let activity = Activity::new(&context, NAME, "cloud-node-lifecycle", components);
        let held = console::register(&context, &loops);
        Ok(NodeLifecycleController {
            activity,
            loops,
            held,
            events: context.events.source(NAME),
            metrics: Metrics::register(&context.metrics)?,
            reported,
            context,
            options,
        })
    }

    /// Runs until shutdown is requested, and then finishes the writes in progress.
    ///
    /// It waits for the store to fill, unlike upstream (INF-3): the brake computes the share of deleted Nodes from all of them.
    pub async fn run(self, shutdown: Shutdown) {
        let _running = self.activity.runs();
        if shutdown.or(self.context.nodes.synced()).await.is_some() {
            join_all(self.loops.iter().map(|each| self.run_loop(each, &shutdown))).await;
        }
    }

    /// Syncs the Nodes of one owner every period until shutdown is requested.
    async fn run_loop(&self, Loop { owner, heartbeat }: &Loop, shutdown: &Shutdown) {
        let mut state = State::default();
        loop {
            heartbeat.begin();
            let begin = Instant::now();
            self.sync(owner, &mut state, shutdown).instrument(spans::batch(NAME)).await;
            if owner.is_some() {
                self.metrics.sync_duration.observe(begin.elapsed().as_secs_f64());
            }
            heartbeat.finish(self.options.monitor_period);
            if shutdown.or(tokio::time::sleep(self.options.monitor_period)).await.is_none() {
                return;
            }
        }
    }

    /// Syncs all Nodes of an owner once (LIFE-2).
    async fn sync(&self, owner: &Owner, state: &mut State, shutdown: &Shutdown) {
        let State { memory, pace, is_restored } = state;
        let fleet = self.fleet(owner);
        let lookups = fleet.lookups();
        self.untaint(&lookups.untaint, shutdown).await;
        let [new, known] = pace.groups(lookups.nodes, self.options.monitor_period);
        // Shutdown cancels reads, but not writes.
        let reads = join(self.observe(&new.nodes, new.freshness), self.observe(&known.nodes, known.freshness));
        let Some((of_new, of_known)) = shutdown.or(reads).await else { return };
        let glance = CachedResults::new(new.nodes.iter().zip(of_new).chain(known.nodes.iter().zip(of_known)));
        let verdict = lifecycle::decide(&fleet, &glance, memory, &self.options.policy, self.now());
        self.taint(&verdict.taint, shutdown).await;
        let mut held = verdict.held;
        if !verdict.recheck.is_empty() {
            let Some(answers) = shutdown.or(self.observe(&verdict.recheck, Freshness::Now)).await else { return };
            let look = FreshResults::uncached(verdict.recheck.iter().zip(answers));
            // A Node may have become Ready during the read.
            let fleet = self.fleet(owner);
            *is_restored = *is_restored || self.restore_deletions(owner, memory).await;
            let conclusion = lifecycle::conclude(&fleet, &look, memory, &self.options.policy, self.now());
            if *is_restored && !conclusion.delete.is_empty() && self.record_deletions(owner, memory).await {
                self.delete(&conclusion.delete, shutdown).await;
            }
            held.extend(conclusion.held);
        }
        self.report_held(owner, held);
    }

    /// Returns the Nodes of this owner.
    fn fleet(&self, owner: &Owner) -> Fleet {
        let (clouds, options) = (&self.context.clouds, &self.options);
        let nodes = self.context.nodes.all().into_iter().filter(|node| owner_of(node, clouds, options) == *owner);
        fleet(nodes, clouds, options)
    }

    /// Observes the machines of these Nodes (LIFE-5, LIFE-7): one read shows whether they exist and whether they run.
    async fn observe(&self, nodes: &[Arc<Node>], freshness: Freshness) -> Vec<LookupResult> {
        let questions: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
        let observations = self.context.clouds.observe_all(&questions, freshness).await;
        nodes.iter().zip(observations).map(|(node, observation)| self.answer(node, observation)).collect()
    }

    fn answer(&self, node: &Node, observation: Result<Ownership, Error>) -> LookupResult {
        self.metrics.count_answer(&observation);
        if let Err(error) = &observation
            && error.known_state().is_none()
        {
            self.report_failure(node, error);
        }
        let answer = answer(observation, &self.options);
        if answer.is_visible() {
            // The machine exists, so that an earlier report is resolved.
            self.reported.forget(&node.name);
        }
        answer
    }

    fn now(&self) -> Moment {
        Moment { instant: self.context.clock.instant(), wall: self.context.clock.now() }
    }

    // ---- report: each cause once

    /// Emits an Event for a failed cloud read. While a Node is uninitialised, the cloud-node-controller reports the same failure.
    fn report_failure(&self, node: &Node, error: &Error) {
        if node.is_uninitialized() {
            return;
        }
        if error.kind() == ErrorKind::Cancelled || !self.reported.is_new(&node.name, &node.uid, error.kind().as_str()) {
            return;
        }
        let message = format!("The node is unchanged until the cloud provider responds: {error}");
        let message = error.kind().with_advice(&message);
        self.events.emit(&ObjectRef::node(node), EventType::Warning, "CloudUnavailable", message);
    }

    /// Reports Nodes that are held back although their machines are gone. An Event is emitted for those that need an operator.
    fn report_held(&self, owner: &Owner, held: Vec<Held>) {
        let mut all = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(owner.clone(), held);
        self.metrics.set_held(all.values().flatten());
        let held = all.get(owner).into_iter().flatten();
        for held in held.filter(|held| held.reason.needs_operator()) {
            let Some(node) = self.context.nodes.get(held.node.as_str()).filter(|node| node.uid == held.uid) else {
                continue;
            };
            if self.reported.is_new(&node.name, &node.uid, held.reason.as_str()) {
                self.events.emit(&ObjectRef::node(&node), EventType::Warning, "DeletionHeldBack", held);
            }
        }
    }
}

/// Returns the fleet of these Nodes with the owner of each.
pub(crate) fn fleet(nodes: impl IntoIterator<Item = Arc<Node>>, clouds: &Clouds, options: &Options) -> Fleet {
    Fleet::new(nodes, |node| owner_of(node, clouds, options))
}

fn owner_of(node: &Node, clouds: &Clouds, options: &Options) -> Owner {
    match &node.provider_id {
        Some(id) => clouds.owner(id).map(|cloud| cloud.name().clone()),
        // By convention, a Node without an owner counts against the first cloud.
        None if options.delete_unclaimed => clouds.iter().next().map(|cloud| cloud.name().clone()),
        None => None,
    }
}

/// Converts the observation of a machine into the answer for its Node.
pub(crate) fn answer(observation: Result<Ownership, Error>, options: &Options) -> LookupResult {
    match observation {
        Ok(Ownership::Owned { state, .. }) => match state {
            InstanceState::Running(_) => LookupResult::Running,
            InstanceState::Stopped(_) => LookupResult::Stopped,
            InstanceState::Gone => LookupResult::Gone,
            InstanceState::NotMine => LookupResult::Unowned,
        },
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) if options.delete_unclaimed => LookupResult::Gone,
        Ok(Ownership::NoOwner(_)) => LookupResult::Unowned,
        // The state of the machine suffices; the cloud-node-controller reports the error.
        Err(error) => match error.known_state() {
            Some(KnownState::Running) => LookupResult::Running,
            Some(KnownState::Stopped) => LookupResult::Stopped,
            None => LookupResult::Failed,
        },
    }
}
