//! The cloud-node-controller (NODE-1 to NODE-26): initialises Nodes, mirrors deprecated labels to their successors, and keeps
//! addresses and annotations up to date.
//!
//! Two loops read one store:
//!
//! ```text
//!  Node added or changed ──► queue ──► a batch of keys
//!                                        │ no init taint ──► initialize::mirrored_labels ──► one patch, if any
//!                                        │ init taint ──► observe: one cloud read for the batch
//!                                        ▼
//!                              plan: initialize::decide, per Node ──► NodeChange ──► apply: one patch, one status patch
//!                                                                                  ──► report: one Event
//!
//!  every status period ──► all initialised Nodes ──► observe: one cloud read ──► plan: addresses::decide,
//!                         node_annotations::decide ──► apply: patches, if any
//! ```
//!
//! Heartbeats do not reach the queue: the event handler drops a change of fields that initialisation does not read, so that a
//! Node in back-off stays there.

mod addresses;
mod console;
mod initialize;
mod metrics;
mod state;

use std::sync::Arc;
use std::time::Duration;

use bowline_core::{AddressPolicy, Node, NodeName, initialize as decision, is_paused};
use bowline_kube::{Change, Cluster, EventSink, EventSource, ObjectRef, Permission};
use bowline_runtime::{Backoff, Component, Heartbeat, Kind, Priority, Queue, Shutdown};
use tokio::sync::Semaphore;

use crate::Context;
use crate::activity::Activity;
use crate::outcome::Requeuer;
use crate::pause::Paused;
use crate::reports::Reports;
use metrics::Metrics;
use state::NodeStates;

pub(crate) use metrics::METRICS;

/// Canonical name, in flags, health checks and Events.
pub const NAME: &str = "cloud-node-controller";

/// Name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "node-controller";

/// RBAC rules that it needs beyond the watches that all controllers share.
pub const PERMISSIONS: &[Permission] = &[
    Cluster::READ_NODE,
    Cluster::INITIALIZE,
    Cluster::SET_LABELS,
    Cluster::SET_ANNOTATIONS,
    Cluster::SET_ADDRESSES,
    EventSink::PERMISSION,
];

/// Name of the work queue in metrics (WQ-5).
const QUEUE: &str = "Nodes";

/// Back-off of a Node whose sync failed.
// upstream: 5 ms doubling to 1000 s. The first retries are wasted on a cloud that the layers have already called several times,
// and the last delays are too long for a cloud that has recovered.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(60) };

