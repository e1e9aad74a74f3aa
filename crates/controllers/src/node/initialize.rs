//! Initialisation of Nodes: workers take batches from the queue, with one cloud read per batch.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, Freshness, NoOwner, Ownership, Retry};
use bowline_core::initialize::{self, InitializeError, NodeChange};
use bowline_core::{Instance, InstanceRef, InstanceState, Node, NodeName, addresses};
use bowline_kube::{EventType, ObjectRef, WriteError};
use bowline_runtime::{Shutdown, Work};
use futures::stream::{self, StreamExt as _};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::Shared;
use super::console::CLOUD_UNAVAILABLE;
use super::state::LAG;
use crate::lanes::Lanes;
use crate::outcome::Outcome;
use crate::spans;

/// Maximum number of Nodes per cloud read.
const BATCH: usize = 1000;

/// Number of queued Nodes from which a batch is read at once; a smaller one waits for more within [`DEBOUNCE`]. Clouds return about
/// this many machines per call.
const FULL_BATCH: usize = 100;

/// Debounce period of a small batch: machines that boot together register within moments of each other.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Maximum debounce while more Nodes register. A cloud that lists has the same cost for few Nodes as for many, so that a thousand
/// Nodes at fifty per second take ten reads, not a hundred.
const MAX_DEBOUNCE: Duration = Duration::from_secs(2);

/// Maximum number of concurrent batches per cloud: enough to read the next batch while the last one is written, few enough that a
/// new Node does not wait behind thousands.
const MAX_BATCHES: usize = 4;

/// Maximum age of a cloud's answer. A machine's metadata hardly changes, and "gone" is never served from a cache.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Maximum number of attempts of a write that meets conflicts (NODE-14), and the pause before a retry, with up to 100 % jitter.
const MAX_ATTEMPTS: u32 = 20;
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

/// Delay before a Node that a provider declined is synced again.
const DECLINED_PAUSE: Duration = Duration::from_secs(60);

/// Syncs batches until shutdown is requested, and then finishes those in progress.
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    let tasks = TaskTracker::new();
    let lanes = Lanes::new(&shared.context.clouds, MAX_BATCHES);
    while let Some(batch) = shutdown.or(next_batch(shared)).await {
        for (permits, batch) in lanes.split(batch, |work| shared.context.nodes.get(work.key().as_str())) {
            let (shared, shutdown) = (shared.clone(), shutdown.clone());
            tasks.spawn(async move {
                let Some(Ok(_permit)) = shutdown.or(permits.acquire_owned()).await else { return };
                sync_batch(&shared, batch, &shutdown).instrument(spans::batch(super::NAME)).await;
            });
        }
    }
    shared.queue.shut_down();
    tasks.close();
    tasks.wait().await;
}

/// Takes the next batch: all queued Nodes, after a debounce while the batch is small and more Nodes arrive.
async fn next_batch(shared: &Shared) -> Vec<Work<NodeName>> {
    let mut batch = shared.queue.next_batch(BATCH).await;
    let begin = Instant::now();
    while batch.len() < FULL_BATCH
        && begin.elapsed() < MAX_DEBOUNCE
        && batch.iter().any(|work| is_uninitialized(shared, work.key()))
    {
        tokio::time::sleep(DEBOUNCE).await;
        if shared.queue.is_empty() {
            break;
        }
        batch.extend(shared.queue.next_batch(BATCH - batch.len()).await);
    }
    batch
}

fn is_uninitialized(shared: &Shared, name: &NodeName) -> bool {
    shared.context.nodes.get(name.as_str()).is_some_and(|node| node.is_uninitialized())
}

