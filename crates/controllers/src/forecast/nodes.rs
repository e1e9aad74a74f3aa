//! Forecast of the Node controllers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Clouds, Error, Freshness, NoOwner, Ownership};
use bowline_core::lifecycle::{self, CachedResults, FreshResults, Held, HoldReason, Memory, Moment};
use bowline_core::well_known::SHUTDOWN_TAINT;
use bowline_core::{
    Address, Instance, InstanceRef, InstanceState, Node, NodeName, Verb, addresses, initialize, is_paused,
};

use super::{Item, NoticeKind, Snapshot, changed, network};
use crate::manager::ManagerOptions;
use crate::{node, node_lifecycle, pause};

/// Maximum age of a cloud's answer, so that one read serves all controllers.
pub(super) const FRESHNESS: Freshness = Freshness::Within(Duration::from_secs(60));

/// Forecasts all Nodes, by name, and routes without a Node.
pub(super) async fn forecast(snapshot: &Snapshot, clouds: &Clouds, options: &ManagerOptions, now: Moment) -> Vec<Item> {
    let nodes = &snapshot.nodes;
    let mut items = Items::default();
    for node in nodes.iter().filter(|node| is_paused(&node.annotations)) {
        items.of(node).add_notice(NoticeKind::Note, pause::message(&node.annotations, node.deleting).1);
    }
    if let Some(options) = &options.node {
        plan_initialization(&mut items, nodes, clouds, options).await;
    }
    if let Some(options) = &options.node_lifecycle {
        plan_lifecycle(&mut items, nodes, clouds, options, now).await;
    }
    if let Some(options) = &options.node_ipam {
        network::plan_pod_cidrs(&mut items, nodes, clouds, options).await;
    }
    let mut orphans = Vec::new();
    if let Some(options) = &options.route {
        orphans = network::plan_routes(&mut items, snapshot, clouds, options, now).await;
    }
    items.0.into_values().chain(orphans).collect()
}

/// Items by Node.
#[derive(Default)]
pub(super) struct Items(BTreeMap<NodeName, Item>);

impl Items {
    pub(super) fn of(&mut self, node: &Node) -> &mut Item {
        self.0.entry(node.name.clone()).or_insert_with(|| Item::of_node(node))
    }
}

// ---- cloud-node-controller

async fn plan_initialization(items: &mut Items, nodes: &[Arc<Node>], clouds: &Clouds, options: &node::Options) {
    // As in the controller, an initialised Node without a provider ID is not looked up.
    let is_asked = |node: &&Arc<Node>| !node.is_paused() && (node.is_uninitialized() || node.provider_id.is_some());
    let asked: Vec<_> = nodes.iter().filter(is_asked).collect();
    let instances: Vec<_> = asked.iter().map(|node| InstanceRef::of(node)).collect();
    for (node, answer) in asked.into_iter().zip(clouds.observe_all(&instances, FRESHNESS).await) {
        plan_node(items.of(node), node, answer, options);
    }
    for node in nodes.iter().filter(|node| !node.is_paused() && !node.is_uninitialized()) {
        update_labels(items.of(node), node, initialize::mirrored_labels(node));
    }
}

fn update_labels(item: &mut Item, node: &Node, labels: BTreeMap<String, String>) {
    let set = |(key, value)| changed(format!("label {key}"), node.labels.get(&key).cloned(), Some(value));
    item.update(labels.into_iter().map(set).collect());
}

/// Plans a Node with the cloud's answer about its machine.
fn plan_node(item: &mut Item, node: &Node, answer: Result<Ownership, Error>, options: &node::Options) {
    match answer {
        Ok(Ownership::Owned { provider, state }) => {
            item.cloud = Some(provider);
            match state {
                InstanceState::Running(instance) | InstanceState::Stopped(instance) => {
                    plan_machine(item, node, &options.addresses.apply(&instance), options.refresh_labels);
                }
                // The cloud-node-lifecycle-controller covers initialised Nodes.
                InstanceState::Gone | InstanceState::NotMine if !node.is_uninitialized() => {}
                InstanceState::Gone | InstanceState::NotMine => {
                    item.add_notice(NoticeKind::Refused, "the cloud has no such machine; the node stays uninitialized")
                }
            }
        }
        Ok(Ownership::NoOwner(why)) if node.is_uninitialized() => {
            item.add_notice(NoticeKind::Refused, no_owner_message(&why))
        }
        Ok(Ownership::NoOwner(_)) => {}
        Err(error) => item.add_notice(NoticeKind::Failed, error.to_string()),
    }
}

fn no_owner_message(why: &NoOwner) -> String {
    match why {
        NoOwner::ForeignId(id) => format!("the provider ID {id} belongs to no configured cloud; the node is ignored"),
        NoOwner::Unclaimed => "no configured cloud has a machine of this name; the node stays uninitialized".to_owned(),
        NoOwner::Declined(cloud) => format!("the cloud {cloud} declines the node; it stays uninitialized"),
    }
}

