//! Keeping addresses fresh (NODE-19 to NODE-26), the annotations that a cloud has for Nodes, and on request the labels: all initialised
//! Nodes are compared with their machines every period, with one cloud read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, Freshness, Ownership};
use bowline_core::node_annotations::{self, AnnotationValues};
use bowline_core::{Address, InstanceRef, Node, addresses, initialize};
use bowline_runtime::Shutdown;
use futures::stream::StreamExt as _;
use tracing::Instrument as _;

use super::{Options, Shared};
use crate::spans;

/// How old a cloud's answer may be: what another loop has just read need not be read again.
const FRESHNESS: Duration = Duration::from_secs(5);

/// Looks at once, and then again a period after the last look ended (NODE-3).
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    loop {
        shared.addresses.works();
        pass(shared, shutdown).await;
        shared.addresses.rests(shared.options.status_period);
        if shutdown.or(tokio::time::sleep(shared.options.status_period)).await.is_none() {
            return;
        }
    }
}

async fn pass(shared: &Shared, shutdown: &Shutdown) {
    let nodes: Vec<_> = shared.context.nodes.all().into_iter().filter(|node| is_ours(node)).collect();
    let questions: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
    let freshness = Freshness::Within(FRESHNESS.min(shared.options.status_period / 2));
    // A read may be given up at shutdown; the writes after it may not.
    let answers = shared.context.clouds.observe(&questions, freshness).take_until(shutdown.requested());
    let mut failures = Failures::default();
    let outdated = answers.filter_map(|(index, answer)| {
        let decided = nodes.get(index).and_then(|node| match decide(node, answer, &shared.options) {
            Ok(change) => Some((node.clone(), change)),
            Err(error) => {
                failures.add(node, error);
                None
            }
        });
        let decided = decided.filter(|(_, change)| !change.is_empty());
        std::future::ready(decided)
    });
    outdated
        .for_each_concurrent(shared.options.status_concurrency.max(1), |(node, change)| async move {
            if !shutdown.is_requested() {
                write(shared, &node, &change).instrument(spans::sync(super::NAME, &node.name)).await;
            }
        })
        .await;
    failures.log();
}

/// Initialised, and known to belong to a provider: a Node without provider ID is looked for by name only while it is
/// being initialised, or a machine that happens to have its name would lend it its addresses for ever.
fn is_ours(node: &Node) -> bool {
    !node.is_uninitialized() && !node.is_paused() && node.provider_id.is_some()
}

/// Differences between a Node and its machine.
#[derive(Default)]
struct Change {
    addresses: Option<Vec<Address>>,
    annotations: AnnotationValues,
    labels: BTreeMap<String, String>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.addresses.is_none() && self.annotations.is_empty() && self.labels.is_empty()
    }
}

/// Compares a Node with its machine (NODE-20, NODE-24). Annotations that are refused were logged at initialisation.
fn decide(node: &Node, answer: Result<Ownership, Error>, options: &Options) -> Result<Change, String> {
    let Ownership::Owned { state, .. } = answer.map_err(|error| error.to_string())? else {
        return Ok(Change::default());
    };
    let Some(instance) = state.instance() else { return Ok(Change::default()) };
    let instance = options.addresses.apply(instance);
    let labels =
        if options.refresh_labels { initialize::refreshed_labels(node, &instance) } else { BTreeMap::default() };
    let addresses = addresses::decide(node, &instance.addresses).map_err(|error| error.to_string())?;
    let annotations = instance.annotations.iter().map(|(key, value)| (key, Some(value)));
    Ok(Change { addresses, annotations: node_annotations::decide(node, annotations).values, labels })
}

async fn write(shared: &Shared, node: &Node, change: &Change) {
    let cluster = &shared.context.cluster;
    if let Some(addresses) = &change.addresses {
        match cluster.set_addresses(&node.name, addresses).await {
            Ok(_) => shared.metrics.address_updates.inc(),
            Err(error) => {
                tracing::warn!(%error, "failed to update the node's addresses; the next look at all addresses tries again");
            }
        }
    }
    if !change.annotations.is_empty()
        && let Err(error) = cluster.set_annotations(node, &change.annotations).await
    {
        tracing::warn!(%error, "failed to update the node's annotations; retried after the status period");
    }
    if !change.labels.is_empty() {
        match cluster.set_labels(&node.name, &change.labels).await {
            Ok(_) => tracing::info!(labels = ?change.labels, "the labels of the node follow its machine"),
            Err(error) => tracing::warn!(%error, "failed to update the node's labels; retried after the status period"),
        }
    }
}

/// What went wrong in one pass: told in one line, because one broken cloud fails thousands of Nodes alike.
#[derive(Default)]
struct Failures {
    count: usize,
    first: Option<String>,
}

impl Failures {
    fn add(&mut self, node: &Node, error: String) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("{}: {error}", node.name));
    }

    fn log(&self) {
        if let Some(first) = &self.first {
            tracing::warn!(
                controller = super::NAME,
                nodes = self.count,
                error = first,
                "addresses could not be checked; the first failure is shown"
            );
        }
    }
}
