//! What the controllers of Nodes would do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Clouds, Error, Freshness, NoOwner, Ownership};
use bowline_core::lifecycle::{self, CachedAnswers, FreshAnswers, Held, HoldReason, Memory, Moment};
use bowline_core::well_known::SHUTDOWN_TAINT;
use bowline_core::{
    Address, Instance, InstanceRef, InstanceState, Node, NodeName, Verb, addresses, initialize, is_paused,
};

use super::{Item, RemarkKind, Snapshot, changed, network};
use crate::manager::ManagerOptions;
use crate::{node, node_lifecycle, pause};

/// One read serves all controllers.
pub(super) const FRESHNESS: Freshness = Freshness::Within(Duration::from_secs(60));

/// Something to tell of each Node, or nothing, by name; and of routes that lead to none.
pub(super) async fn forecast(snapshot: &Snapshot, clouds: &Clouds, options: &ManagerOptions, now: Moment) -> Vec<Item> {
    let nodes = &snapshot.nodes;
    let mut items = Items::default();
    for node in nodes.iter().filter(|node| is_paused(&node.annotations)) {
        items.of(node).remark(RemarkKind::Note, pause::message(&node.annotations, node.deleting).1);
    }
    if let Some(options) = &options.node {
        initialisation(&mut items, nodes, clouds, options).await;
    }
    if let Some(options) = &options.node_lifecycle {
        lifecycle(&mut items, nodes, clouds, options, now).await;
    }
    if let Some(options) = &options.node_ipam {
        network::pod_ranges(&mut items, nodes, clouds, options).await;
    }
    let mut orphans = Vec::new();
    if let Some(options) = &options.route {
        orphans = network::routes(&mut items, snapshot, clouds, options, now).await;
    }
    items.0.into_values().chain(orphans).collect()
}

/// The items so far, by Node.
#[derive(Default)]
pub(super) struct Items(BTreeMap<NodeName, Item>);

impl Items {
    pub(super) fn of(&mut self, node: &Node) -> &mut Item {
        self.0.entry(node.name.clone()).or_insert_with(|| Item::of_node(node))
    }
}

// ---- cloud-node-controller

async fn initialisation(items: &mut Items, nodes: &[Arc<Node>], clouds: &Clouds, options: &node::Options) {
    // A Node that is initialised and has no ID is not looked for, as in the controller.
    let is_asked = |node: &&Arc<Node>| !node.is_paused() && (node.is_uninitialized() || node.provider_id.is_some());
    let asked: Vec<_> = nodes.iter().filter(is_asked).collect();
    let questions: Vec<_> = asked.iter().map(|node| InstanceRef::of(node)).collect();
    for (node, answer) in asked.into_iter().zip(clouds.observe_all(&questions, FRESHNESS).await) {
        sighted(items.of(node), node, answer, options);
    }
    for node in nodes.iter().filter(|node| !node.is_paused() && !node.is_uninitialized()) {
        label(items.of(node), node, initialize::mirrored_labels(node));
    }
}

fn label(item: &mut Item, node: &Node, labels: BTreeMap<String, String>) {
    let set = |(key, value)| changed(format!("label {key}"), node.labels.get(&key).cloned(), Some(value));
    item.update(labels.into_iter().map(set).collect());
}

/// What the cloud's answer on a machine means for its Node.
fn sighted(item: &mut Item, node: &Node, answer: Result<Ownership, Error>, options: &node::Options) {
    match answer {
        Ok(Ownership::Owned { provider, state }) => {
            item.cloud = Some(provider);
            match state {
                InstanceState::Running(instance) | InstanceState::Stopped(instance) => {
                    known(item, node, &options.addresses.apply(&instance), options.refresh_labels);
                }
                // Of a Node that is initialised, the other controller tells.
                InstanceState::Gone | InstanceState::NotMine if !node.is_uninitialized() => {}
                InstanceState::Gone | InstanceState::NotMine => {
                    item.remark(RemarkKind::Refused, "the cloud has no such machine: the node stays uninitialized")
                }
            }
        }
        Ok(Ownership::NoOwner(why)) if node.is_uninitialized() => item.remark(RemarkKind::Refused, unowned(&why)),
        Ok(Ownership::NoOwner(_)) => {}
        Err(error) => item.remark(RemarkKind::Failed, error.to_string()),
    }
}

fn unowned(why: &NoOwner) -> String {
    match why {
        NoOwner::ForeignId(id) => format!("the provider ID {id} belongs to none of the clouds here: it is left alone"),
        NoOwner::Unclaimed => "no cloud here knows a machine of this name: the node stays uninitialized".to_owned(),
        NoOwner::Declined(cloud) => format!("the cloud {cloud} declines it: the node stays uninitialized"),
    }
}

