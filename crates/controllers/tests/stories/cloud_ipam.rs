//! IPAM-12: pod CIDRs with a cloud that routes them to machines itself.

use std::time::Duration;

use bowline_controllers::node_ipam::AllocatorType;
use bowline_local::{Fault, FaultSpec};
use k8s_openapi::api::core::v1::NodeCondition;
use serde_json::json;

use crate::node_ipam::{DUAL, ONE, metric, options, pod_cidrs, wait_for_pod_cidrs, world};
use crate::world::{World, machine};

/// World with these machines and their Nodes, in a cloud that assigns pod CIDRs to machines, with this allocator.
async fn world_with_machines(cidrs: &[(&str, u8)], allocator: AllocatorType, machines: &[&str]) -> World {
    let mut world = world(cidrs).await;
    world.options.node_ipam = Some(options(cidrs, allocator));
    world.clouds[0].0.pod_ranges = true;
    for name in machines {
        world.cloud().add(machine(name, &format!("i-{name}"), &[])).unwrap();
        world.join(name, &format!("local://i-{name}"), "True").await;
    }
    world
}

/// Sets the pod CIDRs of the machine in the cloud.
fn assign_in_cloud(world: &World, name: &str, cidrs: &[&str]) {
    let cidrs = cidrs.iter().map(|range| range.parse().unwrap()).collect();
    world.cloud().change(&format!("i-{name}"), |machine| machine.pod_ranges = cidrs).unwrap();
}

/// Returns the pod CIDRs of the machine in the cloud.
fn assigned_in_cloud(world: &World, name: &str) -> Vec<String> {
    let machine = world.cloud().machine(&format!("i-{name}")).unwrap();
    machine.spec.pod_ranges.iter().map(ToString::to_string).collect()
}

async fn network_condition(world: &World, name: &str) -> Option<NodeCondition> {
    let conditions = world.node(name).await.status?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable")
}

/// Waits until the Node has the condition NetworkUnavailable.
async fn wait_until_reachable(world: &World, name: &str) -> NodeCondition {
    world.eventually(&format!("{name} is reachable"), async || network_condition(world, name).await).await
}

