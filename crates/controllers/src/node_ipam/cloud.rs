//! Where a cloud leads pod ranges to machines by itself (IPAM-12): in batches, with one cloud read for each.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, Freshness, NoOwner, Ownership, Retry};
use bowline_core::ipam::cloud::{AllocationMode, CloudIpamError, Step, decide};
use bowline_core::routes::NetworkStatus;
use bowline_core::{InstanceRef, Node, NodeName};
use bowline_kube::{EventType, WriteError};
use bowline_runtime::{Priority, Shutdown, Work};
use futures::stream::{self, StreamExt as _};
use ipnet::IpNet;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::allocate::{clear_up, give, say, write};
use super::book::Reservation;
use super::{AllocatorType, Shared, WRITERS};
use crate::lanes::Lanes;
use crate::outcome::Outcome;
use crate::panics::pass_on_panic;
use crate::spans;

/// The most Nodes that one read is made for.
const BATCH: usize = 1000;

/// How many batches may be under way for each cloud.
const BATCHES: usize = 4;

/// How long Nodes wait for more: machines that boot together register within moments of each other.
const GATHER: Duration = Duration::from_millis(100);

/// How old a cloud's answer may be.
const FRESHNESS: Freshness = Freshness::Within(Duration::from_secs(5));

/// How often all Nodes are compared with the cloud, where somebody may have changed a range.
// upstream: every 30 seconds, with one call for each Node.
const RESYNC: Duration = Duration::from_secs(300);

/// A cloud that leads the range to the machine needs no route.
const IMPLICIT_ROUTE: NetworkStatus =
    NetworkStatus { status: "False", reason: "RouteCreated", message: "NodeController created an implicit route" };

/// Works until shutdown is requested, and then finishes what is in hand.
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    tokio::join!(work(shared, shutdown), resync(shared, shutdown));
}

async fn work(shared: &Arc<Shared>, shutdown: &Shutdown) {
    let mut tasks = JoinSet::new();
    let lanes = Lanes::new(&shared.context.clouds, BATCHES);
    while let Some(batch) = shutdown.or(gather(shared)).await {
        while let Some(ended) = tasks.try_join_next() {
            pass_on_panic(ended);
        }
        for (places, batch) in lanes.split(batch, |work| shared.context.nodes.get(work.key().as_str())) {
            let (shared, shutdown) = (shared.clone(), shutdown.clone());
            tasks.spawn(async move {
                let Some(Ok(_place)) = shutdown.or(places.acquire_owned()).await else { return };
                sync(&shared, batch, &shutdown).await;
            });
        }
    }
    shared.queue.shut_down();
    while let Some(ended) = tasks.join_next().await {
        pass_on_panic(ended);
    }
}

async fn resync(shared: &Shared, shutdown: &Shutdown) {
    while shutdown.or(tokio::time::sleep(RESYNC)).await.is_some() {
        for node in shared.context.nodes.all() {
            if shared.needs_work(&node) {
                shared.queue.add(node.name.clone(), Priority::Low);
            }
        }
    }
}

/// The next batch: all that waits, with a moment's patience for more.
async fn gather(shared: &Shared) -> Vec<Work<NodeName>> {
    let mut batch = shared.queue.next_batch(BATCH).await;
    tokio::time::sleep(GATHER).await;
    if batch.len() < BATCH && !shared.queue.is_empty() {
        batch.extend(shared.queue.next_batch(BATCH - batch.len()).await);
    }
    batch
}

/// One pass over a batch.
async fn sync(shared: &Shared, batch: Vec<Work<NodeName>>, shutdown: &Shutdown) {
    let mut asked = Vec::new();
    for work in batch {
        match shared.context.nodes.get(work.key().as_str()) {
            Some(node) if shared.needs_work(&node) => asked.push((work, node)),
            _ => shared.settle(&work, Outcome::Done),
        }
    }
    let questions: Vec<_> = asked.iter().map(|(_, node)| InstanceRef::of(node)).collect();
    // A read may be given up at shutdown: nothing has been written for these Nodes yet.
    let Some(answers) = shutdown.or(shared.context.clouds.observe_all(&questions, FRESHNESS)).await else { return };
    shared.queue.made_progress();
    asked.iter().zip(&answers).for_each(|((_, node), answer)| keep_for(shared, node, answer));
    stream::iter(asked.into_iter().zip(answers))
        .for_each_concurrent(WRITERS, |((work, node), answer)| async move {
            if !shutdown.is_requested() {
                let pass = async {
                    let outcome = sync_answer(shared, &node, answer).await;
                    shared.settle(&work, outcome);
                };
                pass.instrument(spans::sync(super::NAME, &node.name)).await;
            }
        })
        .await;
}

/// A range that the cloud leads to a machine is given to no other Node, whether or not the Node of that machine may have it:
/// the cloud would not take it, and what a Node once has, it keeps.
// upstream: gives it to whoever is next.
fn keep_for(shared: &Shared, node: &Node, answer: &Result<Ownership, Error>) {
    if let Ok(Ownership::Owned { state, .. }) = answer
        && let Some(instance) = state.instance().filter(|instance| !instance.pod_ranges.is_empty())
        && lead(shared) == AllocationMode::Cluster
        && !shared.is_unclear(&node.name)
    {
        // One that is none of the cluster's is given to nobody anyway.
        let _ = shared.reserve_these(node, &instance.pod_ranges);
    }
}

