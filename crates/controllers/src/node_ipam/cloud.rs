//! Allocation with a cloud that routes pod CIDRs to machines itself (IPAM-12): in batches, with one cloud read per batch.

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

use super::allocate::{allocate, report_status, resolve_unclear, write};
use super::allocations::Reservation;
use super::{AllocatorType, MAX_WRITES, Shared};
use crate::lanes::Lanes;
use crate::outcome::Outcome;
use crate::panics::propagate_panic;
use crate::spans;

/// Maximum number of Nodes per cloud read.
const BATCH: usize = 1000;

/// Maximum number of concurrent batches per cloud.
const MAX_BATCHES: usize = 4;

/// Debounce period of a batch: machines that boot together register within moments of each other.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Maximum age of a cloud's answer.
const FRESHNESS: Freshness = Freshness::Within(Duration::from_secs(5));

/// Interval at which all Nodes are compared with the cloud, where another client may have changed a CIDR.
// upstream: every 30 seconds, with one call for each Node.
const RESYNC: Duration = Duration::from_secs(300);

/// Condition of a Node whose cloud routes the pod CIDR to the machine itself.
const IMPLICIT_ROUTE: NetworkStatus =
    NetworkStatus { status: "False", reason: "RouteCreated", message: "NodeController created an implicit route" };

/// Syncs batches until shutdown is requested, and then finishes those in progress.
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    tokio::join!(work(shared, shutdown), resync(shared, shutdown));
}