/// Syncs one batch.
async fn sync_batch(shared: &Shared, batch: Vec<Work<NodeName>>, shutdown: &Shutdown) {
    let mut uninitialized = Vec::new();
    let mut initialized = Vec::new();
    for work in batch {
        match shared.context.nodes.get(work.key().as_str()) {
            Some(node) if node.is_paused() => shared.queue.forget(work.key()),
            Some(node) if shared.states.is_outdated(&node) => shared.requeuer().finish(&work, Outcome::Rest(LAG)),
            Some(node) if node.is_uninitialized() => uninitialized.push((work, node)),
            Some(node) => initialized.push((work, node)),
            // The Node was deleted meanwhile (NODE-4).
            None => shared.queue.forget(work.key()),
        }
    }
    tokio::join!(sync_uninitialized(shared, uninitialized, shutdown), sync_labels(shared, initialized));
}

/// Observes the machines of all these Nodes with one cloud read, and initialises each Node as soon as its answer arrives.
async fn sync_uninitialized(shared: &Shared, nodes: Vec<(Work<NodeName>, Arc<Node>)>, shutdown: &Shutdown) {
    if nodes.is_empty() {
        return;
    }
    let instances: Vec<_> = nodes.iter().map(|(_, node)| InstanceRef::of(node)).collect();
    let freshness = freshness(shared, nodes.iter().map(|(_, node)| &**node));
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    // Shutdown cancels the read: nothing has been written for its Nodes yet.
    let answers = shared.context.clouds.observe(&instances, freshness).take_until(shutdown.requested());
    let answered = answers.filter_map(|(index, answer)| {
        shared.queue.record_progress();
        let node = nodes.get_mut(index).and_then(Option::take);
        std::future::ready(node.map(|(work, node)| (work, node, answer)))
    });
    // A limit besides the permits, because each pending write takes some kilobytes.
    answered
        .for_each_concurrent(shared.options.concurrency.max(1), |(work, node, answer)| async move {
            let work = async {
                let outcome = sync_node(shared, &node, answer, shutdown).await;
                shared.requeuer().finish(&work, outcome);
            };
            work.instrument(spans::sync(super::NAME, &node.name)).await;
        })
        .await;
}

/// Maximum age of the answers for these Nodes: an answer by name that is older than the Node may be about an earlier machine of
/// that name.
fn freshness<'a>(shared: &Shared, nodes: impl Iterator<Item = &'a Node>) -> Freshness {
    let by_name = nodes.filter(|node| node.provider_id.is_none());
    let known_for = by_name.filter_map(|node| shared.states.waiting_time(&node.name));
    Freshness::Within(known_for.chain([MAX_AGE]).min().unwrap_or(MAX_AGE))
}

/// Syncs one Node with the cloud's answer (NODE-6).
async fn sync_node(
    shared: &Shared,
    node: &Arc<Node>,
    answer: Result<Ownership, Error>,
    shutdown: &Shutdown,
) -> Outcome {
    match answer {
        Ok(Ownership::Owned { state: InstanceState::Running(instance) | InstanceState::Stopped(instance), .. }) => {
            let Ok(_permit) = shared.writers.acquire().await else { return Outcome::Done };
            if shutdown.is_requested() {
                return Outcome::Done;
            }
            initialize(shared, node, &with_selected_addresses(shared, node, &instance)).await
        }
        Ok(Ownership::Owned { provider, .. }) => report_not_found(shared, node, &provider),
        Ok(Ownership::NoOwner(why)) => report_no_owner(shared, node, &why),
        Err(error) => report_cloud_error(shared, node, &error),
    }
}

/// Returns the machine with the addresses that the policy selects.
fn with_selected_addresses<'a>(shared: &Shared, node: &Node, instance: &'a Instance) -> Cow<'a, Instance> {
    let policy = &shared.options.addresses;
    if !policy.matches(instance) {
        tracing::warn!(node = %node.name, "the machine has no address in --node-address-cidrs; all of its addresses are used");
    }
    policy.apply(instance)
}

