//! Allocation from the cluster CIDRs: concurrent workers take Nodes from the queue (IPAM-7, IPAM-9).

use std::sync::Arc;

use bowline_core::{Node, NodeName};
use bowline_kube::{EventType, WriteError};
use bowline_runtime::Shutdown;
use ipnet::IpNet;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::allocations::Reservation;
use super::{MAX_WRITES, Shared};
use crate::outcome::Outcome;
use crate::panics::propagate_panic;
use crate::spans;

/// Response code of the API server to a change of existing pod CIDRs, which are immutable.
const IMMUTABLE: u16 = 422;

/// Syncs queued Nodes until shutdown is requested, and then finishes the writes in progress.
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    // Dropping the set aborts the workers: they must not allocate after the controller is dropped.
    let mut tasks = JoinSet::new();
    for _ in 0..MAX_WRITES {
        tasks.spawn(work(shared.clone(), shutdown.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        propagate_panic(ended);
    }
    shared.queue.shut_down();
}

/// Worker: syncs one Node after the other.
async fn work(shared: Arc<Shared>, shutdown: Shutdown) {
    while let Some(Some(work)) = shutdown.or(shared.queue.next()).await {
        let sync = async {
            let outcome = sync(&shared, work.key()).await;
            shared.finish(&work, outcome);
        };
        sync.instrument(spans::sync(super::NAME, work.key())).await;
    }
}

async fn sync(shared: &Shared, name: &NodeName) -> Outcome {
    match shared.context.nodes.get(name.as_str()) {
        Some(node) if shared.needs_work(&node) => allocate(shared, &node).await,
        // Deleted, or has CIDRs by now, which the event handler has recorded.
        _ => Outcome::Done,
    }
}

/// Allocates one block of each cluster CIDR to the Node.
pub(super) async fn allocate(shared: &Shared, node: &Node) -> Outcome {
    if shared.is_unclear(&node.name)
        && let Some(outcome) = resolve_unclear(shared, node).await
    {
        return outcome;
    }
    match shared.reserve(node) {
        Reservation::Granted(cidrs) => write(shared, node, &cidrs).await,
        Reservation::Full(full) => {
            report_status(shared, node, "CIDRNotAvailable");
            Outcome::Retry(full.to_string())
        }
        Reservation::Moot => Outcome::Done,
    }
}

/// Reads the live Node after a write whose outcome is unknown. `None` if the Node has no CIDRs yet: it then gets the same CIDRs
/// again, so that a write still in flight changes nothing.
pub(super) async fn resolve_unclear(shared: &Shared, node: &Node) -> Option<Outcome> {
    match shared.context.cluster.node(&node.name).await {
        Ok(Some(live)) if live.uid != node.uid => shared.release(&node.name),
        Ok(Some(live)) if live.pod_cidrs.is_empty() => return None,
        Ok(Some(live)) => shared.observe_node(&live),
        Ok(None) => shared.release(&node.name),
        Err(error) => return Some(Outcome::Retry(error.to_string())),
    }
    Some(Outcome::Done)
}

/// Writes the CIDRs that are reserved for the Node (W-9). They are released only if they were certainly not written.
pub(super) async fn write(shared: &Shared, node: &Node, cidrs: &[IpNet]) -> Outcome {
    let error = match shared.context.cluster.set_pod_cidrs(node, cidrs).await {
        Ok(written) => {
            if !shared.context.cluster.is_dry_run() {
                tracing::info!(?cidrs, "allocated pod CIDRs to the node");
            }
            shared.observe_node(&written);
            shared.reported.forget(&node.name);
            return Outcome::Done;
        }
        Err(WriteError::NotFound(_)) => {
            shared.release(&node.name);
            return Outcome::Done;
        }
        Err(error @ (WriteError::Unavailable(_) | WriteError::Conflict(_))) => {
            if !shared.set_unclear(node) {
                return Outcome::Done;
            }
            error
        }
        Err(error @ WriteError::Rejected { code, .. }) => {
            // Other CIDRs on the Node are no failure, and the API server has them before the store does.
            if code == IMMUTABLE
                && let Some(outcome) = resolve_unclear(shared, node).await
            {
                return outcome;
            }
            shared.release(&node.name);
            if !shared.still_needs(node) {
                return Outcome::Done;
            }
            error
        }
    };
    report_status(shared, node, "CIDRAssignmentFailed");
    Outcome::Retry(format!("failed to write the pod CIDRs of node {}: {error}", node.name))
}

/// Emits an Event with the status of the Node, if it is new.
// upstream: such Events have type Normal and are repeated on every retry.
pub(super) fn report_status(shared: &Shared, node: &Node, status: &'static str) {
    let message = format!("Node {} status is now: {status}", node.name);
    shared.report(node, EventType::Normal, status, &message);
}
