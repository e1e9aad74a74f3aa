//! Initialising Nodes: from the queue, in batches, with one cloud read for each batch.

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
use super::memory::LAG;
use crate::lanes::Lanes;
use crate::outcome::Outcome;
use crate::spans;

/// The most Nodes that one read is made for.
const BATCH: usize = 1000;

/// From this many waiting Nodes on, a read is worth making at once; below, more may come within [`GATHER`]. Clouds serve
/// about this many machines per call.
const FULL: usize = 100;

/// How long a few Nodes wait for more: machines that boot together register within moments of each other.
const GATHER: Duration = Duration::from_millis(100);

/// How long they wait at most, while more keep coming. A read of a cloud that lists costs the same for few as for many, so
/// that a thousand Nodes that come fifty in a second are worth ten reads, not a hundred.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many batches may be under way for each cloud: enough to read for the next while the last is being written, few enough that a Node
/// that somebody waits for does not stand behind thousands.
const BATCHES: usize = 4;

/// Maximum age of a cloud's answer. A machine's metadata hardly changes, and "gone" is never answered from memory.
const MAX_AGE: Duration = Duration::from_secs(5);

/// How often a write that met a conflict is decided anew (NODE-14), and the pause before, to which as much again is added
/// at random.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// How long a Node that a provider declines is left alone before it is offered again.
const DECLINED_PAUSE: Duration = Duration::from_secs(60);

/// Works until shutdown is requested, and then finishes what is in hand.
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    let tasks = TaskTracker::new();
    let lanes = Lanes::new(&shared.context.clouds, BATCHES);
    while let Some(batch) = shutdown.or(gather(shared)).await {
        for (places, batch) in lanes.split(batch, |work| shared.context.nodes.get(work.key().as_str())) {
            let (shared, shutdown) = (shared.clone(), shutdown.clone());
            tasks.spawn(async move {
                let Some(Ok(_place)) = shutdown.or(places.acquire_owned()).await else { return };
                sync(&shared, batch, &shutdown).instrument(spans::pass(super::NAME)).await;
            });
        }
    }
    shared.queue.shut_down();
    tasks.close();
    tasks.wait().await;
}

/// The next batch: all that waits, with a moment's patience if that is little, and some more while others come.
async fn gather(shared: &Shared) -> Vec<Work<NodeName>> {
    let mut batch = shared.queue.next_batch(BATCH).await;
    let begin = Instant::now();
    while batch.len() < FULL
        && begin.elapsed() < PATIENCE
        && batch.iter().any(|work| is_uninitialized(shared, work.key()))
    {
        tokio::time::sleep(GATHER).await;
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

/// One pass over a batch.
async fn sync(shared: &Shared, batch: Vec<Work<NodeName>>, shutdown: &Shutdown) {
    let mut asked = Vec::new();
    let mut labelled = Vec::new();
    for work in batch {
        match shared.context.nodes.get(work.key().as_str()) {
            Some(node) if node.is_paused() => shared.queue.forget(work.key()),
            Some(node) if shared.memory.is_outdated(&node) => shared.tries().settle(&work, Outcome::Rest(LAG)),
            Some(node) if node.is_uninitialized() => asked.push((work, node)),
            Some(node) => labelled.push((work, node)),
            // Gone before its turn (NODE-4).
            None => shared.queue.forget(work.key()),
        }
    }
    tokio::join!(sync_uninitialized(shared, asked, shutdown), sync_labels(shared, labelled));
}

/// Asks the cloud about all of these at once, and initialises each as soon as its answer is there.
async fn sync_uninitialized(shared: &Shared, nodes: Vec<(Work<NodeName>, Arc<Node>)>, shutdown: &Shutdown) {
    if nodes.is_empty() {
        return;
    }
    let questions: Vec<_> = nodes.iter().map(|(_, node)| InstanceRef::of(node)).collect();
    let freshness = freshness(shared, nodes.iter().map(|(_, node)| &**node));
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    // A read may be given up at shutdown: nothing has been written for the Nodes that it is about.
    let answers = shared.context.clouds.observe(&questions, freshness).take_until(shutdown.requested());
    let answered = answers.filter_map(|(index, answer)| {
        shared.queue.made_progress();
        let node = nodes.get_mut(index).and_then(Option::take);
        std::future::ready(node.map(|(work, node)| (work, node, answer)))
    });
    // Not all at once and held back by the permits alone: a write under way takes some kilobytes.
    answered
        .for_each_concurrent(shared.options.concurrency.max(1), |(work, node, answer)| async move {
            let work = async {
                let outcome = sync_answer(shared, &node, answer, shutdown).await;
                shared.tries().settle(&work, outcome);
            };
            work.instrument(spans::sync(super::NAME, &node.name)).await;
        })
        .await;
}

/// An answer about a name that is older than the Node may be about the machine that had the name before.
fn freshness<'a>(shared: &Shared, nodes: impl Iterator<Item = &'a Node>) -> Freshness {
    let by_name = nodes.filter(|node| node.provider_id.is_none());
    let known_for = by_name.filter_map(|node| shared.memory.known_for(&node.name));
    Freshness::Within(known_for.chain([MAX_AGE]).min().unwrap_or(MAX_AGE))
}

/// What the cloud's answer means for this Node (NODE-6).
async fn sync_answer(
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
            initialize(shared, node, &selected(shared, node, &instance)).await
        }
        Ok(Ownership::Owned { provider, .. }) => not_found(shared, node, &provider),
        Ok(Ownership::NoOwner(why)) => unowned(shared, node, &why),
        Err(error) => cloud_failed(shared, node, &error),
    }
}

