//! The cloud-node-lifecycle-controller (LIFE-1 to LIFE-10): taints Nodes of stopped machines, deletes those of vanished ones.
//!
//! Every period it looks at all Nodes at once:
//!
//! ```text
//!  Nodes ──► Fleet ──► questions ──► observe: one read for all that are not Ready ──► decide ──► taints
//!                                                                                       │ machines that seem gone
//!                                    observe, past every cache: those and witnesses ◄───┘
//!                                             │
//!                                             └──► conclude ──► deletions, recorded first, and Nodes that are held back
//! ```
//!
//! Each cloud has a loop of its own, and so has what belongs to none, so that a cloud that hangs holds up no Node of another.
//!
//! Both decisions are pure functions of `bowline_core::lifecycle`, where the rules stand.

mod apply;
mod metrics;
mod pace;
mod record;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::{Clouds, Error, ErrorKind, Freshness, KnownState, NoOwner, Ownership};
use bowline_core::lifecycle::{self, Answer, CachedAnswers, Fleet, FreshAnswers, Held, Memory, Moment, Policy};
use bowline_core::{InstanceRef, InstanceState, Node, NodeName};
use bowline_kube::{Change, Cluster, EventSink, EventSource, EventType, ObjectRef, Permission};
use bowline_runtime::{Heartbeat, Kind, Part, Shutdown};
use futures::future::{join, join_all};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::Context;
use crate::activity::Activity;
use crate::complaints::Complaints;
use crate::spans;
use metrics::Metrics;
use pace::Pace;

pub(crate) use metrics::METRICS;

/// The canonical name, in flags, health checks and Events.
pub const NAME: &str = "cloud-node-lifecycle-controller";

// upstream: the one of the cloud-node-controller.
/// The name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "node-controller";

