//! The cloud-node-controller (NODE-1 to NODE-26): initialises Nodes, mirrors old labels to new ones, keeps
//! addresses and annotations fresh.
//!
//! Two loops over one store:
//!
//! ```text
//!  Node added or changed ──► queue ──► a batch of keys
//!                                        │ no init taint ──► initialize::mirrored_labels ──► one patch, if any
//!                                        │ init taint ──► observe: one cloud read for the batch
//!                                        ▼
//!                              initialize::decide, per Node ──► NodeChange ──► one patch, one status patch, one Event
//!
//!  every status period ──► all initialised Nodes ──► observe: one cloud read ──► addresses::decide,
//!                         node_annotations::decide ──► patches, if any
//! ```
//!
//! Heartbeats do not reach the queue: a change that touches nothing of what initialising looks at is dropped by the
//! listener, so that a Node in back-off stays there.

mod addresses;
mod initialize;
mod memory;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use bowline_core::{AddressPolicy, Node, NodeName, initialize as decision, is_paused};
use bowline_kube::{Change, Cluster, EventSink, EventSource, ObjectRef, Permission};
use bowline_runtime::{Backoff, Heartbeat, Kind, Part, Priority, Queue, Shutdown};
use tokio::sync::Semaphore;

use crate::Context;
use crate::activity::Activity;
use crate::complaints::Complaints;
use crate::outcome::Tries;
use crate::pause::Paused;
use memory::Memory;
use metrics::Metrics;

pub(crate) use metrics::METRICS;

/// The canonical name, in flags, health checks and Events.
pub const NAME: &str = "cloud-node-controller";

/// The name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "node-controller";

/// What it asks of the API server beyond the watches that all share.
pub const PERMISSIONS: &[Permission] = &[
    Cluster::READ_NODE,
    Cluster::INITIALIZE,
    Cluster::SET_LABELS,
    Cluster::SET_ANNOTATIONS,
    Cluster::SET_ADDRESSES,
    EventSink::PERMISSION,
];

/// The queue's name in metrics (WQ-5).
const QUEUE: &str = "Nodes";

/// How long a Node that failed waits for its next try.
// upstream: 5 ms doubling to 1000 s. The first of those are wasted on a cloud, which the layers have asked several times
// already, and the last are too long for a cloud that has recovered.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(60) };

/// How long none of many Nodes may be finished: the cloud is asked about a thousand of them at once, which takes most of an
/// hour where it takes one call per second.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--concurrent-node-syncs`: Nodes that are written at once.
    pub concurrency: usize,
    /// `--concurrent-node-status-updates`: addresses that are written at once.
    pub status_concurrency: usize,
    /// `--node-status-update-frequency`: the pause between two looks at all addresses.
    pub status_period: Duration,
    /// `--refresh-node-labels`: labels for zone, region and instance type follow the machine, at the same pace.
    pub refresh_labels: bool,
    /// `--node-address-order`, `--node-address-cidrs`: selection of addresses, whatever the provider.
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

/// What both loops work with.
struct Shared {
    context: Context,
    options: Options,
    events: EventSource,
    queue: Queue<NodeName>,
    metrics: Metrics,
    /// Nodes that an operator has paused.
    paused: Arc<Paused<NodeName>>,
    memory: Memory,
    complaints: Complaints<NodeName>,
    /// The same for the log, which has causes that are no Events.
    failures: Complaints<NodeName>,
    writers: Semaphore,
    /// The look at all addresses.
    addresses: Heartbeat,
    activity: Activity,
}

impl NodeController {
    /// Listens to the Nodes from now on; works once it [runs](NodeController::run).
    pub fn new(context: Context, options: Options) -> Result<NodeController, prometheus::Error> {
        let queue = Queue::new(QUEUE, BACKOFF, &context.queues).with_patience(PATIENCE);
        let addresses = Heartbeat::new();
        let paused = Arc::new(Paused::default());
        let parts: [(Kind, String, Arc<dyn Part>); 3] = [
            (Kind::Controller, "paused".to_owned(), paused.clone()),
            (Kind::Queue, QUEUE.to_owned(), Arc::new(queue.clone())),
            (Kind::Controller, "addresses".to_owned(), Arc::new(addresses.clone())),
        ];
        let shared = Arc::new(Shared {
            events: context.events.source(NAME),
            metrics: Metrics::register(&context.metrics)?,
            paused,
            memory: Memory::default(),
            complaints: Complaints::default(),
            failures: Complaints::default(),
            writers: Semaphore::new(options.concurrency.max(1)),
            activity: Activity::new(&context, NAME, "cloud-node", parts),
            addresses,
            queue,
            context,
            options,
        });
        shared.context.nodes.listen_for(&shared, Shared::heard);
        Ok(NodeController { shared })
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand.
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
    /// Where its Nodes wait for their next try.
    fn tries(&self) -> Tries<'_> {
        Tries { controller: NAME, queue: &self.queue, failures: &self.failures, nodes: &self.context.nodes }
    }

    /// Queues what may need work (NODE-1), and forgets what is gone.
    fn heard(&self, change: &Change<Node>) {
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

    /// Reports a Node that is paused by the annotation; a label is for good and no news.
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
        self.memory.forget(name);
        self.complaints.forget(name);
        self.failures.forget(name);
    }

    fn enqueue(&self, node: &Node) {
        if node.is_uninitialized() && !node.is_paused() {
            self.memory.saw(&node.name);
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

/// Something has changed that initialising a Node looks at; a heartbeat has not.
fn differs(old: &Node, new: &Node) -> bool {
    old.taints != new.taints
        || old.labels != new.labels
        || old.annotations != new.annotations
        || old.provider_id != new.provider_id
        || old.addresses != new.addresses
        || old.system_uuid != new.system_uuid
}