/// What the cloud's answer means for this Node.
async fn sync_answer(shared: &Shared, node: &Node, answer: Result<Ownership, Error>) -> Outcome {
    match answer {
        Ok(Ownership::Owned { provider, state }) => match state.instance() {
            Some(instance) => apply(shared, node, &provider, &instance.pod_ranges).await,
            None => Outcome::Retry(format!("the cloud provider {provider} has no machine for node {}", node.name)),
        },
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) => {
            Outcome::Retry(format!("no cloud provider knows node {}", node.name))
        }
        // Another one's machine: its ranges are another one's affair.
        Ok(Ownership::NoOwner(NoOwner::ForeignId(_) | NoOwner::Declined(_))) => Outcome::Done,
        Err(error) => cloud_failed(node, &error),
    }
}

async fn apply(shared: &Shared, node: &Node, provider: &str, cloud: &[IpNet]) -> Outcome {
    match decide(&node.pod_cidrs, cloud, lead(shared)) {
        Step::Agreed => {
            shared.complaints.forget(&node.name);
            tell_network(shared, node).await
        }
        Step::WriteToNode(ranges) => write_to_node(shared, node, &ranges).await,
        Step::AssignInCloud(ranges) => assign(shared, node, provider, &ranges).await,
        // The change of the Node brings it back here, and then the cloud is told: so what a manager that ends in between
        // leaves is on the Node, where its successor sees it.
        // upstream: tells the cloud first, and a range that only the cloud knows is lost for good.
        Step::Allocate => give(shared, node).await,
        Step::Refuse(refusal) => refuse(shared, node, &refusal),
    }
}

fn lead(shared: &Shared) -> AllocationMode {
    match shared.options.allocator {
        AllocatorType::FromCloud => AllocationMode::Cloud,
        AllocatorType::FromCluster | AllocatorType::Range => AllocationMode::Cluster,
    }
}

async fn write_to_node(shared: &Shared, node: &Node, ranges: &[IpNet]) -> Outcome {
    if shared.is_unclear(&node.name)
        && let Some(outcome) = clear_up(shared, node).await
    {
        return outcome;
    }
    match shared.reserve_these(node, ranges) {
        Ok(Reservation::Granted(_)) => {}
        Ok(_) => return Outcome::Done,
        Err(misfit) => return object(shared, node, format!("The cloud's range cannot be the node's: {misfit}")),
    }
    match write(shared, node, ranges).await {
        Outcome::Done => tell_network(shared, node).await,
        failed => failed,
    }
}

async fn assign(shared: &Shared, node: &Node, provider: &str, ranges: &[IpNet]) -> Outcome {
    let Some(cloud) = shared.context.clouds.iter().find(|cloud| &**cloud.name() == provider) else {
        return Outcome::Retry(format!("there is no cloud provider {provider}"));
    };
    if let Err(misfit) = shared.admit(node) {
        return object(shared, node, format!("The node's range is not led to its machine: {misfit}"));
    }
    for range in ranges {
        if let Err(error) = cloud.layers().assign_pod_cidrs(&InstanceRef::of(node), *range).await {
            say(shared, node, "CIDRAssignmentFailed");
            return cloud_failed(node, &error);
        }
    }
    shared.complaints.forget(&node.name);
    tell_network(shared, node).await
}

/// The range may be free later, when another Node is gone.
fn object(shared: &Shared, node: &Node, message: String) -> Outcome {
    shared.complain(node, EventType::Warning, "CloudCIDRAllocatorInvalidPodCIDR", &message);
    Outcome::Retry(message)
}

/// Nothing is touched until a person has seen to it, or the cloud has changed its mind.
fn refuse(shared: &Shared, node: &Node, refusal: &CloudIpamError) -> Outcome {
    let message = refusal.to_string();
    shared.complain(node, EventType::Warning, refusal.reason(), &message);
    if refusal.is_retryable() { Outcome::Retry(message) } else { Outcome::Done }
}

/// Says that pods can be reached, unless somebody has said so.
async fn tell_network(shared: &Shared, node: &Node) -> Outcome {
    if node.network.as_ref().is_some_and(|told| told.status == IMPLICIT_ROUTE.status) {
        return Outcome::Done;
    }
    match shared.context.cluster.set_network(node, &IMPLICIT_ROUTE, shared.context.clock.now()).await {
        Ok(_) | Err(WriteError::NotFound(_)) => Outcome::Done,
        Err(error) => {
            Outcome::Retry(format!("failed to tell node {} that its pods can be reached: {error}", node.name))
        }
    }
}

/// The cloud gave no answer.
fn cloud_failed(node: &Node, error: &Error) -> Outcome {
    let text = format!("the cloud has no answer on the pod ranges of node {}: {error}", node.name);
    match error.retry_advice() {
        Retry::After(delay) => Outcome::RetryAfter(delay, text),
        Retry::Backoff | Retry::Never => Outcome::Retry(text),
    }
}
