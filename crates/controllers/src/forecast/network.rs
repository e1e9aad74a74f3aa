//! What the controllers of pod ranges and routes would do.

use std::collections::HashSet;
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, Error, Freshness, Ownership};
use bowline_core::ipam::cloud::{self as lead, AllocationMode};
use bowline_core::ipam::{Allocator, InvalidPodCidr};
use bowline_core::lifecycle::Moment;
use bowline_core::routes::{self, Brake, BrakeDecision, Lane, Removal, Scene, Table, Why};
use bowline_core::well_known::NETWORK_UNAVAILABLE;
use bowline_core::{FieldChange, InstanceRef, InstanceState, Node, NodeName, Opaque, Plan, RouteSpec, Step, Verb};
use ipnet::IpNet;

use super::nodes::{FRESHNESS, Items};
use super::{Item, Object, RemarkKind, Snapshot, changed};
use crate::node_ipam::{self, AllocatorType};
use crate::route::{self, Fleet};

// ---- node-ipam-controller

/// Which ranges Nodes without any would get. Those that come at the same time may get them in another order.
pub(super) async fn pod_ranges(items: &mut Items, nodes: &[Arc<Node>], clouds: &Clouds, options: &node_ipam::Options) {
    let mut allocator = Allocator::new(&options.ranges, &options.services);
    let misfits: Vec<InvalidPodCidr> =
        nodes.iter().filter_map(|node| allocator.observe(&node.name, &node.pod_cidrs).err()).collect();
    for misfit in &misfits {
        if let Some(node) = nodes.iter().find(|node| node.name == misfit.node) {
            let message =
                format!("{misfit}: with it the manager does not run, because no pod range could be handed out safely");
            items.of(node).remark(RemarkKind::Refused, message);
        }
    }
    if !misfits.is_empty() {
        return;
    }
    let mut asking: Vec<&Arc<Node>> = nodes.iter().filter(|node| !node.deleting && !node.is_paused()).collect();
    asking.sort_by(|one, other| one.name.cmp(&other.name));
    match options.allocator {
        AllocatorType::Range => {
            asking.iter().filter(|node| node.pod_cidrs.is_empty()).for_each(|node| give(items, &mut allocator, node))
        }
        AllocatorType::FromCloud => with_clouds(items, &mut allocator, &asking, clouds, AllocationMode::Cloud).await,
        AllocatorType::FromCluster => {
            with_clouds(items, &mut allocator, &asking, clouds, AllocationMode::Cluster).await
        }
    }
}

fn give(items: &mut Items, allocator: &mut Allocator, node: &Node) {
    match allocator.allocate(&node.name) {
        Ok(ranges) => items.of(node).update(vec![pod_cidrs(&ranges)]),
        Err(exhausted) => items.of(node).remark(RemarkKind::Refused, exhausted.to_string()),
    }
}

fn pod_cidrs(ranges: &[IpNet]) -> FieldChange {
    changed("spec.podCIDRs", None, Some(texts(ranges).join(", ")))
}

/// One read of all machines, and what their ranges mean for their Nodes.
async fn with_clouds(
    items: &mut Items,
    allocator: &mut Allocator,
    nodes: &[&Arc<Node>],
    clouds: &Clouds,
    lead: AllocationMode,
) {
    let questions: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
    let answers = clouds.observe_all(&questions, Freshness::Now).await;
    if lead == AllocationMode::Cluster {
        nodes.iter().zip(&answers).for_each(|(node, answer)| keep_for(allocator, node, answer));
    }
    for (node, answer) in nodes.iter().zip(answers) {
        match answer {
            Ok(Ownership::Owned { provider, state }) => {
                let Some(instance) = state.instance() else { continue };
                items.of(node).cloud = Some(provider);
                follow(items, allocator, node, lead::decide(&node.pod_cidrs, &instance.pod_ranges, lead));
            }
            Ok(Ownership::NoOwner(_)) => {}
            Err(error) => items.of(node).remark(RemarkKind::Failed, error.to_string()),
        }
    }
}

/// What the cloud leads to the machine of a Node without ranges is given to no other.
fn keep_for(allocator: &mut Allocator, node: &Node, answer: &Result<Ownership, Error>) {
    if let Ok(Ownership::Owned { state, .. }) = answer
        && let Some(instance) = state.instance().filter(|instance| !instance.pod_ranges.is_empty())
        && node.pod_cidrs.is_empty()
        && allocator.observe(&node.name, &texts(&instance.pod_ranges)).is_err()
    {
        allocator.release(&node.name);
    }
}

fn texts(ranges: &[IpNet]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}

fn follow(items: &mut Items, allocator: &mut Allocator, node: &Node, step: lead::Step) {
    match step {
        lead::Step::Agreed => {}
        lead::Step::WriteToNode(ranges) => match allocator.observe(&node.name, &texts(&ranges)) {
            Ok(()) => items.of(node).update(vec![pod_cidrs(&ranges)]),
            Err(misfit) => {
                let message = format!("The cloud's range cannot be the node's: {misfit}");
                items.of(node).remark(RemarkKind::Refused, message);
            }
        },
        lead::Step::AssignInCloud(ranges) => {
            let steps = ranges.iter().map(|range| step_of(Verb::Create, "pod range", range, vec![]));
            items.of(node).in_cloud.steps.extend(steps);
        }
        lead::Step::Allocate => give(items, allocator, node),
        lead::Step::Refuse(refusal) => items.of(node).remark(RemarkKind::Refused, refusal.to_string()),
    }
}

// ---- node-route-controller