/// Watchdog timeout of the queue: one read covers a thousand Nodes, which takes most of an hour for a cloud that needs one call
/// per Node and allows one call per second.
const STALL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--concurrent-node-syncs`: number of Nodes that are initialised concurrently.
    pub concurrency: usize,
    /// `--concurrent-node-status-updates`: number of Nodes whose addresses are written concurrently.
    pub status_concurrency: usize,
    /// `--node-status-update-frequency`: pause between two syncs of all addresses.
    pub status_period: Duration,
    /// `--refresh-node-labels`: update the labels for zone, region and instance type with the addresses.
    pub refresh_labels: bool,
    /// `--node-address-order`, `--node-address-cidrs`: selection of addresses, for all providers.
    pub addresses: AddressPolicy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            concurrency: 16,
            status_concurrency: 16,
            status_period: Duration::from_secs(300),
            refresh_labels: false,
            addresses: AddressPolicy::default(),
        }
    }
}

/// The controller.
pub struct NodeController {
    shared: Arc<Shared>,
}

/// State that both loops share.
struct Shared {
    context: Context,
    options: Options,
    events: EventSource,
    queue: Queue<NodeName>,
    metrics: Metrics,
    /// Nodes that an operator has paused.
    paused: Arc<Paused<NodeName>>,
    states: NodeStates,
    /// Causes reported in Events.
    reported: Reports<NodeName>,
    /// Failures in the log, which also has causes without an Event.
    failures: Reports<NodeName>,
    /// Limit on concurrent writes.
    writers: Semaphore,
    /// Heartbeat of the address loop.
    addresses: Heartbeat,
    activity: Activity,
}

impl NodeController {
    /// Registers the event handler; syncs begin with [`run`](NodeController::run).
    pub fn new(context: Context, options: Options) -> Result<NodeController, prometheus::Error> {
        let queue = Queue::new(QUEUE, BACKOFF, &context.queues).with_stall_timeout(STALL_TIMEOUT);
        let addresses = Heartbeat::new();
        let paused = Arc::new(Paused::default());
        let components: [(Kind, String, Arc<dyn Component>); 3] = [
            (Kind::Controller, "paused".to_owned(), paused.clone()),
            (Kind::Queue, QUEUE.to_owned(), Arc::new(queue.clone())),
            (Kind::Controller, "addresses".to_owned(), Arc::new(addresses.clone())),
        ];
        let shared = Arc::new(Shared {
            events: context.events.source(NAME),
            metrics: Metrics::register(&context.metrics)?,
            paused,
            states: NodeStates::default(),
            reported: Reports::default(),
            failures: Reports::default(),
            writers: Semaphore::new(options.concurrency.max(1)),
            activity: Activity::new(&context, NAME, "cloud-node", components),
            addresses,
            queue,
            context,
            options,
        });
        shared.context.nodes.listen_for(&shared, Shared::on_node);
        shared.context.console.add(&shared, Shared::fill);
        Ok(NodeController { shared })
    }

    /// Runs until shutdown is requested, and then finishes the writes in progress.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.shared;
        let _running = shared.activity.runs();
        if shutdown.or(shared.context.nodes.synced()).await.is_none() {
            return;
        }
        tokio::join!(initialize::run(&shared, &shutdown), addresses::run(&shared, &shutdown));
    }
}

impl Shared {
    fn requeuer(&self) -> Requeuer<'_> {
        Requeuer { controller: NAME, queue: &self.queue, failures: &self.failures, nodes: &self.context.nodes }
    }

    /// Queues a Node that may need a sync (NODE-1), and forgets a deleted one.
    fn on_node(&self, change: &Change<Node>) {
        if let Change::Added(node) | Change::Updated { new: node, .. } = change {
            self.report_pause(node);
        }
        match change {
            Change::Added(node) => self.enqueue(node),
            Change::Updated { old, new } if old.uid != new.uid => {
                self.forget(&old.name);
                self.enqueue(new);
            }
            Change::Updated { old, new } if differs(old, new) => self.enqueue(new),
            Change::Updated { .. } => {}
            Change::Deleted(node) => self.forget(&node.name),
        }
    }

    /// Reports a Node that is paused by the annotation. One that is excluded by a label is not reported: that is permanent.
    fn report_pause(&self, node: &Node) {
        if is_paused(&node.annotations) {
            let object = ObjectRef::node(node);
            self.paused.report(&node.name, &object, &node.annotations, node.deleting, &self.events);
        } else {
            self.paused.forget(&node.name);
        }
    }

    fn forget(&self, name: &NodeName) {
        self.paused.forget(name);
        self.metrics.waiting.remove(name);
        self.queue.forget(name);
        self.states.forget(name);
        self.reported.forget(name);
        self.failures.forget(name);
    }

    fn enqueue(&self, node: &Node) {
        if node.is_uninitialized() && !node.is_paused() {
            self.states.record_waiting(&node.name);
            let age = node.age(self.context.clock.now()).unwrap_or_default();
            self.metrics.waiting.add(node.name.clone(), age);
        } else {
            self.metrics.waiting.remove(&node.name);
        }
        if node.is_uninitialized() || !decision::mirrored_labels(node).is_empty() {
            self.queue.add(node.name.clone(), Priority::High);
        }
    }
}

/// Whether a field differs that initialisation reads, unlike in a heartbeat.
fn differs(old: &Node, new: &Node) -> bool {
    old.taints != new.taints
        || old.labels != new.labels
        || old.annotations != new.annotations
        || old.provider_id != new.provider_id
        || old.addresses != new.addresses
        || old.system_uuid != new.system_uuid
}
