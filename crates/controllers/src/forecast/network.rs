//! Forecast of the node-ipam-controller and the node-route-controller.

use std::collections::HashSet;
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, Error, Freshness, Ownership};
use bowline_core::ipam::cloud::{self as lead, AllocationMode};
use bowline_core::ipam::{Allocator, InvalidPodCidr};
use bowline_core::lifecycle::Moment;
use bowline_core::routes::{self, Brake, BrakeDecision, Removal, RemovalReason, RouteChange, RouteContext, RouteTable};
use bowline_core::well_known::NETWORK_UNAVAILABLE;
use bowline_core::{FieldChange, InstanceRef, InstanceState, Node, NodeName, Opaque, Plan, RouteSpec, Step, Verb};
use ipnet::IpNet;

use super::nodes::{FRESHNESS, Items};
use super::{Item, NoticeKind, Object, Snapshot, changed};
use crate::node_ipam::{self, AllocatorType};
use crate::route::{self, Fleet};

// ---- node-ipam-controller

/// Plans the allocation of pod CIDRs to Nodes without any. Nodes that register at the same time may get theirs in another order.
pub(super) async fn plan_pod_cidrs(
    items: &mut Items,
    nodes: &[Arc<Node>],
    clouds: &Clouds,
    options: &node_ipam::Options,
) {
    let mut allocator = Allocator::new(&options.cluster_cidrs, &options.service_cidrs);
    let invalid: Vec<InvalidPodCidr> =
        nodes.iter().filter_map(|node| allocator.observe(&node.name, &node.pod_cidrs).err()).collect();
    for cidr in &invalid {
        if let Some(node) = nodes.iter().find(|node| node.name == cidr.node) {
            let message =
                format!("{cidr}: the manager does not start with it, because it cannot allocate pod CIDRs safely");
            items.of(node).add_notice(NoticeKind::Refused, message);
        }
    }
    if !invalid.is_empty() {
        return;
    }
    let mut eligible: Vec<&Arc<Node>> = nodes.iter().filter(|node| !node.deleting && !node.is_paused()).collect();
    eligible.sort_by(|one, other| one.name.cmp(&other.name));
    match options.allocator {
        AllocatorType::Range => eligible
            .iter()
            .filter(|node| node.pod_cidrs.is_empty())
            .for_each(|node| allocate(items, &mut allocator, node)),
        AllocatorType::FromCloud => {
            plan_with_clouds(items, &mut allocator, &eligible, clouds, AllocationMode::Cloud).await
        }
        AllocatorType::FromCluster => {
            plan_with_clouds(items, &mut allocator, &eligible, clouds, AllocationMode::Cluster).await
        }
    }
}

fn allocate(items: &mut Items, allocator: &mut Allocator, node: &Node) {
    match allocator.allocate(&node.name) {
        Ok(ranges) => items.of(node).update(vec![pod_cidr_change(&ranges)]),
        Err(exhausted) => items.of(node).add_notice(NoticeKind::Refused, exhausted.to_string()),
    }
}

fn pod_cidr_change(ranges: &[IpNet]) -> FieldChange {
    changed("spec.podCIDRs", None, Some(to_strings(ranges).join(", ")))
}

/// Observes all machines with one read, and plans the pod CIDRs of their Nodes.
async fn plan_with_clouds(
    items: &mut Items,
    allocator: &mut Allocator,
    nodes: &[&Arc<Node>],
    clouds: &Clouds,
    lead: AllocationMode,
) {
    let instances: Vec<_> = nodes.iter().map(|node| InstanceRef::of(node)).collect();
    let answers = clouds.observe_all(&instances, Freshness::Now).await;
    if lead == AllocationMode::Cluster {
        nodes.iter().zip(&answers).for_each(|(node, answer)| reserve_for_machine(allocator, node, answer));
    }
    for (node, answer) in nodes.iter().zip(answers) {
        match answer {
            Ok(Ownership::Owned { provider, state }) => {
                let Some(instance) = state.instance() else { continue };
                items.of(node).cloud = Some(provider);
                plan_step(items, allocator, node, lead::decide(&node.pod_cidrs, &instance.pod_cidrs, lead));
            }
            Ok(Ownership::NoOwner(_)) => {}
            Err(error) => items.of(node).add_notice(NoticeKind::Failed, error.to_string()),
        }
    }
}

