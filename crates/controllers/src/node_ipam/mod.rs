//! The node-ipam-controller (IPAM-1 to IPAM-12): pod ranges for every Node.
//!
//! ```text
//!  the store is complete ──► Book: what every Node has ──► misfits end it, all of them named
//!
//!  Node without ranges ──► queue ──► Book.reserve ──► one patch ──► done
//!                            ▲         │ full: waits    │ refused: given back, tried again later
//!                            │         ▼                │ unclear: kept; the live Node is read before the next try
//!  Node gone ──► Book.release ──► those that wait       ▼
//!                                                      an Event, once for each cause
//!
//!  where a cloud has a say ──► batches of keys ──► observe: one cloud read ──► ipam::cloud::decide, per Node ──► a write
//!  every minute ──► use of each range ──► ipam::forecast ──► gauges, and a warning while there is time
//! ```
//!
//! There is one [`Allocator`](bowline_core::ipam::Allocator) for all clouds: two would hand out the same range twice. It
//! follows the store, change by change, under one lock; that lock is also held when a reservation is made or given back, so
//! that a Node that is deleted meanwhile leaves nothing behind.

mod allocate;
mod book;
mod cloud;
mod line;
mod metrics;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bowline_core::ipam::{ClusterCidr, InvalidPodCidr};
use bowline_core::{Node, NodeName, parse_cidr};
use bowline_kube::{Change, Cluster, EventSink, EventSource, EventType, ObjectRef, Permission};
use bowline_runtime::{Backoff, Kind, Part, Priority, Queue, Shutdown, Work};
use ipnet::IpNet;

use crate::Context;
use crate::activity::Activity;
use crate::complaints::Complaints;
use crate::outcome::{Outcome, Tries};
use book::Ledger;
use metrics::Metrics;

pub(crate) use metrics::METRICS;

/// The canonical name, in flags and health checks.
pub const NAME: &str = "node-ipam-controller";

// upstream: writes in the name of the process, whatever the flag says.
/// The name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "node-controller";

/// What it asks of the API server beyond the watches that all share.
pub const PERMISSIONS: &[Permission] = &[Cluster::READ_NODE, Cluster::SET_POD_CIDRS, EventSink::PERMISSION];

/// What it asks for beyond that where a cloud has a say in the ranges.
pub const PERMISSIONS_WITH_CLOUD: &[Permission] = &[Cluster::SET_NETWORK];

/// Who speaks in Events.
// upstream: the allocator, not the controller.
const COMPONENT: &str = "cidrAllocator";

/// The queue's name in metrics (WQ-5).
const QUEUE: &str = "cidrallocator_node";

/// How long a Node that failed waits for its next try: as long as in the queue of the cloud-node-controller.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(60) };