async fn work(shared: &Arc<Shared>, shutdown: &Shutdown) {
    let mut tasks = JoinSet::new();
    let lanes = Lanes::new(&shared.context.clouds, MAX_BATCHES);
    while let Some(batch) = shutdown.or(next_batch(shared)).await {
        while let Some(ended) = tasks.try_join_next() {
            propagate_panic(ended);
        }
        for (permits, batch) in lanes.split(batch, |work| shared.context.nodes.get(work.key().as_str())) {
            let (shared, shutdown) = (shared.clone(), shutdown.clone());
            tasks.spawn(async move {
                let Some(Ok(_permit)) = shutdown.or(permits.acquire_owned()).await else { return };
                sync_batch(&shared, batch, &shutdown).await;
            });
        }
    }
    shared.queue.shut_down();
    while let Some(ended) = tasks.join_next().await {
        propagate_panic(ended);
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

/// Takes the next batch: all queued Nodes, after a debounce.
async fn next_batch(shared: &Shared) -> Vec<Work<NodeName>> {
    let mut batch = shared.queue.next_batch(BATCH).await;
    tokio::time::sleep(DEBOUNCE).await;
    if batch.len() < BATCH && !shared.queue.is_empty() {
        batch.extend(shared.queue.next_batch(BATCH - batch.len()).await);
    }
    batch
}

/// Syncs one batch.
async fn sync_batch(shared: &Shared, batch: Vec<Work<NodeName>>, shutdown: &Shutdown) {
    let mut nodes = Vec::new();
    for work in batch {
        match shared.context.nodes.get(work.key().as_str()) {
            Some(node) if shared.needs_work(&node) => nodes.push((work, node)),
            _ => shared.finish(&work, Outcome::Done),
        }
    }
    let instances: Vec<_> = nodes.iter().map(|(_, node)| InstanceRef::of(node)).collect();
    // Shutdown cancels the read: nothing has been written for these Nodes yet.
    let Some(answers) = shutdown.or(shared.context.clouds.observe_all(&instances, FRESHNESS)).await else { return };
    shared.queue.record_progress();
    nodes.iter().zip(&answers).for_each(|((_, node), answer)| reserve_for_machine(shared, node, answer));
    stream::iter(nodes.into_iter().zip(answers))
        .for_each_concurrent(MAX_WRITES, |((work, node), answer)| async move {
            if !shutdown.is_requested() {
                let sync = async {
                    let outcome = sync_node(shared, &node, answer).await;
                    shared.finish(&work, outcome);
                };
                sync.instrument(spans::sync(super::NAME, &node.name)).await;
            }
        })
        .await;
}

/// Reserves the CIDRs that the cloud has assigned to the Node's machine, whether or not the Node may have them: the cloud would
/// reject them for another machine, and a Node's CIDRs are immutable.
// upstream: allocates them to the next Node.
fn reserve_for_machine(shared: &Shared, node: &Node, answer: &Result<Ownership, Error>) {
    if let Ok(Ownership::Owned { state, .. }) = answer
        && let Some(instance) = state.instance().filter(|instance| !instance.pod_cidrs.is_empty())
        && mode(shared) == AllocationMode::Cluster
        && !shared.is_unclear(&node.name)
    {
        // A CIDR outside the cluster CIDRs is never allocated anyway.
        let _ = shared.reserve_specific(node, &instance.pod_cidrs);
    }
}

/// Syncs one Node with the cloud's answer.
async fn sync_node(shared: &Shared, node: &Node, answer: Result<Ownership, Error>) -> Outcome {
    match answer {
        Ok(Ownership::Owned { provider, state }) => match state.instance() {
            Some(instance) => apply(shared, node, &provider, &instance.pod_cidrs).await,
            None => Outcome::Retry(format!("the cloud provider {provider} has no machine for node {}", node.name)),
        },
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) => {
            Outcome::Retry(format!("no cloud provider has a machine for node {}", node.name))
        }
        // Another manager owns the machine and its CIDRs.
        Ok(Ownership::NoOwner(NoOwner::ForeignId(_) | NoOwner::Declined(_))) => Outcome::Done,
        Err(error) => cloud_error(node, &error),
    }
}

async fn apply(shared: &Shared, node: &Node, provider: &str, cloud: &[IpNet]) -> Outcome {
    match decide(&node.pod_cidrs, cloud, mode(shared)) {
        Step::Agreed => {
            shared.reported.forget(&node.name);
            set_network_available(shared, node).await
        }
        Step::WriteToNode(cidrs) => write_to_node(shared, node, &cidrs).await,
        Step::AssignInCloud(cidrs) => assign(shared, node, provider, &cidrs).await,
        // The write to the Node triggers another sync, which assigns the CIDR in the cloud. If the manager stops in between, the
        // next leader finds the CIDR on the Node.
        // upstream: assigns in the cloud first, and a CIDR that only the cloud has is lost for good.
        Step::Allocate => allocate(shared, node).await,
        Step::Refuse(conflict) => report_conflict(shared, node, &conflict),
    }
}

fn mode(shared: &Shared) -> AllocationMode {
    match shared.options.allocator {
        AllocatorType::FromCloud => AllocationMode::Cloud,
        AllocatorType::FromCluster | AllocatorType::Range => AllocationMode::Cluster,
    }
}

async fn write_to_node(shared: &Shared, node: &Node, cidrs: &[IpNet]) -> Outcome {
    if shared.is_unclear(&node.name)
        && let Some(outcome) = resolve_unclear(shared, node).await
    {
        return outcome;
    }
    match shared.reserve_specific(node, cidrs) {
        Ok(Reservation::Granted(_)) => {}
        Ok(_) => return Outcome::Done,
        Err(invalid) => return reject(shared, node, format!("The node cannot have the cloud's pod CIDR: {invalid}")),
    }
    match write(shared, node, cidrs).await {
        Outcome::Done => set_network_available(shared, node).await,
        failed => failed,
    }
}

async fn assign(shared: &Shared, node: &Node, provider: &str, cidrs: &[IpNet]) -> Outcome {
    let Some(cloud) = shared.context.clouds.iter().find(|cloud| &**cloud.name() == provider) else {
        return Outcome::Retry(format!("cloud provider {provider} is not configured"));
    };
    if let Err(invalid) = shared.admit(node) {
        return reject(shared, node, format!("The node's pod CIDR is not assigned to its machine: {invalid}"));
    }
    for cidr in cidrs {
        if let Err(error) = cloud.layers().assign_pod_cidrs(&InstanceRef::of(node), *cidr).await {
            report_status(shared, node, "CIDRAssignmentFailed");
            return cloud_error(node, &error);
        }
    }
    shared.reported.forget(&node.name);
    set_network_available(shared, node).await
}

/// Reports an invalid CIDR and retries: the CIDR may become free when another Node is deleted.
fn reject(shared: &Shared, node: &Node, message: String) -> Outcome {
    shared.report(node, EventType::Warning, "CloudCIDRAllocatorInvalidPodCIDR", &message);
    Outcome::Retry(message)
}

/// Reports a conflict between Node and cloud, which an operator or the cloud has to resolve.
fn report_conflict(shared: &Shared, node: &Node, conflict: &CloudIpamError) -> Outcome {
    let message = conflict.to_string();
    shared.report(node, EventType::Warning, conflict.reason(), &message);
    if conflict.is_retryable() { Outcome::Retry(message) } else { Outcome::Done }
}

/// Sets the condition NetworkUnavailable to False, unless it is.
async fn set_network_available(shared: &Shared, node: &Node) -> Outcome {
    if node.network.as_ref().is_some_and(|network| network.status == IMPLICIT_ROUTE.status) {
        return Outcome::Done;
    }
    match shared.context.cluster.set_network(node, &IMPLICIT_ROUTE, shared.context.clock.now()).await {
        Ok(_) | Err(WriteError::NotFound(_)) => Outcome::Done,
        Err(error) => {
            Outcome::Retry(format!("failed to set the condition NetworkUnavailable of node {}: {error}", node.name))
        }
    }
}

/// Outcome of a failed cloud call.
fn cloud_error(node: &Node, error: &Error) -> Outcome {
    let text = format!("failed to get or assign the pod CIDRs of node {} in the cloud: {error}", node.name);
    match error.retry_advice() {
        Retry::After(delay) => Outcome::RetryAfter(delay, text),
        Retry::Backoff | Retry::Never => Outcome::Retry(text),
    }
}