/// Which routes would come and go, and what Nodes would be told. Returns an item for each route that leads to no Node, and
/// for each cloud whose routes cannot be listed.
pub(super) async fn routes(
    items: &mut Items,
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &route::Options,
    now: Moment,
) -> Vec<Item> {
    let (nodes, cluster_uid) = (&snapshot.nodes, snapshot.cluster_uid.as_deref());
    let without_machine = without_machine(nodes, clouds).await;
    let mut orphans = Vec::new();
    for cloud in clouds.iter().filter(|cloud| cloud.has_routes()) {
        let fleet = Fleet::listed(nodes, clouds, cloud);
        match cloud.layers().list_routes(&options.cluster).await {
            Ok(routes) => {
                let mut table: Table = routes.into_iter().collect();
                for node in fleet.own() {
                    let scene = Scene { table: &table, nodes: &fleet, ranges: &options.ranges, cluster_uid };
                    let gone = led(items, &scene, cloud, &node, without_machine.contains(&node.name));
                    // What goes for a Node is no stray any more.
                    gone.iter().for_each(|id| table.remove(id));
                }
                let scene = Scene { table: &table, nodes: &fleet, ranges: &options.ranges, cluster_uid };
                orphans.extend(leading_nowhere(&scene, cloud, options.max_share, nodes.len(), now));
            }
            Err(error) => orphans.push(unlisted(cloud, &error)),
        }
    }
    orphans
}

/// Names of the Nodes whose machines are gone. The cloud does not make a route to such a machine, and the Node is about to go.
async fn without_machine(nodes: &[Arc<Node>], clouds: &Clouds) -> HashSet<NodeName> {
    let asked: Vec<_> = nodes.iter().filter(|node| node.provider_id.is_some()).collect();
    let questions: Vec<_> = asked.iter().map(|node| InstanceRef::of(node)).collect();
    let answers = clouds.observe_all(&questions, FRESHNESS).await;
    let is_gone = |answer| matches!(answer, Ok(Ownership::Owned { state: InstanceState::Gone, .. }));
    let gone = asked.into_iter().zip(answers).filter_map(|(node, answer)| is_gone(answer).then_some(node));
    gone.map(|node| node.name.clone()).collect()
}

/// Without a listing nothing is known of any route.
fn unlisted(cloud: &Cloud, error: &Error) -> Item {
    let mut item = Item::new(Object { kind: "Routes", namespace: None, name: cloud.name().to_string() });
    item.cloud = Some(cloud.name().clone());
    item.remark(RemarkKind::Failed, error.to_string());
    item
}

/// What one Node needs, and what it would be told if all of that works. Returns the routes that go.
fn led(items: &mut Items, scene: &Scene<'_>, cloud: &Cloud, node: &Node, is_gone: bool) -> Vec<String> {
    let mut plan = routes::decide(scene, node);
    let missing = plan.lanes.iter_mut().filter_map(|lane| lane.create.take_if(|_| is_gone)).count();
    let told = routes::network(node, plan.is_complete(), plan.has_route()).filter(|_| missing == 0);
    if plan.is_empty() && told.is_none() {
        return Vec::new();
    }
    let item = items.of(node);
    item.cloud = Some(cloud.name().clone());
    if missing > 0 {
        item.remark(RemarkKind::Note, "no route is created: its machine is gone");
    }
    item.in_cloud.steps.extend(plan.lanes.iter().flat_map(steps));
    if let Some(then) = told {
        let now = node.network.as_ref().map(|network| format!("{} ({})", network.status, network.reason));
        let then = format!("{} ({})", then.status, then.reason);
        item.update(vec![changed(format!("condition {NETWORK_UNAVAILABLE}"), now, Some(then))]);
    }
    plan.lanes.iter().flat_map(|lane| &lane.remove).map(|removal| removal.route.id.clone()).collect()
}

fn leading_nowhere(scene: &Scene<'_>, cloud: &Cloud, max_share: f64, nodes: usize, now: Moment) -> Vec<Item> {
    let orphans = routes::orphans(scene);
    let ruling = Brake::new(max_share).confirm(orphans.len(), scene.responsibilities(), nodes, now.instant);
    orphans.iter().map(|removal| stray(cloud, removal, &ruling)).collect()
}

fn steps(lane: &Lane) -> impl Iterator<Item = Step> {
    lane.remove.iter().map(removal).chain(lane.create.iter().map(creation))
}

fn removal(removal: &Removal) -> Step {
    let why = match removal.why {
        Why::Unwanted => "the node does not have this range",
        Why::Moved => "it does not lead to the node as it is now",
        Why::Blackhole => "it leads nowhere",
        Why::InTheWay => "another node has this range",
        Why::Stray => "the node does not exist",
    };
    let leads_to = removal.route.node.as_ref().map(ToString::to_string);
    let changes = vec![changed("node", leads_to, None), changed("because", None, Some(why.to_owned()))];
    step_of(Verb::Delete, "route", &removal.route.destination, changes)
}

fn creation(spec: &RouteSpec) -> Step {
    step_of(Verb::Create, "route", &spec.destination, vec![changed("node", None, Some(spec.node.to_string()))])
}

fn step_of(verb: Verb, kind: &str, range: &IpNet, changes: Vec<FieldChange>) -> Step {
    Step::new(verb, kind, range.to_string(), changes, Opaque::default())
}

/// A route is no object of the cluster; it stands for itself.
fn stray(cloud: &Cloud, stray: &Removal, ruling: &BrakeDecision) -> Item {
    let mut item = Item::new(Object { kind: "Route", namespace: None, name: stray.route.destination.to_string() });
    item.cloud = Some(cloud.name().clone());
    match ruling {
        BrakeDecision::Hold(doubt) => item.remark(RemarkKind::HeldBack, doubt.to_string()),
        BrakeDecision::Go | BrakeDecision::Ask => item.in_cloud = Plan::of(vec![removal(stray)]),
    }
    item
}
