//! The node-ipam-controller (IPAM-1 to IPAM-12): allocates pod CIDRs to Nodes.
//!
//! ```text
//!  store filled ──► Allocations: CIDRs of all Nodes ──► invalid CIDRs: exit with an error that lists them
//!
//!  Node without CIDRs ──► queue ──► plan: reserve ──► apply: one patch ──► report: Event, once for each cause
//!                           ▲         │ exhausted:      │ rejected: release, retry with back-off
//!                           │         ▼ wait            │ outcome unknown: keep; read the live Node before the retry
//!  Node deleted ──► release ──► waiting Nodes
//!
//!  with a cloud allocator ──► batches of keys ──► observe: one cloud read ──► plan: ipam::cloud::decide, per Node ──► apply
//!  every minute ──► usage of each cluster CIDR ──► ipam::forecast ──► gauges, and a warning before it is exhausted
//! ```
//!
//! All clouds share one [`Allocator`](bowline_core::ipam::Allocator): two would allocate the same CIDR twice. Event handlers update
//! it from the store under one lock, which reservations and releases take as well, so that a Node that is deleted meanwhile leaves
//! no reservation behind.

mod allocate;
mod allocations;
mod cloud;
mod console;
mod metrics;
#[cfg(test)]
mod tests;
mod usage;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use bowline_core::ipam::{ClusterCidr, InvalidPodCidr};
use bowline_core::{Node, NodeName, parse_cidr};
use bowline_kube::{Change, Cluster, EventSink, EventSource, EventType, ObjectRef, Permission};
use bowline_runtime::{Backoff, Component, Kind, Priority, Queue, Shutdown, Work};
use ipnet::IpNet;

use crate::Context;
use crate::activity::Activity;
use crate::outcome::{Outcome, Requeuer};
use crate::reports::Reports;
use allocations::Allocations;
use metrics::Metrics;

pub(crate) use metrics::METRICS;

/// Canonical name, in flags and health checks.
pub const NAME: &str = "node-ipam-controller";

// upstream: writes with the client of the process, whatever the flag.
/// Name of its client, and of its service account with `--use-service-account-credentials`.
pub const CLIENT: &str = "node-controller";

/// RBAC rules that it needs beyond the watches that all controllers share.
pub const PERMISSIONS: &[Permission] = &[Cluster::READ_NODE, Cluster::SET_POD_CIDRS, EventSink::PERMISSION];

/// Additional RBAC rules with a cloud allocator.
pub const PERMISSIONS_WITH_CLOUD: &[Permission] = &[Cluster::SET_NETWORK];

/// Name in Events.
// upstream: the allocator, not the controller.
const COMPONENT: &str = "cidrAllocator";

/// Name of the work queue in metrics (WQ-5).
const QUEUE: &str = "cidrallocator_node";

/// Back-off of a Node whose sync failed: the same as in the cloud-node-controller.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(60) };