/// Reserves the CIDRs that the cloud has assigned to the machine of a Node without CIDRs.
fn reserve_for_machine(allocator: &mut Allocator, node: &Node, answer: &Result<Ownership, Error>) {
    if let Ok(Ownership::Owned { state, .. }) = answer
        && let Some(instance) = state.instance().filter(|instance| !instance.pod_cidrs.is_empty())
        && node.pod_cidrs.is_empty()
        && allocator.observe(&node.name, &to_strings(&instance.pod_cidrs)).is_err()
    {
        allocator.release(&node.name);
    }
}

fn to_strings(ranges: &[IpNet]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}

fn plan_step(items: &mut Items, allocator: &mut Allocator, node: &Node, step: lead::Step) {
    match step {
        lead::Step::Agreed => {}
        lead::Step::WriteToNode(ranges) => match allocator.observe(&node.name, &to_strings(&ranges)) {
            Ok(()) => items.of(node).update(vec![pod_cidr_change(&ranges)]),
            Err(cidr) => {
                let message = format!("The node cannot have the cloud's pod CIDR: {cidr}");
                items.of(node).add_notice(NoticeKind::Refused, message);
            }
        },
        lead::Step::AssignInCloud(ranges) => {
            let steps = ranges.iter().map(|range| cidr_step(Verb::Create, "pod CIDR", range, vec![]));
            items.of(node).in_cloud.steps.extend(steps);
        }
        lead::Step::Allocate => allocate(items, allocator, node),
        lead::Step::Refuse(refusal) => items.of(node).add_notice(NoticeKind::Refused, refusal.to_string()),
    }
}

// ---- node-route-controller

/// Plans the routes and conditions of Nodes. Returns an item for each route without a Node, and for each cloud whose routes cannot
/// be listed.
pub(super) async fn plan_routes(
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
        let fleet = Fleet::from_list(nodes, clouds, cloud);
        match cloud.layers().list_routes(&options.cluster).await {
            Ok(routes) => {
                let mut table: RouteTable = routes.into_iter().collect();
                for node in fleet.owned() {
                    let context =
                        RouteContext { table: &table, nodes: &fleet, ranges: &options.cluster_cidrs, cluster_uid };
                    let gone = plan_node_routes(items, &context, cloud, &node, without_machine.contains(&node.name));
                    // A route that is deleted for a Node is no orphan any more.
                    gone.iter().for_each(|id| table.remove(id));
                }
                let context =
                    RouteContext { table: &table, nodes: &fleet, ranges: &options.cluster_cidrs, cluster_uid };
                orphans.extend(plan_orphans(&context, cloud, options.max_share, nodes.len(), now));
            }
            Err(error) => orphans.push(listing_failed(cloud, &error)),
        }
    }
    orphans
}

/// Returns the names of Nodes whose machines are gone. The cloud rejects a route to such a machine, and the Node is about to be
/// deleted.
async fn without_machine(nodes: &[Arc<Node>], clouds: &Clouds) -> HashSet<NodeName> {
    let asked: Vec<_> = nodes.iter().filter(|node| node.provider_id.is_some()).collect();
    let instances: Vec<_> = asked.iter().map(|node| InstanceRef::of(node)).collect();
    let answers = clouds.observe_all(&instances, FRESHNESS).await;
    let is_gone = |answer| matches!(answer, Ok(Ownership::Owned { state: InstanceState::Gone, .. }));
    let gone = asked.into_iter().zip(answers).filter_map(|(node, answer)| is_gone(answer).then_some(node));
    gone.map(|node| node.name.clone()).collect()
}