/// The machine with the addresses that the policy selects.
fn selected<'a>(shared: &Shared, node: &Node, instance: &'a Instance) -> Cow<'a, Instance> {
    let policy = &shared.options.addresses;
    if !policy.matches(instance) {
        tracing::warn!(node = %node.name, "the machine has no address in --node-address-cidrs, and keeps all of its addresses");
    }
    policy.apply(instance)
}

/// Writes what initialising changes, deciding anew as long as somebody else changes the Node meanwhile (NODE-14).
async fn initialize(shared: &Shared, node: &Arc<Node>, instance: &Instance) -> Outcome {
    let mut current = node.clone();
    for attempt in 0..ATTEMPTS {
        let change = match initialize::decide(&current, instance) {
            Ok(change) => change,
            Err(error) => return undecided(shared, node, &error),
        };
        match shared.context.cluster.initialize(&change).await {
            Ok(written) => {
                for warning in &change.warnings {
                    tracing::warn!(%warning, "the node is initialised, but not in all");
                }
                return finish(shared, &change, &written, instance).await;
            }
            Err(WriteError::Conflict(_)) => {}
            Err(WriteError::NotFound(_)) => return Outcome::Done,
            Err(error) => return unwritten(shared, node, &error),
        }
        // One conflict is a heartbeat that came in between, and reading again at once leaves no room for another; several
        // are somebody who writes all the time, too.
        if attempt > 0 {
            tokio::time::sleep(PAUSE + PAUSE.mul_f64(fastrand::f64())).await;
        }
        // What the store has is at best what met the conflict; the API server knows better.
        current = match shared.context.cluster.node(&node.name).await {
            Ok(Some(live)) if live.uid == node.uid && live.is_uninitialized() => Arc::new(live),
            // Done by somebody else, or by ourselves and the answer got lost.
            Ok(Some(live)) if live.uid == node.uid => {
                write_addresses(shared, &live, instance).await;
                return Outcome::Done;
            }
            Ok(_) => return Outcome::Done,
            Err(error) => return Outcome::Retry(error.to_string()),
        };
    }
    Outcome::Retry(format!("the node changed under each of {ATTEMPTS} writes"))
}

/// The taint is off; the rest is best effort (NODE-15, NODE-16).
async fn finish(shared: &Shared, change: &NodeChange, node: &Node, instance: &Instance) -> Outcome {
    shared.memory.wrote(node);
    shared.metrics.waiting.remove(&node.name);
    shared.complaints.forget(&node.name);
    shared.metrics.taint_removed(node, shared.context.clock.now());
    write_addresses(shared, node, instance).await;
    // upstream: names the state that was decided on, not the one that came of it.
    let object = ObjectRef::node(node).at(&change.resource_version);
    shared.events.emit(&object, EventType::Normal, "Synced", "Node synced successfully");
    shared.metrics.initialized(node, shared.context.clock.now(), shared.memory.waited(&node.name));
    Outcome::Done
}

