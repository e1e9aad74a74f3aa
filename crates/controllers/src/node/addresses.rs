//! Periodic sync of addresses (NODE-19 to NODE-26), of the annotations that a cloud has for Nodes, and optionally of labels: one
//! cloud read per period compares all initialised Nodes with their machines.

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

/// Maximum age of a cloud's answer, so that the read of another loop is reused.
const FRESHNESS: Duration = Duration::from_secs(5);

/// Syncs all Nodes at once, and again a period after the end of the last sync (NODE-3).
pub(super) async fn run(shared: &Arc<Shared>, shutdown: &Shutdown) {
    loop {
        shared.addresses.begin();
        sync_all(shared, shutdown).await;
        shared.addresses.finish(shared.options.status_period);
        if shutdown.or(tokio::time::sleep(shared.options.status_period)).await.is_none() {
            return;
        }
    }
}

async fn sync_all(shared: &Shared, shutdown: &Shutdown) {
    let nodes: Vec<_> = shared.context.nodes.all().into_iter().filter(|node| is_ours(node)).collect();
    let instances: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
    let freshness = Freshness::Within(FRESHNESS.min(shared.options.status_period / 2));
    // Shutdown cancels the read, but not the writes after it.
    let answers = shared.context.clouds.observe(&instances, freshness).take_until(shutdown.requested());
    let mut failures = Failures::default();
    let outdated = answers.filter_map(|(index, answer)| {
        let planned = nodes.get(index).and_then(|node| match plan(node, answer, &shared.options) {
            Ok(change) => Some((node.clone(), change)),
            Err(error) => {
                failures.add(node, error);
                None
            }
        });
        let planned = planned.filter(|(_, change)| !change.is_empty());
        std::future::ready(planned)
    });
    outdated
        .for_each_concurrent(shared.options.status_concurrency.max(1), |(node, change)| async move {
            if !shutdown.is_requested() {
                apply(shared, &node, &change).instrument(spans::sync(super::NAME, &node.name)).await;
            }
        })
        .await;
    failures.log();
}

/// Whether the Node is initialised and has a provider ID. Only initialisation looks up a Node by name; otherwise the Node would
/// get the addresses of any machine that happens to have its name.
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

/// Compares a Node with its machine (NODE-20, NODE-24). Rejected annotations were logged at initialisation.
fn plan(node: &Node, answer: Result<Ownership, Error>, options: &Options) -> Result<Change, String> {
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

async fn apply(shared: &Shared, node: &Node, change: &Change) {
    let cluster = &shared.context.cluster;
    if let Some(addresses) = &change.addresses {
        match cluster.set_addresses(&node.name, addresses).await {
            Ok(_) => shared.metrics.address_updates.inc(),
            Err(error) => {
                tracing::warn!(%error, "failed to update the node's addresses; retried after the status period");
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
            Ok(_) => tracing::info!(labels = ?change.labels, "updated the labels of the node from its machine"),
            Err(error) => tracing::warn!(%error, "failed to update the node's labels; retried after the status period"),
        }
    }
}

/// Failures of one sync, logged in one line, because one broken cloud fails thousands of Nodes in the same way.
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
                "cannot check addresses; showing the first failure"
            );
        }
    }
}