#[tokio::test(start_paused = true)]
async fn ipam_12_pod_cidrs_of_the_cloud_are_written_to_nodes() {
    let mut world = world_with_machines(DUAL, AllocatorType::FromCloud, &["a", "b"]).await;
    assign_in_cloud(&world, "a", &["10.10.7.0/24"]);
    assign_in_cloud(&world, "b", &["10.10.8.0/24", "fd00:0:0:8::/64"]);
    world.start();
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.10.7.0/24"]);
    assert_eq!(wait_for_pod_cidrs(&world, "b").await, ["10.10.8.0/24", "fd00:0:0:8::/64"]);
    let condition = wait_until_reachable(&world, "a").await;
    assert_eq!(condition.status, "False");
    assert_eq!(condition.reason.as_deref(), Some("RouteCreated"));
    assert_eq!(condition.message.as_deref(), Some("NodeController created an implicit route"));
    wait_until_reachable(&world, "b").await;
    let writes = world.node_writes();
    world.sleep(Duration::from_secs(1800)).await;
    assert_eq!(world.node_writes(), writes, "matching pod CIDRs are not written again");
    assert_eq!(writes["patch"], 2, "one for each");
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_node_whose_machine_has_no_pod_cidr_waits_for_the_cloud() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCloud, &["a"]).await;
    world.start();
    world.sleep(Duration::from_secs(600)).await;
    let event = world.event("a", "CloudCIDRAllocatorInvalidMode").await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Cannot allocate CIDRs in mode \"SyncFromCloud\""));
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)), "each cause once");
    assign_in_cloud(&world, "a", &["10.10.7.0/24"]);
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.10.7.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_mismatch_is_reported_and_not_changed() {
    for allocator in [AllocatorType::FromCloud, AllocatorType::FromCluster] {
        let mut world = world_with_machines(ONE, allocator, &["a"]).await;
        assign_in_cloud(&world, "a", &["10.10.7.0/24"]);
        world.patch("a", json!({"spec": {"podCIDR": "10.10.9.0/24", "podCIDRs": ["10.10.9.0/24"]}})).await;
        let before = world.node_writes();
        world.start();
        let event = world.eventually("the Event", async || world.event("a", "CloudCIDRAllocatorMismatch").await).await;
        let message = "Node.Spec.PodCIDR != cloud alias (10.10.9.0/24 != 10.10.7.0/24)";
        assert_eq!((event.type_.as_deref(), event.message.as_deref()), (Some("Warning"), Some(message)));
        world.sleep(Duration::from_secs(1200)).await;
        assert_eq!(world.event("a", "CloudCIDRAllocatorMismatch").await.unwrap().count, Some(1));
        assert_eq!(world.node_writes(), before, "{allocator:?}");
        assert_eq!(assigned_in_cloud(&world, "a"), ["10.10.7.0/24"], "{allocator:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ipam_12_allocated_pod_cidrs_are_assigned_in_the_cloud() {
    let mut world = world_with_machines(DUAL, AllocatorType::FromCluster, &["a", "b"]).await;
    world.start();
    for name in ["a", "b"] {
        let cidrs = wait_for_pod_cidrs(&world, name).await;
        assert_eq!(cidrs.len(), 2);
        assert_eq!(wait_until_reachable(&world, name).await.status, "False");
        assert_eq!(assigned_in_cloud(&world, name), cidrs);
    }
    assert_ne!(assigned_in_cloud(&world, "a"), assigned_in_cloud(&world, "b"));
    assert_eq!(world.cloud().calls()["assign-pod-range"], 4, "one for each pod CIDR");
    assert_eq!(world.node_writes()["patch"], 2, "one for each");
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_rejected_assignment_is_retried_and_the_node_keeps_its_pod_cidr() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCluster, &["a"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(403)).on("assign-pod-range"));
    world.start();
    let cidrs = wait_for_pod_cidrs(&world, "a").await;
    world.eventually("the Event", async || world.event("a", "CIDRAssignmentFailed").await).await;
    assert!(network_condition(&world, "a").await.is_none(), "its pods are not reachable yet");
    // After a crash, the next manager finishes the assignment.
    world.kill().await;
    world.cloud().repair_all();
    world.start();
    wait_until_reachable(&world, "a").await;
    assert_eq!((assigned_in_cloud(&world, "a"), pod_cidrs(&world.node("a").await)), (cidrs.clone(), cidrs));
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_pod_cidr_that_only_the_cloud_has_is_not_written_to_the_node() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCluster, &["a"]).await;
    assign_in_cloud(&world, "a", &["10.10.7.0/24"]);
    world.start();
    let event = world.eventually("the Event", async || world.event("a", "CloudCIDRAllocatorInvalidMode").await).await;
    assert_eq!(event.message.as_deref(), Some("Cannot sync from cloud in mode \"SyncFromCluster\""));
    assert!(pod_cidrs(&world.node("a").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_cidr_assigned_to_one_machine_is_not_allocated_to_the_node_of_another() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCluster, &["a", "b"]).await;
    // The first block of the cluster CIDR, which b would get.
    assign_in_cloud(&world, "a", &["10.10.0.0/24"]);
    world.start();
    assert_eq!(wait_for_pod_cidrs(&world, "b").await, ["10.10.1.0/24"]);
    wait_until_reachable(&world, "b").await;
    assert_eq!(
        (assigned_in_cloud(&world, "a"), assigned_in_cloud(&world, "b")),
        (vec!["10.10.0.0/24".to_owned()], vec!["10.10.1.0/24".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_pod_cidr_outside_the_cluster_cidr_is_not_written() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCloud, &["a"]).await;
    assign_in_cloud(&world, "a", &["172.16.0.0/24"]);
    world.start();
    let event =
        world.eventually("the Event", async || world.event("a", "CloudCIDRAllocatorInvalidPodCIDR").await).await;
    assert!(event.message.unwrap().contains("is outside the cluster CIDR 10.10.0.0/16"));
    assert!(pod_cidrs(&world.node("a").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_during_the_cloud_read_leaves_no_allocation() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCluster, &["a"]).await;
    world.cloud().set_latency(Duration::from_secs(5));
    world.start();
    world.sleep(Duration::from_secs(2)).await;
    world.delete("a").await;
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 0.0);
}

/// A machine was replaced, and the Node of its predecessor still exists: the pod CIDR is written once that Node is deleted.
#[tokio::test(start_paused = true)]
async fn ipam_12_a_pod_cidr_of_another_node_is_written_once_that_node_is_deleted() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCloud, &["new"]).await;
    world.register_with("old", json!({"spec": {"podCIDR": "10.10.7.0/24", "podCIDRs": ["10.10.7.0/24"]}})).await;
    assign_in_cloud(&world, "new", &["10.10.7.0/24"]);
    world.start();
    let event =
        world.eventually("the Event", async || world.event("new", "CloudCIDRAllocatorInvalidPodCIDR").await).await;
    assert!(event.message.unwrap().contains("overlaps a pod CIDR of node old"));
    world.sleep(Duration::from_secs(300)).await;
    assert!(pod_cidrs(&world.node("new").await).is_empty(), "another Node has the pod CIDR");
    world.delete("old").await;
    assert_eq!(wait_for_pod_cidrs(&world, "new").await, ["10.10.7.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_pod_cidr_outside_the_cluster_cidr_is_not_assigned_in_the_cloud() {
    let mut world = world_with_machines(ONE, AllocatorType::FromCluster, &[]).await;
    world.start();
    world.sleep(Duration::from_secs(1)).await;
    world.cloud().add(machine("odd", "i-odd", &[])).unwrap();
    let spec = json!({"providerID": "local://i-odd", "podCIDR": "172.16.0.0/24", "podCIDRs": ["172.16.0.0/24"]});
    world.register_with("odd", json!({"spec": spec})).await;
    world.sleep(Duration::from_secs(120)).await;
    assert_eq!(assigned_in_cloud(&world, "odd"), [""; 0]);
    assert!(network_condition(&world, "odd").await.is_none(), "its pods are not reachable");
}