/// Watchdog timeout of the queue with a cloud allocator: one read covers a thousand Nodes, which takes most of an hour for a cloud
/// that needs one call per Node and allows one call per second.
const STALL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Maximum number of concurrent writes of Nodes.
const MAX_WRITES: usize = 30;

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-cidr` with the masks of `--node-cidr-mask-size…`: one network, or one of each IP family, in the order given.
    pub cluster_cidrs: Vec<ClusterCidr>,
    /// `--service-cluster-ip-range`: Service addresses, which are excluded from pod CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// `--cidr-allocator-type`.
    pub allocator: AllocatorType,
}

/// Type of the pod CIDR allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocatorType {
    /// This controller allocates (`RangeAllocator`).
    #[default]
    Range,
    /// The cloud allocates, and this controller writes the CIDRs to the Node (`CloudAllocator`, `IPAMFromCloud`).
    FromCloud,
    /// This controller allocates and assigns the CIDRs to the machine in the cloud (`IPAMFromCluster`).
    FromCluster,
}

/// Error that prevents allocation.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// Nodes have invalid pod CIDRs (IPAM-6).
    #[error("{}", invalid_pod_cidrs(.0))]
    InvalidPodCidrs(Vec<InvalidPodCidr>),
}

fn invalid_pod_cidrs(invalid: &[InvalidPodCidr]) -> String {
    let each: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    format!(
        "cannot allocate pod CIDRs safely: {}; fix: set --cluster-cidr to cover them, or delete and re-register these nodes",
        each.join("; ")
    )
}

/// The controller.
pub struct NodeIpamController {
    shared: Arc<Shared>,
}

/// State that all tasks share.
struct Shared {
    context: Context,
    options: Options,
    events: EventSource,
    queue: Queue<NodeName>,
    metrics: Metrics,
    allocations: Allocations,
    /// Causes reported in Events.
    reported: Reports<NodeName>,
    /// Failures in the log, which also has causes without an Event.
    failures: Reports<NodeName>,
    /// Invalid pod CIDRs in the log.
    reported_invalid: Reports<NodeName>,
    activity: Activity,
}

impl NodeIpamController {
    /// Registers the event handler; syncs begin with [`run`](NodeIpamController::run).
    pub fn new(context: Context, options: Options) -> Result<NodeIpamController, prometheus::Error> {
        let queue = Queue::new(QUEUE, BACKOFF, &context.queues);
        // With a cloud allocator, one cloud read covers a thousand Nodes.
        let queue =
            if options.allocator == AllocatorType::Range { queue } else { queue.with_stall_timeout(STALL_TIMEOUT) };
        let components: [(Kind, String, Arc<dyn Component>); 1] =
            [(Kind::Queue, QUEUE.to_owned(), Arc::new(queue.clone()))];
        let shared = Arc::new(Shared {
            activity: Activity::new(&context, NAME, "nodeipam", components),
            events: context.events.source(COMPONENT),
            queue,
            metrics: Metrics::register(&context.metrics, &options.cluster_cidrs)?,
            allocations: Allocations::new(&options),
            reported: Reports::default(),
            failures: Reports::default(),
            reported_invalid: Reports::default(),
            context,
            options,
        });
        shared.context.nodes.listen_for(&shared, Shared::on_node);
        shared.context.console.add(&shared, Shared::fill);
        Ok(NodeIpamController { shared })
    }

    /// Runs until shutdown is requested, and then finishes the writes in progress. Ends early if Nodes have pod CIDRs that make
    /// allocation unsafe.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), IpamError> {
        let shared = self.shared;
        let _running = shared.activity.runs();
        if shutdown.or(shared.context.nodes.synced()).await.is_none() {
            return Ok(());
        }
        shared.open()?;
        match shared.options.allocator {
            AllocatorType::Range => tokio::join!(allocate::run(&shared, &shutdown), usage::run(&shared, &shutdown)),
            _ => tokio::join!(cloud::run(&shared, &shutdown), usage::run(&shared, &shutdown)),
        };
        Ok(())
    }
}

impl Shared {
    /// Finishes the sync of a Node: wakes the next waiting Node if this one did not use its capacity, and requeues this one.
    fn finish(&self, work: &Work<NodeName>, outcome: Outcome) {
        self.finish_waiting(work.key());
        let (queue, failures, nodes) = (&self.queue, &self.failures, &self.context.nodes);
        Requeuer { controller: NAME, queue, failures, nodes }.finish(work, outcome);
    }

    /// Records the pod CIDRs of Nodes, and queues those that may need a sync (IPAM-7, IPAM-10).
    fn on_node(&self, change: &Change<Node>) {
        match change {
            Change::Added(node) => self.on_change(node),
            Change::Updated { old, new } if differs(old, new) => self.on_change(new),
            Change::Updated { .. } => {}
            Change::Deleted(node) => self.on_deleted(node),
        }
    }

    fn on_change(&self, node: &Node) {
        if !node.pod_cidrs.is_empty() {
            self.observe_node(node);
        }
        if self.needs_work(node) {
            self.queue.add(node.name.clone(), Priority::High);
        }
    }

    fn on_deleted(&self, node: &Node) {
        self.release(&node.name);
        self.queue.forget(&node.name);
        self.reported.forget(&node.name);
        self.failures.forget(&node.name);
        self.reported_invalid.forget(&node.name);
        let is_unreadable = |text: &&String| parse_cidr(text).is_none();
        if self.options.allocator != AllocatorType::Range
            && let Some(text) = node.pod_cidrs.iter().find(is_unreadable)
        {
            let message = format!("Node {:?} has an invalid PodCIDR: {text:?}", node.name.as_str());
            let object = ObjectRef::node(node);
            self.events.emit(&object, EventType::Warning, "CloudCIDRAllocatorInvalidPodCIDR", message);
        }
    }

    /// Whether the Node needs a sync. One that is being deleted or is paused gets no pod CIDRs; those that it has count as used.
    fn needs_work(&self, node: &Node) -> bool {
        let is_served = self.options.allocator == AllocatorType::Range && !node.pod_cidrs.is_empty();
        !is_served && !node.deleting && !node.is_paused()
    }

    /// Logs an invalid pod CIDR that appeared after the start: once, because the Node keeps it.
    fn report_invalid(&self, node: &Node, invalid: &InvalidPodCidr) {
        if self.reported_invalid.is_new(&node.name, &node.uid, &invalid.to_string()) {
            self.metrics.invalid.inc();
            tracing::warn!(
                controller = NAME,
                key = %node.name,
                %invalid,
                "the node has an invalid pod CIDR; it is unchanged, and its part of the cluster CIDRs is not allocated to any \
                 other node; delete and re-register the node, or the next start of this program fails"
            );
        }
    }

    /// Emits an Event about the Node, unless it repeats the last one.
    fn report(&self, node: &Node, kind: EventType, reason: &'static str, message: &str) {
        if self.reported.is_new(&node.name, &node.uid, message) {
            self.events.emit(&ObjectRef::node(node), kind, reason, message);
        }
    }
}

/// Whether a field differs that allocation depends on, unlike in a heartbeat.
fn differs(old: &Node, new: &Node) -> bool {
    old.uid != new.uid
        || old.pod_cidrs != new.pod_cidrs
        || old.provider_id != new.provider_id
        || old.deleting != new.deleting
        || old.is_paused() != new.is_paused()
}