/// The machine is there: the Node is initialised if it is not, and has the machine's addresses.
fn known(item: &mut Item, node: &Node, instance: &Instance, refresh_labels: bool) {
    if refresh_labels && !node.is_uninitialized() {
        label(item, node, initialize::refreshed_labels(node, instance));
    }
    if node.is_uninitialized() {
        match initialize::decide(node, instance) {
            Ok(change) => {
                item.in_cluster.steps.extend(change.plan().steps);
                change.warnings.iter().for_each(|warning| item.remark(RemarkKind::Note, warning));
            }
            Err(error) => return item.remark(RemarkKind::Refused, error.to_string()),
        }
    }
    match addresses::decide(node, &instance.addresses) {
        Ok(Some(wanted)) => {
            item.update(vec![changed("status.addresses", Some(list(&node.addresses)), Some(list(&wanted)))]);
        }
        Ok(None) => {}
        Err(error) => item.remark(RemarkKind::Refused, format!("the addresses stay as they are: {error}")),
    }
}

pub(super) fn list(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

// ---- cloud-node-lifecycle-controller

async fn lifecycle(
    items: &mut Items,
    nodes: &[Arc<Node>],
    clouds: &Clouds,
    options: &node_lifecycle::Options,
    now: Moment,
) {
    let fleet = node_lifecycle::fleet(nodes.iter().cloned(), clouds, options);
    let questions = fleet.questions();
    for node in &questions.untaint {
        items.of(node).update(vec![changed("taint", Some(SHUTDOWN_TAINT.to_owned()), None)]);
    }
    let answers = ask(items, &questions.ask, clouds, options, FRESHNESS).await;
    let glance = CachedAnswers::new(questions.ask.iter().zip(answers));
    let mut memory = Memory::default();
    let verdict = lifecycle::decide(&fleet, &glance, &mut memory, &options.policy, now);
    for node in &verdict.taint {
        items.of(node).update(vec![changed("taint", None, Some(SHUTDOWN_TAINT.to_owned()))]);
    }
    let mut held = verdict.held;
    if !verdict.look.is_empty() {
        let answers = ask(items, &verdict.look, clouds, options, Freshness::Now).await;
        let look = FreshAnswers::uncached(verdict.look.iter().zip(answers));
        held.extend(lifecycle::conclude(&fleet, &look, &mut memory, &options.policy, now).held);
        // What comes of the second look, if that shows the same.
        let then = Moment { instant: now.instant + options.policy.confirm_after, ..now };
        let conclusion = lifecycle::conclude(&fleet, &look, &mut memory, &options.policy, then);
        conclusion.delete.iter().for_each(|deletion| delete(items, &deletion.node, options));
        held.retain(|held| !matches!(held.doubt, HoldReason::AwaitingSecondLook { .. }));
        held.extend(conclusion.held);
    }
    tell_held(items, nodes, &held);
}

async fn ask(
    items: &mut Items,
    nodes: &[Arc<Node>],
    clouds: &Clouds,
    options: &node_lifecycle::Options,
    freshness: Freshness,
) -> Vec<lifecycle::Answer> {
    let questions: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
    let sightings = clouds.observe_all(&questions, freshness).await;
    let answer = |(node, sighting): (&Arc<Node>, Result<Ownership, Error>)| {
        if let Err(error) = &sighting
            && error.seen().is_none()
        {
            fail_once(items.of(node), error);
        }
        node_lifecycle::answer(sighting, options)
    };
    nodes.iter().zip(sightings).map(answer).collect()
}

/// The same question may have failed before.
fn fail_once(item: &mut Item, error: &Error) {
    if !item.remarks.iter().any(|remark| remark.kind == RemarkKind::Failed) {
        item.remark(RemarkKind::Failed, error.to_string());
    }
}

fn delete(items: &mut Items, node: &Node, options: &node_lifecycle::Options) {
    let item = items.of(node);
    item.write(Verb::Delete, Vec::new());
    let apart = options.policy.confirm_after;
    item.remark(
        RemarkKind::Note,
        format!("its machine is gone: it is deleted if a look {apart:?} later shows the same"),
    );
}

/// One remark for each, although two looks may have held it back.
fn tell_held(items: &mut Items, nodes: &[Arc<Node>], held: &[Held]) {
    for held in held {
        let Some(node) = nodes.iter().find(|node| node.name == held.node) else { continue };
        let item = items.of(node);
        item.remarks.retain(|remark| remark.kind != RemarkKind::HeldBack);
        item.cloud = Some(held.provider.clone());
        item.remark(RemarkKind::HeldBack, held.to_string());
    }
}