/// Writes the changes of initialisation, and plans again after a conflict with another writer (NODE-14).
async fn initialize(shared: &Shared, node: &Arc<Node>, instance: &Instance) -> Outcome {
    let mut current = node.clone();
    for attempt in 0..MAX_ATTEMPTS {
        let change = match initialize::decide(&current, instance) {
            Ok(change) => change,
            Err(error) => return report_conflict(shared, node, &error),
        };
        match shared.context.cluster.initialize(&change).await {
            Ok(written) => {
                for warning in &change.warnings {
                    tracing::warn!(%warning, "the node is initialised, with a warning");
                }
                return finish(shared, &change, &written, instance).await;
            }
            Err(WriteError::Conflict(_)) => {}
            Err(WriteError::NotFound(_)) => return Outcome::Done,
            Err(error) => return report_write_error(shared, node, &error),
        }
        // A single conflict is a heartbeat, and an immediate retry succeeds. Repeated conflicts mean that another client writes
        // continuously.
        if attempt > 0 {
            tokio::time::sleep(CONFLICT_PAUSE + CONFLICT_PAUSE.mul_f64(fastrand::f64())).await;
        }
        // The store is at best as old as the state that met the conflict, so the API server is read.
        current = match shared.context.cluster.node(&node.name).await {
            Ok(Some(live)) if live.uid == node.uid && live.is_uninitialized() => Arc::new(live),
            // Another client has initialised the Node, or our own write succeeded and its response was lost.
            Ok(Some(live)) if live.uid == node.uid => {
                write_addresses(shared, &live, instance).await;
                return Outcome::Done;
            }
            Ok(_) => return Outcome::Done,
            Err(error) => return Outcome::Retry(error.to_string()),
        };
    }
    Outcome::Retry(format!("conflict: another client changed the node during each of {MAX_ATTEMPTS} writes"))
}

/// Finishes the initialisation after the taint is removed; the remaining writes are best effort (NODE-15, NODE-16).
async fn finish(shared: &Shared, change: &NodeChange, node: &Node, instance: &Instance) -> Outcome {
    shared.states.record_write(node);
    shared.metrics.waiting.remove(&node.name);
    shared.reported.forget(&node.name);
    shared.metrics.taint_removed(node, shared.context.clock.now());
    write_addresses(shared, node, instance).await;
    // upstream: the Event refers to the resource version before the write.
    let object = ObjectRef::node(node).at(&change.resource_version);
    shared.events.emit(&object, EventType::Normal, "Synced", "Node synced successfully");
    shared.metrics.initialized(node, shared.context.clock.now(), shared.states.take_waiting_time(&node.name));
    Outcome::Done
}

