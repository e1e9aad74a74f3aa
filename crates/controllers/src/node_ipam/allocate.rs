//! Giving Nodes ranges of the cluster's: from the queue, several at once (IPAM-7, IPAM-9).

use std::sync::Arc;

use bowline_core::{Node, NodeName};
use bowline_kube::{EventType, WriteError};
use bowline_runtime::Shutdown;
use ipnet::IpNet;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::book::Reservation;
use super::{Shared, WRITERS};
use crate::outcome::Outcome;
use crate::panics::pass_on_panic;
use crate::spans;

/// How the API server answers who wants to change a Node's ranges: what it has, it keeps.
const HAS_OTHERS: u16 = 422;

/// Works until shutdown is requested, and then finishes what is in hand.
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    // Whoever gives this up gives up its writers, too: they would hand out ranges from an account that nobody keeps.
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        tasks.spawn(work(shared.clone(), shutdown.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        pass_on_panic(ended);
    }
    shared.queue.shut_down();
}

/// One Node after the other.
async fn work(shared: Arc<Shared>, shutdown: Shutdown) {
    while let Some(Some(work)) = shutdown.or(shared.queue.next()).await {
        let pass = async {
            let outcome = sync(&shared, work.key()).await;
            shared.settle(&work, outcome);
        };
        pass.instrument(spans::sync(super::NAME, work.key())).await;
    }
}

async fn sync(shared: &Shared, name: &NodeName) -> Outcome {
    match shared.context.nodes.get(name.as_str()) {
        Some(node) if shared.needs_work(&node) => give(shared, &node).await,
        // Gone, or served by now: the listener has noted what it has.
        _ => Outcome::Done,
    }
}

/// Gives the Node one block of each range.
pub(super) async fn give(shared: &Shared, node: &Node) -> Outcome {
    if shared.is_unclear(&node.name)
        && let Some(outcome) = clear_up(shared, node).await
    {
        return outcome;
    }
    match shared.reserve(node) {
        Reservation::Granted(ranges) => write(shared, node, &ranges).await,
        Reservation::Full(full) => {
            say(shared, node, "CIDRNotAvailable");
            Outcome::Retry(full.to_string())
        }
        Reservation::Moot => Outcome::Done,
    }
}

/// The last write may have landed: only the API server can tell. `None` if the Node has nothing yet, and so gets the same
/// ranges again: even a write that is still on its way then changes nothing.
pub(super) async fn clear_up(shared: &Shared, node: &Node) -> Option<Outcome> {
    match shared.context.cluster.node(&node.name).await {
        Ok(Some(live)) if live.uid != node.uid => shared.give_back(&node.name),
        Ok(Some(live)) if live.pod_cidrs.is_empty() => return None,
        Ok(Some(live)) => shared.learn(&live),
        Ok(None) => shared.give_back(&node.name),
        Err(error) => return Some(Outcome::Retry(error.to_string())),
    }
    Some(Outcome::Done)
}

/// Writes the ranges that are reserved for the Node (W-9). They are given back only if they surely were not written.
pub(super) async fn write(shared: &Shared, node: &Node, ranges: &[IpNet]) -> Outcome {
    let error = match shared.context.cluster.set_pod_cidrs(node, ranges).await {
        Ok(written) => {
            if !shared.context.cluster.is_dry_run() {
                tracing::info!(?ranges, "gave a node its pod ranges");
            }
            shared.learn(&written);
            shared.complaints.forget(&node.name);
            return Outcome::Done;
        }
        Err(WriteError::NotFound(_)) => {
            shared.give_back(&node.name);
            return Outcome::Done;
        }
        Err(error @ (WriteError::Unavailable(_) | WriteError::Conflict(_))) => {
            if !shared.set_unclear(node) {
                return Outcome::Done;
            }
            error
        }
        Err(error @ WriteError::Rejected { code, .. }) => {
            // That it has others by now is no failure, and the API server knows it before the store does.
            if code == HAS_OTHERS
                && let Some(outcome) = clear_up(shared, node).await
            {
                return outcome;
            }
            shared.give_back(&node.name);
            if !shared.still_needs(node) {
                return Outcome::Done;
            }
            error
        }
    };
    say(shared, node, "CIDRAssignmentFailed");
    Outcome::Retry(format!("failed to write the pod ranges of node {}: {error}", node.name))
}

/// Says that this is how things stand with the Node, if that is news.
// upstream: such Events are Normal, and repeated with every try.
pub(super) fn say(shared: &Shared, node: &Node, status: &'static str) {
    let message = format!("Node {} status is now: {status}", node.name);
    shared.complain(node, EventType::Normal, status, &message);
}