async fn write_addresses(shared: &Shared, node: &Node, instance: &Instance) {
    match addresses::decide(node, &instance.addresses) {
        Ok(Some(wanted)) => {
            if let Err(error) = shared.context.cluster.set_addresses(&node.name, &wanted).await {
                tracing::warn!(
                    %error,
                    "the node is initialised, but its addresses could not be written; the next look at all addresses repairs \
                     that"
                );
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "addresses left as they are"),
    }
}

// ---- what keeps a Node from being initialised; each cause is told once

/// The cloud and the Node do not go together (NODE-9, NODE-11).
fn undecided(shared: &Shared, node: &Node, error: &InitializeError) -> Outcome {
    block(shared, node, "InitializationFailed");
    complain(shared, node, "InitializationFailed", &error.to_string());
    Outcome::Retry(error.to_string())
}

/// The API server takes no such change, and a person has to see why: a label of the cloud that is none in Kubernetes, a
/// webhook, a right that is missing. That it cannot be reached is no news about the Node.
fn unwritten(shared: &Shared, node: &Node, error: &WriteError) -> Outcome {
    block(shared, node, "InitializationFailed");
    if let WriteError::Rejected { .. } = error {
        let message = format!("The API server refuses what the cloud says of this node: {error}");
        complain(shared, node, "InitializationFailed", &message);
    }
    Outcome::Retry(error.to_string())
}

/// The provider that the Node names has no such machine: it may not be listed yet.
fn not_found(shared: &Shared, node: &Node, provider: &str) -> Outcome {
    let id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "The cloud provider {provider} has no machine {id}; the node stays uninitialized until it has. If the machine \
         exists, check that the provider's credentials show it."
    );
    block(shared, node, "InstanceNotFound");
    complain(shared, node, "InstanceNotFound", &message);
    Outcome::Retry(format!("failed to get instance metadata for node {}: instance not found", node.name))
}

/// No provider here is in charge of the Node.
fn unowned(shared: &Shared, node: &Node, why: &NoOwner) -> Outcome {
    let providers: Vec<_> = shared.context.clouds.iter().map(|cloud| cloud.name().to_string()).collect();
    let providers = providers.join(", ");
    match why {
        NoOwner::ForeignId(id) => {
            let message = format!(
                "The provider ID {id} belongs to none of the configured cloud providers ({providers}), so the node is \
                 left alone. If it should be theirs, correct its provider ID or add the provider to --cloud-provider."
            );
            // It waits for another manager.
            shared.metrics.waiting.remove(&node.name);
            complain(shared, node, "NotOurNode", &message);
            Outcome::Done
        }
        NoOwner::Unclaimed => {
            let message = format!(
                "None of the configured cloud providers ({providers}) knows a machine for this node, so it is left \
                 alone and looked for again later. Give the kubelet --provider-id, or name the machine {} as the node.",
                node.name
            );
            block(shared, node, "NotOurNode");
            complain(shared, node, "NotOurNode", &message);
            Outcome::Retry(format!("no cloud provider knows node {}", node.name))
        }
        // The provider asks for patience, without a reason (N7).
        NoOwner::Declined(_) => Outcome::Rest(DECLINED_PAUSE),
    }
}

/// The cloud gave no answer.
fn cloud_failed(shared: &Shared, node: &Node, error: &Error) -> Outcome {
    block(shared, node, "CloudUnavailable");
    // The kind, not the text, tells causes apart: texts carry request IDs.
    if shared.complaints.is_news(&node.name, &node.uid, error.kind().as_str()) {
        let advice = error.kind().advice();
        let message = format!("The node stays uninitialized until the cloud provider has an answer. {error}. {advice}");
        let message = message.trim_end();
        shared.events.emit(&ObjectRef::node(node), EventType::Warning, "CloudUnavailable", message);
    }
    let text = format!("failed to get instance metadata for node {}: {error}", node.name);
    match error.retry_advice() {
        Retry::After(delay) => Outcome::RetryAfter(delay, text),
        Retry::Backoff | Retry::Never => Outcome::Retry(text),
    }
}

/// Counts the Node as waiting for this reason, in the cloud that owns it.
fn block(shared: &Shared, node: &Node, reason: &str) {
    let owner = node.provider_id.as_ref().and_then(|id| shared.context.clouds.owner(id));
    let cloud = owner.map_or_else(|| "".into(), |cloud| cloud.name().clone());
    shared.metrics.waiting.block(node.name.clone(), &cloud, reason);
}

fn complain(shared: &Shared, node: &Node, reason: &'static str, message: &str) {
    if shared.complaints.is_news(&node.name, &node.uid, message) {
        shared.events.emit(&ObjectRef::node(node), EventType::Warning, reason, message);
    }
}

// ---- labels

/// Mirrors old labels to new ones (NODE-18): no cloud call.
async fn sync_labels(shared: &Shared, nodes: Vec<(Work<NodeName>, Arc<Node>)>) {
    stream::iter(nodes)
        .for_each_concurrent(shared.options.concurrency.max(1), |(work, node)| async move {
            let outcome = mirror_labels(shared, &node).await;
            shared.tries().settle(&work, outcome);
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