/// How long none of many Nodes may be finished where the cloud is asked about all of them: most of an hour, where it takes
/// one call per second.
const BATCH_PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Nodes that are written at once.
const WRITERS: usize = 30;

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-cidr` with the masks of `--node-cidr-mask-size…`: one range, or one of each family, in the order given.
    pub ranges: Vec<ClusterCidr>,
    /// `--service-cluster-ip-range`: addresses of Services, which no pod may have.
    pub services: Vec<IpNet>,
    /// `--cidr-allocator-type`: who decides.
    pub allocator: AllocatorType,
}

/// Who decides which range a Node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocatorType {
    /// We do (`RangeAllocator`).
    #[default]
    Range,
    /// The cloud does, and we write it to the Node (`CloudAllocator`, `IPAMFromCloud`).
    FromCloud,
    /// We do, and tell the cloud (`IPAMFromCluster`).
    FromCluster,
}

/// Why no ranges can be handed out.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// Nodes have ranges that they cannot have (IPAM-6).
    #[error("{}", misfits(.0))]
    Misfits(Vec<InvalidPodCidr>),
}

fn misfits(misfits: &[InvalidPodCidr]) -> String {
    let each: Vec<String> = misfits.iter().map(ToString::to_string).collect();
    format!(
        "pod ranges cannot be handed out safely: {}; set --cluster-cidr to cover them, or delete and re-register these nodes",
        each.join("; ")
    )
}

/// The controller.
pub struct NodeIpamController {
    shared: Arc<Shared>,
}

/// What its loops work with.
struct Shared {
    context: Context,
    options: Options,
    events: EventSource,
    queue: Queue<NodeName>,
    metrics: Metrics,
    ledger: Ledger,
    complaints: Complaints<NodeName>,
    /// The same for the log, which has causes that are no Events.
    failures: Complaints<NodeName>,
    misfits: Complaints<NodeName>,
    activity: Activity,
}

impl NodeIpamController {
    /// Listens to the Nodes from now on; works once it [runs](NodeIpamController::run).
    pub fn new(context: Context, options: Options) -> Result<NodeIpamController, prometheus::Error> {
        let queue = Queue::new(QUEUE, BACKOFF, &context.queues);
        // Where a cloud has a say, it is asked about a thousand Nodes at once.
        let queue = if options.allocator == AllocatorType::Range { queue } else { queue.with_patience(BATCH_PATIENCE) };
        let parts: [(Kind, String, Arc<dyn Part>); 1] = [(Kind::Queue, QUEUE.to_owned(), Arc::new(queue.clone()))];
        let shared = Arc::new(Shared {
            activity: Activity::new(&context, NAME, "nodeipam", parts),
            events: context.events.source(COMPONENT),
            queue,
            metrics: Metrics::register(&context.metrics, &options.ranges)?,
            ledger: Ledger::new(&options),
            complaints: Complaints::default(),
            failures: Complaints::default(),
            misfits: Complaints::default(),
            context,
            options,
        });
        shared.context.nodes.listen_for(&shared, Shared::heard);
        Ok(NodeIpamController { shared })
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand. Ends early if Nodes have ranges with which
    /// none can be handed out safely.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), IpamError> {
        let shared = self.shared;
        let _running = shared.activity.runs();
        if shutdown.or(shared.context.nodes.synced()).await.is_none() {
            return Ok(());
        }
        shared.open()?;
        match shared.options.allocator {
            AllocatorType::Range => tokio::join!(allocate::run(&shared, &shutdown), watch::run(&shared, &shutdown)),
            _ => tokio::join!(cloud::run(&shared, &shutdown), watch::run(&shared, &shutdown)),
        };
        Ok(())
    }
}

impl Shared {
    /// What becomes of a Node, and of those that wait for it.
    fn settle(&self, work: &Work<NodeName>, outcome: Outcome) {
        self.pass_on(work.key());
        let (queue, failures, nodes) = (&self.queue, &self.failures, &self.context.nodes);
        Tries { controller: NAME, queue, failures, nodes }.settle(work, outcome);
    }

    /// Notes what Nodes have, and queues those that may need something (IPAM-7, IPAM-10).
    fn heard(&self, change: &Change<Node>) {
        match change {
            Change::Added(node) => self.noticed(node),
            Change::Updated { old, new } if differs(old, new) => self.noticed(new),
            Change::Updated { .. } => {}
            Change::Deleted(node) => self.lost(node),
        }
    }

    fn noticed(&self, node: &Node) {
        if !node.pod_cidrs.is_empty() {
            self.learn(node);
        }
        if self.needs_work(node) {
            self.queue.add(node.name.clone(), Priority::High);
        }
    }

    fn lost(&self, node: &Node) {
        self.give_back(&node.name);
        self.queue.forget(&node.name);
        self.complaints.forget(&node.name);
        self.failures.forget(&node.name);
        self.misfits.forget(&node.name);
        let is_unreadable = |text: &&String| parse_cidr(text).is_none();
        if self.options.allocator != AllocatorType::Range
            && let Some(text) = node.pod_cidrs.iter().find(is_unreadable)
        {
            let message = format!("Node {:?} has an invalid PodCIDR: {text:?}", node.name.as_str());
            let object = ObjectRef::node(node);
            self.events.emit(&object, EventType::Warning, "CloudCIDRAllocatorInvalidPodCIDR", message);
        }
    }

    /// A Node that is being deleted, and one that is not for us, get nothing; what they have counts.
    fn needs_work(&self, node: &Node) -> bool {
        let is_served = self.options.allocator == AllocatorType::Range && !node.pod_cidrs.is_empty();
        !is_served && !node.deleting && !node.is_paused()
    }

    /// Tells a misfit that appeared after the start: once, because its Node keeps it.
    fn tell_misfit(&self, node: &Node, misfit: &InvalidPodCidr) {
        if self.misfits.is_news(&node.name, &node.uid, &misfit.to_string()) {
            self.metrics.misfits.inc();
            tracing::warn!(
                controller = NAME,
                key = %node.name,
                %misfit,
                "the node is left alone, and what it uses of the cluster's ranges is given to no other node. Delete and \
                 re-register the node, or the next start of this program fails"
            );
        }
    }

    /// Says this about the Node, unless it was the last thing that was said.
    fn complain(&self, node: &Node, kind: EventType, reason: &'static str, message: &str) {
        if self.complaints.is_news(&node.name, &node.uid, message) {
            self.events.emit(&ObjectRef::node(node), kind, reason, message);
        }
    }
}

/// Something has changed that ranges depend on; a heartbeat has not.
fn differs(old: &Node, new: &Node) -> bool {
    old.uid != new.uid
        || old.pod_cidrs != new.pod_cidrs
        || old.provider_id != new.provider_id
        || old.deleting != new.deleting
        || old.is_paused() != new.is_paused()
}