async fn write_addresses(shared: &Shared, node: &Node, instance: &Instance) {
    match addresses::decide(node, &instance.addresses) {
        Ok(Some(desired)) => {
            if let Err(error) = shared.context.cluster.set_addresses(&node.name, &desired).await {
                tracing::warn!(
                    %error,
                    "the node is initialised, but its addresses could not be written; retried after the status period"
                );
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the addresses of the node are unchanged"),
    }
}

// ---- report: causes that block initialisation, each reported once

/// Reports a contradiction between the cloud and the Node (NODE-9, NODE-11).
fn report_conflict(shared: &Shared, node: &Node, error: &InitializeError) -> Outcome {
    set_waiting_reason(shared, node, "InitializationFailed");
    report(shared, node, "InitializationFailed", &error.to_string());
    Outcome::Retry(error.to_string())
}

/// Reports a change that the API server rejects, which an operator has to fix: a cloud's label that is invalid in Kubernetes, a
/// webhook, a missing permission. An unavailable API server gets no Event: that says nothing about the Node.
fn report_write_error(shared: &Shared, node: &Node, error: &WriteError) -> Outcome {
    set_waiting_reason(shared, node, "InitializationFailed");
    if let WriteError::Rejected { .. } = error {
        let message = format!("The API server rejected the changes for this node: {error}");
        report(shared, node, "InitializationFailed", &message);
    }
    Outcome::Retry(error.to_string())
}

/// Reports that the owning provider does not list the machine, or not yet.
fn report_not_found(shared: &Shared, node: &Node, provider: &str) -> Outcome {
    let id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "Cloud provider {provider} has no machine {id}; the node stays uninitialized until the machine appears. If the machine \
         exists, check that the provider's credentials can list it."
    );
    set_waiting_reason(shared, node, "InstanceNotFound");
    report(shared, node, "InstanceNotFound", &message);
    Outcome::Retry(format!("failed to get instance metadata for node {}: instance not found", node.name))
}

/// Reports that no configured provider owns the Node.
fn report_no_owner(shared: &Shared, node: &Node, why: &NoOwner) -> Outcome {
    let providers: Vec<_> = shared.context.clouds.iter().map(|cloud| cloud.name().to_string()).collect();
    let providers = providers.join(", ");
    match why {
        NoOwner::ForeignId(id) => {
            let message = format!(
                "The provider ID {id} belongs to none of the configured cloud providers ({providers}); the node is ignored. If one \
                 of them should manage it, correct its provider ID or add the provider to --cloud-provider."
            );
            // The Node waits for another manager.
            shared.metrics.waiting.remove(&node.name);
            report(shared, node, "NotOurNode", &message);
            Outcome::Done
        }
        NoOwner::Unclaimed => {
            let message = format!(
                "None of the configured cloud providers ({providers}) has a machine for this node; the lookup is retried. Set \
                 --provider-id on the kubelet, or give the machine the name of the node, {}.",
                node.name
            );
            set_waiting_reason(shared, node, "NotOurNode");
            report(shared, node, "NotOurNode", &message);
            Outcome::Retry(format!("no cloud provider has a machine for node {}", node.name))
        }
        // The provider declines the Node for now, without a reason (N7).
        NoOwner::Declined(_) => Outcome::Rest(DECLINED_PAUSE),
    }
}

/// Reports a failed cloud read.
fn report_cloud_error(shared: &Shared, node: &Node, error: &Error) -> Outcome {
    set_waiting_reason(shared, node, CLOUD_UNAVAILABLE);
    // The error kind identifies a cause: messages contain request IDs.
    if shared.reported.is_new(&node.name, &node.uid, error.kind().as_str()) {
        let message = format!("The node stays uninitialized until the cloud provider responds: {error}");
        let message = error.kind().with_advice(&message);
        shared.events.emit(&ObjectRef::node(node), EventType::Warning, CLOUD_UNAVAILABLE, message);
    }
    let text = format!("failed to get instance metadata for node {}: {error}", node.name);
    match error.retry_advice() {
        Retry::After(delay) => Outcome::RetryAfter(delay, text),
        Retry::Backoff | Retry::Never => Outcome::Retry(text),
    }
}

/// Sets the reason that the Node waits for in the backlog gauges, with the cloud that owns it.
fn set_waiting_reason(shared: &Shared, node: &Node, reason: &str) {
    let owner = node.provider_id.as_ref().and_then(|id| shared.context.clouds.owner(id));
    let cloud = owner.map_or_else(|| "".into(), |cloud| cloud.name().clone());
    shared.metrics.waiting.block(node.name.clone(), &cloud, reason);
}

fn report(shared: &Shared, node: &Node, reason: &'static str, message: &str) {
    if shared.reported.is_new(&node.name, &node.uid, message) {
        shared.events.emit(&ObjectRef::node(node), EventType::Warning, reason, message);
    }
}

// ---- labels

/// Mirrors deprecated labels to their successors (NODE-18), without a cloud call.
async fn sync_labels(shared: &Shared, nodes: Vec<(Work<NodeName>, Arc<Node>)>) {
    stream::iter(nodes)
        .for_each_concurrent(shared.options.concurrency.max(1), |(work, node)| async move {
            let outcome = mirror_labels(shared, &node).await;
            shared.requeuer().finish(&work, outcome);
        })
        .await;
}

async fn mirror_labels(shared: &Shared, node: &Node) -> Outcome {
    let labels = initialize::mirrored_labels(node);
    if labels.is_empty() {
        return Outcome::Done;
    }
    let Ok(_permit) = shared.writers.acquire().await else { return Outcome::Done };
    match shared.context.cluster.set_labels(&node.name, &labels).await {
        Ok(_) | Err(WriteError::NotFound(_)) => Outcome::Done,
        Err(error) => Outcome::Retry(format!("failed to update labels of node {}: {error}", node.name)),
    }
}