/// What it asks of the API server beyond the watches that all share.
pub const PERMISSIONS: &[Permission] =
    &[Cluster::READ_NODE, Cluster::SET_TAINTS, Cluster::DELETE_NODE, EventSink::PERMISSION];

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--node-monitor-period`: the pause after each pass.
    pub monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: writes at once.
    pub concurrency: usize,
    /// When a deletion is beyond doubt.
    pub policy: Policy,
    /// A Node without provider ID that no provider knows by name is deleted, too, as the Go manager does.
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
    complaints: Arc<Complaints<NodeName>>,
    loops: Vec<Loop>,
    /// Nodes that are held back, of each loop.
    held: Mutex<HashMap<Owner, Vec<Held>>>,
    activity: Activity,
}

/// The cloud that owns a Node; `None` for what belongs to none.
type Owner = Option<Arc<str>>;

/// The Nodes of one owner.
struct Loop {
    owner: Owner,
    look: Heartbeat,
}

/// What a loop remembers from one pass to the next.
#[derive(Default)]
struct State {
    memory: Memory,
    pace: Pace,
    /// The memory has the deletions that are on record.
    is_restored: bool,
}

impl NodeLifecycleController {
    /// Ready to run.
    pub fn new(context: Context, options: Options) -> Result<NodeLifecycleController, prometheus::Error> {
        let complaints = Arc::new(Complaints::default());
        context.nodes.listen_for(&complaints, |complaints: &Complaints<NodeName>, change| {
            if let Change::Deleted(node) = change {
                complaints.forget(&node.name);
            }
        });
        let owners = context.clouds.iter().map(|cloud| Some(cloud.name().clone())).chain([None]);
        let loops: Vec<_> = owners.map(|owner| Loop { owner, look: Heartbeat::new() }).collect();
        let parts = loops.iter().map(|Loop { owner, look }| {
            let name = owner.as_ref().map_or("look".to_owned(), |owner| format!("look-{owner}"));
            (Kind::Controller, name, Arc::new(look.clone()) as Arc<dyn Part>)
        });
        Ok(NodeLifecycleController {
            activity: Activity::new(&context, NAME, "cloud-node-lifecycle", parts),
            loops,
            held: Mutex::default(),
            events: context.events.source(NAME),
            metrics: Metrics::register(&context.metrics)?,
            complaints,
            context,
            options,
        })
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand.
    ///
    /// It waits for the store, unlike upstream (INF-3): the share of Nodes that may go is reckoned from all of them.
    pub async fn run(self, shutdown: Shutdown) {
        let _running = self.activity.runs();
        if shutdown.or(self.context.nodes.synced()).await.is_some() {
            join_all(self.loops.iter().map(|each| self.watch(each, &shutdown))).await;
        }
    }

    /// Looks at the Nodes of one owner until shutdown is requested.
    async fn watch(&self, Loop { owner, look }: &Loop, shutdown: &Shutdown) {
        let mut state = State::default();
        loop {
            look.works();
            let begin = Instant::now();
            self.pass(owner, &mut state, shutdown).instrument(spans::pass(NAME)).await;
            if owner.is_some() {
                self.metrics.pass_duration.observe(begin.elapsed().as_secs_f64());
            }
            look.rests(self.options.monitor_period);
            if shutdown.or(tokio::time::sleep(self.options.monitor_period)).await.is_none() {
                return;
            }
        }
    }

    /// One look at all Nodes of an owner (LIFE-2).
    async fn pass(&self, owner: &Owner, state: &mut State, shutdown: &Shutdown) {
        let State { memory, pace, is_restored } = state;
        let fleet = self.fleet(owner);
        let questions = fleet.questions();
        self.untaint(&questions.untaint, shutdown).await;
        let [new, known] = pace.groups(questions.ask, self.options.monitor_period);
        // Reads may be given up at shutdown; writes may not.
        let reads = join(self.ask(&new.nodes, new.freshness), self.ask(&known.nodes, known.freshness));
        let Some((of_new, of_known)) = shutdown.or(reads).await else { return };
        let glance = CachedAnswers::new(new.nodes.iter().zip(of_new).chain(known.nodes.iter().zip(of_known)));
        let verdict = lifecycle::decide(&fleet, &glance, memory, &self.options.policy, self.now());
        self.taint(&verdict.taint, shutdown).await;
        let mut held = verdict.held;
        if !verdict.look.is_empty() {
            let Some(answers) = shutdown.or(self.ask(&verdict.look, Freshness::Now)).await else { return };
            let look = FreshAnswers::uncached(verdict.look.iter().zip(answers));
            // Reading took time, in which a Node may have become Ready.
            let fleet = self.fleet(owner);
            *is_restored = *is_restored || self.restore_deletions(owner, memory).await;
            let conclusion = lifecycle::conclude(&fleet, &look, memory, &self.options.policy, self.now());
            if *is_restored && !conclusion.delete.is_empty() && self.record_deletions(owner, memory).await {
                self.delete(&conclusion.delete, shutdown).await;
            }
            held.extend(conclusion.held);
        }
        self.tell_held(owner, held);
    }

    /// The Nodes of this owner.
    fn fleet(&self, owner: &Owner) -> Fleet {
        let (clouds, options) = (&self.context.clouds, &self.options);
        let nodes = self.context.nodes.all().into_iter().filter(|node| owner_of(node, clouds, options) == *owner);
        fleet(nodes, clouds, options)
    }

    /// Asks about these machines (LIFE-5, LIFE-7): one read says whether they exist and whether they run.
    async fn ask(&self, nodes: &[Arc<Node>], freshness: Freshness) -> Vec<Answer> {
        let questions: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
        let sightings = self.context.clouds.observe_all(&questions, freshness).await;
        nodes.iter().zip(sightings).map(|(node, sighting)| self.answer(node, sighting)).collect()
    }

    fn answer(&self, node: &Node, sighting: Result<Ownership, Error>) -> Answer {
        self.metrics.answered(&sighting);
        if let Err(error) = &sighting
            && error.seen().is_none()
        {
            self.tell_failure(node, error);
        }
        let answer = answer(sighting, &self.options);
        if answer.is_visible() {
            // The machine is there: an earlier complaint is settled.
            self.complaints.forget(&node.name);
        }
        answer
    }

    fn now(&self) -> Moment {
        Moment { instant: self.context.clock.instant(), wall: self.context.clock.now() }
    }

    // ---- what people are told, each cause once

    /// As long as a Node is uninitialised, the cloud-node-controller asks about it, too, and tells of the same failure.
    fn tell_failure(&self, node: &Node, error: &Error) {
        if node.is_uninitialized() {
            return;
        }
        if error.kind() == ErrorKind::Cancelled
            || !self.complaints.is_news(&node.name, &node.uid, error.kind().as_str())
        {
            return;
        }
        let advice = error.kind().advice();
        let message =
            format!("The node is left as it is until the cloud provider has an answer about it. {error}. {advice}");
        self.events.emit(&ObjectRef::node(node), EventType::Warning, "CloudUnavailable", message.trim_end());
    }

    /// Nodes that are kept although their machines are gone: operators are told of those that time alone does not settle.
    fn tell_held(&self, owner: &Owner, held: Vec<Held>) {
        let mut all = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(owner.clone(), held);
        self.metrics.held(all.values().flatten());
        let held = all.get(owner).into_iter().flatten();
        for held in held.filter(|held| held.doubt.needs_operator()) {
            let Some(node) = self.context.nodes.get(held.node.as_str()).filter(|node| node.uid == held.uid) else {
                continue;
            };
            if self.complaints.is_news(&node.name, &node.uid, held.doubt.word()) {
                self.events.emit(&ObjectRef::node(&node), EventType::Warning, "DeletionHeldBack", held);
            }
        }
    }
}

/// These Nodes, and whose they are.
pub(crate) fn fleet(nodes: impl IntoIterator<Item = Arc<Node>>, clouds: &Clouds, options: &Options) -> Fleet {
    Fleet::new(nodes, |node| owner_of(node, clouds, options))
}

fn owner_of(node: &Node, clouds: &Clouds, options: &Options) -> Owner {
    match &node.provider_id {
        Some(id) => clouds.owner(id).map(|cloud| cloud.name().clone()),
        // Which cloud a Node of nobody counts against is a convention: the first that was asked.
        None if options.delete_unclaimed => clouds.iter().next().map(|cloud| cloud.name().clone()),
        None => None,
    }
}

/// What it means for a Node that its cloud said this of its machine.
pub(crate) fn answer(sighting: Result<Ownership, Error>, options: &Options) -> Answer {
    match sighting {
        Ok(Ownership::Owned { state, .. }) => match state {
            InstanceState::Running(_) => Answer::Running,
            InstanceState::Stopped(_) => Answer::Stopped,
            InstanceState::Gone => Answer::Gone,
            InstanceState::NotMine => Answer::Unowned,
        },
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) if options.delete_unclaimed => Answer::Gone,
        Ok(Ownership::NoOwner(_)) => Answer::Unowned,
        // What else there is to know of the machine is the cloud-node-controller's concern.
        Err(error) => match error.seen() {
            Some(KnownState::Running) => Answer::Running,
            Some(KnownState::Stopped) => Answer::Stopped,
            None => Answer::Failed,
        },
    }
}