/// Item of a cloud whose routes cannot be listed.
fn listing_failed(cloud: &Cloud, error: &Error) -> Item {
    let mut item = Item::new(Object { kind: "Routes", namespace: None, name: cloud.name().to_string() });
    item.cloud = Some(cloud.name().clone());
    item.add_notice(NoticeKind::Failed, error.to_string());
    item
}

/// Plans the routes of one Node, and its condition if all steps succeed. Returns the IDs of the routes that are deleted.
fn plan_node_routes(
    items: &mut Items,
    context: &RouteContext<'_>,
    cloud: &Cloud,
    node: &Node,
    is_gone: bool,
) -> Vec<String> {
    let mut plan = routes::decide(context, node);
    let missing = plan.changes.iter_mut().filter_map(|change| change.create.take_if(|_| is_gone)).count();
    let status = routes::network_status(node, plan.is_complete(), plan.has_route()).filter(|_| missing == 0);
    if plan.is_empty() && status.is_none() {
        return Vec::new();
    }
    let item = items.of(node);
    item.cloud = Some(cloud.name().clone());
    if missing > 0 {
        item.add_notice(NoticeKind::Note, "no route is created, because its machine is gone");
    }
    item.in_cloud.steps.extend(plan.changes.iter().flat_map(steps));
    if let Some(then) = status {
        let now = node.network.as_ref().map(|network| format!("{} ({})", network.status, network.reason));
        let then = format!("{} ({})", then.status, then.reason);
        item.update(vec![changed(format!("condition {NETWORK_UNAVAILABLE}"), now, Some(then))]);
    }
    plan.changes.iter().flat_map(|change| &change.remove).map(|removal| removal.route.id.clone()).collect()
}

fn plan_orphans(context: &RouteContext<'_>, cloud: &Cloud, max_share: f64, nodes: usize, now: Moment) -> Vec<Item> {
    let orphans = routes::orphans(context);
    let decision = Brake::new(max_share).confirm(orphans.len(), context.responsible_count(), nodes, now.instant);
    orphans.iter().map(|removal| orphan_item(cloud, removal, &decision)).collect()
}

fn steps(change: &RouteChange) -> impl Iterator<Item = Step> {
    change.remove.iter().map(delete_step).chain(change.create.iter().map(create_step))
}

fn delete_step(removal: &Removal) -> Step {
    let reason = match removal.reason {
        RemovalReason::Unwanted => "the node does not have this pod CIDR",
        RemovalReason::Moved => "its target is not the node's current machine",
        RemovalReason::Blackhole => "it has no target",
        RemovalReason::Conflict => "another node has this pod CIDR",
        RemovalReason::Orphaned => "the node does not exist",
    };
    let node = removal.route.node.as_ref().map(ToString::to_string);
    let changes = vec![changed("node", node, None), changed("because", None, Some(reason.to_owned()))];
    cidr_step(Verb::Delete, "route", &removal.route.destination, changes)
}

fn create_step(spec: &RouteSpec) -> Step {
    cidr_step(Verb::Create, "route", &spec.destination, vec![changed("node", None, Some(spec.node.to_string()))])
}

fn cidr_step(verb: Verb, kind: &str, range: &IpNet, changes: Vec<FieldChange>) -> Step {
    Step::new(verb, kind, range.to_string(), changes, Opaque::default())
}

/// Item of an orphan, which belongs to no object of the cluster.
fn orphan_item(cloud: &Cloud, orphan: &Removal, decision: &BrakeDecision) -> Item {
    let mut item = Item::new(Object { kind: "Route", namespace: None, name: orphan.route.destination.to_string() });
    item.cloud = Some(cloud.name().clone());
    match decision {
        BrakeDecision::Hold(doubt) => item.add_notice(NoticeKind::HeldBack, doubt.to_string()),
        BrakeDecision::Allow | BrakeDecision::Confirm => item.in_cloud = Plan::of(vec![delete_step(orphan)]),
    }
    item
}
