//! IPAM-12: pod ranges where the cloud leads them to machines by itself.

use std::time::Duration;

use bowline_controllers::node_ipam::AllocatorType;
use bowline_local::{Fault, FaultSpec};
use k8s_openapi::api::core::v1::NodeCondition;
use serde_json::json;

use crate::node_ipam::{DUAL, ONE, metric, options, pod_cidrs, served, world};
use crate::world::{World, machine};

/// A world with these machines, whose Nodes have joined, in a cloud that leads ranges to machines, in this mode.
async fn leading_world(ranges: &[(&str, u8)], allocator: AllocatorType, machines: &[&str]) -> World {
    let mut world = world(ranges).await;
    world.options.node_ipam = Some(options(ranges, allocator));
    world.clouds[0].0.pod_ranges = true;
    for name in machines {
        world.cloud().add(machine(name, &format!("i-{name}"), &[])).unwrap();
        world.join(name, &format!("local://i-{name}"), "True").await;
    }
    world
}

/// The cloud leads these to the machine, and no others.
fn lead(world: &World, name: &str, ranges: &[&str]) {
    let ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
    world.cloud().change(&format!("i-{name}"), |machine| machine.pod_ranges = ranges).unwrap();
}

/// What the cloud leads to the machine.
fn led(world: &World, name: &str) -> Vec<String> {
    let machine = world.cloud().machine(&format!("i-{name}")).unwrap();
    machine.spec.pod_ranges.iter().map(ToString::to_string).collect()
}

async fn network(world: &World, name: &str) -> Option<NodeCondition> {
    let conditions = world.node(name).await.status?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable")
}

/// Waits until the Node says that its pods can be reached.
async fn reachable(world: &World, name: &str) -> NodeCondition {
    world.eventually(&format!("{name} is reachable"), async || network(world, name).await).await
}

