//! The cloud-node-lifecycle-controller (LIFE-1 to LIFE-10): taints Nodes of stopped machines, deletes those of vanished ones.
//!
//! Every period it looks at all Nodes at once:
//!
//! ```text
//!  Nodes ──► Fleet ──► questions ──► observe: one read for all that are not Ready ──► decide ──► taints
//!                                                                                       │ machines that seem gone
//!                                    observe, past every cache: those and witnesses ◄───┘
//!                                             │
//!                                             └──► conclude ──► deletions, and Nodes that are held back
//! ```
//!
//! Both decisions are pure functions of `bowline_core::lifecycle`, where the rules stand.

mod apply;
mod metrics;
mod pace;

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Clouds, Error, ErrorKind, Freshness, Nobody, Seen, Sighting};
use bowline_core::lifecycle::{self, Answer, Fleet, Glance, Held, Look, Memory, Moment, Policy};
use bowline_core::{InstanceRef, InstanceState, Node, NodeName};
use bowline_kube::{Change, Cluster, EventSink, EventSource, EventType, ObjectRef, Right};
use bowline_runtime::{Heartbeat, Kind, Part, Shutdown};
use futures::future::join;
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
pub const RIGHTS: &[Right] = &[Cluster::READ_NODE, Cluster::SET_TAINTS, Cluster::DELETE_NODE, EventSink::RIGHT];

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
    look: Heartbeat,
    activity: Activity,
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
        let look = Heartbeat::new();
        let parts: [(Kind, String, Arc<dyn Part>); 1] = [(Kind::Controller, "look".to_owned(), Arc::new(look.clone()))];
        Ok(NodeLifecycleController {
            activity: Activity::new(&context, NAME, "cloud-node-lifecycle", parts),
            look,
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
        let (mut memory, mut pace) = (Memory::default(), Pace::default());
        let mut turn = shutdown.or(self.context.nodes.synced()).await;
        while turn.is_some() {
            self.look.works();
            let timer = self.metrics.pass_duration.start_timer();
            self.pass(&mut memory, &mut pace, &shutdown).instrument(spans::pass(NAME)).await;
            timer.observe_duration();
            self.look.rests(self.options.monitor_period);
            turn = shutdown.or(tokio::time::sleep(self.options.monitor_period)).await;
        }
    }

    /// One look at all Nodes (LIFE-2).
    async fn pass(&self, memory: &mut Memory, pace: &mut Pace, shutdown: &Shutdown) {
        let fleet = self.fleet();
        let questions = fleet.questions();
        self.untaint(&questions.untaint, shutdown).await;
        let [new, known] = pace.groups(questions.ask, self.options.monitor_period);
        // Reads may be given up at shutdown; writes may not.
        let reads = join(self.ask(&new.nodes, new.freshness), self.ask(&known.nodes, known.freshness));
        let Some((of_new, of_known)) = shutdown.or(reads).await else { return };
        let glance = Glance::new(new.nodes.iter().zip(of_new).chain(known.nodes.iter().zip(of_known)));
        let verdict = lifecycle::decide(&fleet, &glance, memory, &self.options.policy, self.now());
        self.taint(&verdict.taint, shutdown).await;
        let mut held = verdict.held;
        if !verdict.look.is_empty() {
            let Some(answers) = shutdown.or(self.ask(&verdict.look, Freshness::Now)).await else { return };
            let look = Look::past_every_cache(verdict.look.iter().zip(answers));
            // Reading took time, in which a Node may have become Ready.
            let fleet = self.fleet();
            let conclusion = lifecycle::conclude(&fleet, &look, memory, &self.options.policy, self.now());
            self.delete(&conclusion.delete, shutdown).await;
            held.extend(conclusion.held);
        }
        self.tell_held(&held);
    }

    /// All Nodes, and whose they are.
    fn fleet(&self) -> Fleet {
        fleet(self.context.nodes.all(), &self.context.clouds, &self.options)
    }

    /// Asks about these machines (LIFE-5, LIFE-7): one read says whether they exist and whether they run.
    async fn ask(&self, nodes: &[Arc<Node>], freshness: Freshness) -> Vec<Answer> {
        let questions: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
        let sightings = self.context.clouds.observe(&questions, freshness).await;
        nodes.iter().zip(sightings).map(|(node, sighting)| self.answer(node, sighting)).collect()
    }

    fn answer(&self, node: &Node, sighting: Result<Sighting, Error>) -> Answer {
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
    fn tell_held(&self, held: &[Held]) {
        self.metrics.held(held);
        for held in held.iter().filter(|held| held.doubt.needs_operator()) {
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
    let owner = |node: &Node| match &node.provider_id {
        Some(id) => clouds.owner(id).map(|cloud| cloud.name().clone()),
        // Which cloud a Node of nobody counts against is a convention: the first that was asked.
        None if options.delete_unclaimed => clouds.iter().next().map(|cloud| cloud.name().clone()),
        None => None,
    };
    Fleet::new(nodes, owner)
}

/// What it means for a Node that its cloud said this of its machine.
pub(crate) fn answer(sighting: Result<Sighting, Error>, options: &Options) -> Answer {
    match sighting {
        Ok(Sighting::Owned { state, .. }) => match state {
            InstanceState::Running(_) => Answer::Running,
            InstanceState::Stopped(_) => Answer::Stopped,
            InstanceState::Gone => Answer::Gone,
            InstanceState::NotMine => Answer::Nobodys,
        },
        Ok(Sighting::Nobody(Nobody::Unclaimed)) if options.delete_unclaimed => Answer::Gone,
        Ok(Sighting::Nobody(_)) => Answer::Nobodys,
        // What else there is to know of the machine is the cloud-node-controller's concern.
        Err(error) => match error.seen() {
            Some(Seen::Running) => Answer::Running,
            Some(Seen::Stopped) => Answer::Stopped,
            None => Answer::Failed,
        },
    }
}