/// Plans a Node whose machine exists: initialisation if it is uninitialised, and addresses.
fn plan_machine(item: &mut Item, node: &Node, instance: &Instance, refresh_labels: bool) {
    if refresh_labels && !node.is_uninitialized() {
        update_labels(item, node, initialize::refreshed_labels(node, instance));
    }
    if node.is_uninitialized() {
        match initialize::decide(node, instance) {
            Ok(change) => {
                item.in_cluster.steps.extend(change.plan().steps);
                change.warnings.iter().for_each(|warning| item.add_notice(NoticeKind::Note, warning));
            }
            Err(error) => return item.add_notice(NoticeKind::Refused, error.to_string()),
        }
    }
    match addresses::decide(node, &instance.addresses) {
        Ok(Some(desired)) => {
            item.update(vec![changed("status.addresses", Some(list(&node.addresses)), Some(list(&desired)))]);
        }
        Ok(None) => {}
        Err(error) => item.add_notice(NoticeKind::Refused, format!("the addresses are unchanged: {error}")),
    }
}

pub(super) fn list(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

// ---- cloud-node-lifecycle-controller

async fn plan_lifecycle(
    items: &mut Items,
    nodes: &[Arc<Node>],
    clouds: &Clouds,
    options: &node_lifecycle::Options,
    now: Moment,
) {
    let fleet = node_lifecycle::fleet(nodes.iter().cloned(), clouds, options);
    let lookups = fleet.lookups();
    for node in &lookups.untaint {
        items.of(node).update(vec![changed("taint", Some(SHUTDOWN_TAINT.to_owned()), None)]);
    }
    let answers = observe(items, &lookups.nodes, clouds, options, FRESHNESS).await;
    let glance = CachedResults::new(lookups.nodes.iter().zip(answers));
    let mut memory = Memory::default();
    let verdict = lifecycle::decide(&fleet, &glance, &mut memory, &options.policy, now);
    for node in &verdict.taint {
        items.of(node).update(vec![changed("taint", None, Some(SHUTDOWN_TAINT.to_owned()))]);
    }
    let mut held = verdict.held;
    if !verdict.recheck.is_empty() {
        let answers = observe(items, &verdict.recheck, clouds, options, Freshness::Now).await;
        let look = FreshResults::uncached(verdict.recheck.iter().zip(answers));
        held.extend(lifecycle::conclude(&fleet, &look, &mut memory, &options.policy, now).held);
        // Result of the second read, if it shows the same.
        let then = Moment { instant: now.instant + options.policy.confirm_after, ..now };
        let conclusion = lifecycle::conclude(&fleet, &look, &mut memory, &options.policy, then);
        conclusion.delete.iter().for_each(|deletion| delete(items, &deletion.node, options));
        held.retain(|held| !matches!(held.reason, HoldReason::AwaitingSecondLook { .. }));
        held.extend(conclusion.held);
    }
    report_held(items, nodes, &held);
}

async fn observe(
    items: &mut Items,
    nodes: &[Arc<Node>],
    clouds: &Clouds,
    options: &node_lifecycle::Options,
    freshness: Freshness,
) -> Vec<lifecycle::LookupResult> {
    let instances: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
    let observations = clouds.observe_all(&instances, freshness).await;
    let answer = |(node, observation): (&Arc<Node>, Result<Ownership, Error>)| {
        if let Err(error) = &observation
            && error.known_state().is_none()
        {
            fail_once(items.of(node), error);
        }
        node_lifecycle::answer(observation, options)
    };
    nodes.iter().zip(observations).map(answer).collect()
}

/// Adds the notice of a failed read, unless an earlier read of the same machine failed.
fn fail_once(item: &mut Item, error: &Error) {
    if !item.notices.iter().any(|notice| notice.kind == NoticeKind::Failed) {
        item.add_notice(NoticeKind::Failed, error.to_string());
    }
}

fn delete(items: &mut Items, node: &Node, options: &node_lifecycle::Options) {
    let item = items.of(node);
    item.write(Verb::Delete, Vec::new());
    let apart = options.policy.confirm_after;
    item.add_notice(
        NoticeKind::Note,
        format!("its machine is gone; it is deleted if a second read, {apart:?} later, shows the same"),
    );
}

/// Adds one notice for each Node that is held back, even if both reads hold it back.
fn report_held(items: &mut Items, nodes: &[Arc<Node>], held: &[Held]) {
    for held in held {
        let Some(node) = nodes.iter().find(|node| node.name == held.node) else { continue };
        let item = items.of(node);
        item.notices.retain(|notice| notice.kind != NoticeKind::HeldBack);
        item.cloud = Some(held.provider.clone());
        item.add_notice(NoticeKind::HeldBack, held.to_string());
    }
}