#[tokio::test(start_paused = true)]
async fn ipam_12_the_cloud_s_ranges_are_written_to_nodes() {
    let mut world = leading_world(DUAL, AllocatorType::FromCloud, &["a", "b"]).await;
    lead(&world, "a", &["10.10.7.0/24"]);
    lead(&world, "b", &["10.10.8.0/24", "fd00:0:0:8::/64"]);
    world.start();
    assert_eq!(served(&world, "a").await, ["10.10.7.0/24"]);
    assert_eq!(served(&world, "b").await, ["10.10.8.0/24", "fd00:0:0:8::/64"]);
    let condition = reachable(&world, "a").await;
    assert_eq!(condition.status, "False");
    assert_eq!(condition.reason.as_deref(), Some("RouteCreated"));
    assert_eq!(condition.message.as_deref(), Some("NodeController created an implicit route"));
    reachable(&world, "b").await;
    let writes = world.node_writes();
    world.pass(Duration::from_secs(1800)).await;
    assert_eq!(world.node_writes(), writes, "what agrees is not written again");
    assert_eq!(writes["patch"], 2, "one for each");
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_node_whose_machine_has_no_range_waits_for_the_cloud() {
    let mut world = leading_world(ONE, AllocatorType::FromCloud, &["a"]).await;
    world.start();
    world.pass(Duration::from_secs(600)).await;
    let event = world.event("a", "CloudCIDRAllocatorInvalidMode").await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Cannot allocate CIDRs in mode \"SyncFromCloud\""));
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)), "each cause once");
    lead(&world, "a", &["10.10.7.0/24"]);
    assert_eq!(served(&world, "a").await, ["10.10.7.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn ipam_12_what_differs_is_told_and_left() {
    for allocator in [AllocatorType::FromCloud, AllocatorType::FromCluster] {
        let mut world = leading_world(ONE, allocator, &["a"]).await;
        lead(&world, "a", &["10.10.7.0/24"]);
        world.patch("a", json!({"spec": {"podCIDR": "10.10.9.0/24", "podCIDRs": ["10.10.9.0/24"]}})).await;
        let before = world.node_writes();
        world.start();
        let event = world.eventually("it is told", async || world.event("a", "CloudCIDRAllocatorMismatch").await).await;
        let message = "Node.Spec.PodCIDR != cloud alias (10.10.9.0/24 != 10.10.7.0/24)";
        assert_eq!((event.type_.as_deref(), event.message.as_deref()), (Some("Warning"), Some(message)));
        world.pass(Duration::from_secs(1200)).await;
        assert_eq!(world.event("a", "CloudCIDRAllocatorMismatch").await.unwrap().count, Some(1));
        assert_eq!(world.node_writes(), before, "{allocator:?}");
        assert_eq!(led(&world, "a"), ["10.10.7.0/24"], "{allocator:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ipam_12_the_cloud_is_told_of_the_cluster_s_ranges() {
    let mut world = leading_world(DUAL, AllocatorType::FromCluster, &["a", "b"]).await;
    world.start();
    for name in ["a", "b"] {
        let ranges = served(&world, name).await;
        assert_eq!(ranges.len(), 2);
        assert_eq!(reachable(&world, name).await.status, "False");
        assert_eq!(led(&world, name), ranges);
    }
    assert_ne!(led(&world, "a"), led(&world, "b"));
    assert_eq!(world.cloud().calls()["assign-pod-range"], 4, "one for each range");
    assert_eq!(world.node_writes()["patch"], 2, "one for each");
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_cloud_that_refuses_is_asked_again_and_the_node_keeps_its_range() {
    let mut world = leading_world(ONE, AllocatorType::FromCluster, &["a"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(403)).on("assign-pod-range"));
    world.start();
    let ranges = served(&world, "a").await;
    world.eventually("it is told", async || world.event("a", "CIDRAssignmentFailed").await).await;
    assert!(network(&world, "a").await.is_none(), "its pods cannot be reached yet");
    // A manager that ends in between is succeeded by one that finishes its work.
    world.kill().await;
    world.cloud().repair_all();
    world.start();
    reachable(&world, "a").await;
    assert_eq!((led(&world, "a"), pod_cidrs(&world.node("a").await)), (ranges.clone(), ranges));
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_range_that_only_the_cloud_knows_is_none_of_the_cluster_s() {
    let mut world = leading_world(ONE, AllocatorType::FromCluster, &["a"]).await;
    lead(&world, "a", &["10.10.7.0/24"]);
    world.start();
    let event = world.eventually("it is told", async || world.event("a", "CloudCIDRAllocatorInvalidMode").await).await;
    assert_eq!(event.message.as_deref(), Some("Cannot sync from cloud in mode \"SyncFromCluster\""));
    assert!(pod_cidrs(&world.node("a").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_range_that_the_cloud_leads_to_one_machine_is_not_given_to_the_node_of_another() {
    let mut world = leading_world(ONE, AllocatorType::FromCluster, &["a", "b"]).await;
    // The first of the cluster's, which is b's turn.
    lead(&world, "a", &["10.10.0.0/24"]);
    world.start();
    assert_eq!(served(&world, "b").await, ["10.10.1.0/24"]);
    reachable(&world, "b").await;
    assert_eq!(
        (led(&world, "a"), led(&world, "b")),
        (vec!["10.10.0.0/24".to_owned()], vec!["10.10.1.0/24".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn ipam_12_a_cloud_s_range_outside_the_cluster_s_is_not_written() {
    let mut world = leading_world(ONE, AllocatorType::FromCloud, &["a"]).await;
    lead(&world, "a", &["172.16.0.0/24"]);
    world.start();
    let event =
        world.eventually("it is told", async || world.event("a", "CloudCIDRAllocatorInvalidPodCIDR").await).await;
    assert!(event.message.unwrap().contains("lies outside the cluster's range 10.10.0.0/16"));
    assert!(pod_cidrs(&world.node("a").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_while_the_cloud_is_asked_leaves_nothing_behind() {
    let mut world = leading_world(ONE, AllocatorType::FromCluster, &["a"]).await;
    world.cloud().set_latency(Duration::from_secs(5));
    world.start();
    world.pass(Duration::from_secs(2)).await;
    world.delete("a").await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 0.0);
}

/// A machine was replaced, and the Node of its predecessor is still there: the range waits until it is gone.
#[tokio::test(start_paused = true)]
async fn ipam_12_a_cloud_s_range_that_another_node_has_is_written_when_that_one_is_gone() {
    let mut world = leading_world(ONE, AllocatorType::FromCloud, &["new"]).await;
    world.register_with("old", json!({"spec": {"podCIDR": "10.10.7.0/24", "podCIDRs": ["10.10.7.0/24"]}})).await;
    lead(&world, "new", &["10.10.7.0/24"]);
    world.start();
    let event =
        world.eventually("it is told", async || world.event("new", "CloudCIDRAllocatorInvalidPodCIDR").await).await;
    assert!(event.message.unwrap().contains("what node old has"));
    world.pass(Duration::from_secs(300)).await;
    assert!(pod_cidrs(&world.node("new").await).is_empty(), "one range, two Nodes");
    world.delete("old").await;
    assert_eq!(served(&world, "new").await, ["10.10.7.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn ipam_12_the_cloud_is_not_told_of_a_range_that_is_none_of_the_cluster_s() {
    let mut world = leading_world(ONE, AllocatorType::FromCluster, &[]).await;
    world.start();
    world.pass(Duration::from_secs(1)).await;
    world.cloud().add(machine("odd", "i-odd", &[])).unwrap();
    let spec = json!({"providerID": "local://i-odd", "podCIDR": "172.16.0.0/24", "podCIDRs": ["172.16.0.0/24"]});
    world.register_with("odd", json!({"spec": spec})).await;
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(led(&world, "odd"), [""; 0]);
    assert!(network(&world, "odd").await.is_none(), "its pods cannot be reached");
}
