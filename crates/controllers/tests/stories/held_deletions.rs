//! Rules against doubtful deletions: grace period, second read, witness, brake, and Nodes of other owners.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec};
use serde_json::json;

use crate::world::{World, machine};

/// Long enough for every grace period, confirmation and retry; shorter than the brake's window.
const LONG: Duration = Duration::from_secs(300);

/// World with `size` Nodes that are not Ready, of which the first `missing` have no machine.
async fn world(size: usize, missing: usize) -> World {
    let world = World::new().await;
    for index in 0..size {
        if index >= missing {
            world.cloud().add(machine(&format!("node{index}"), &format!("i-{index}"), &[])).unwrap();
        }
        world.join(&format!("node{index}"), &format!("local://i-{index}"), "Unknown").await;
    }
    world
}

async fn left(world: &World, size: usize) -> usize {
    let mut left = 0;
    for index in 0..size {
        left += usize::from(world.get(&format!("node{index}")).await.is_some());
    }
    left
}

#[tokio::test(start_paused = true)]
async fn a_new_node_stays_for_the_grace_period() {
    let mut world = world(3, 1).await;
    let policy = &mut world.options.node_lifecycle.as_mut().unwrap().policy;
    policy.grace = Duration::from_secs(120);
    world.start();
    world.sleep(Duration::from_secs(110)).await;
    assert_eq!(left(&world, 3).await, 3);
    world.wait_until_deleted("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_missing_in_one_read_keeps_its_node() {
    let mut world = world(3, 1).await;
    world.options.node_lifecycle.as_mut().unwrap().policy.confirm_after = Duration::from_secs(60);
    world.start();
    // After the grace period and the first read, before the second.
    world.sleep(Duration::from_secs(60)).await;
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_ready_between_the_two_reads_stays() {
    let mut world = world(3, 1).await;
    world.options.node_lifecycle.as_mut().unwrap().policy.confirm_after = Duration::from_secs(60);
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    world.set_ready("node0", "True").await;
    world.sleep(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_that_shows_no_machine_is_not_enough() {
    let mut world = world(3, 1).await;
    // One read shows the state before the machine was created.
    let mut stale = FaultSpec::always(Fault::Stale);
    stale.times = Some(1);
    world.cloud().inject(stale);
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_project_without_any_visible_machine_deletes_no_node() {
    let mut world = world(4, 4).await;
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 4).await, 4);
    let event = world.event("node0", "DeletionHeldBack").await.unwrap();
    assert!(event.message.unwrap().contains("kubectl annotate node node0 bowline.dev/allow-deletion=true"));
}

#[tokio::test(start_paused = true)]
async fn the_brake_stops_all_deletions_and_reports_how_to_release_it() {
    let mut world = world(10, 5).await;
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 10).await, 10, "none is deleted, not as many as allowed");
    for index in 0..5 {
        let event = world.event(&format!("node{index}"), "DeletionHeldBack").await.unwrap();
        assert_eq!(event.count, Some(1));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
    assert_eq!(held_back(&world), 5);
    // Two deletions are allowed; the remaining three are within the share of the remaining Nodes.
    for name in ["node0", "node1"] {
        world.patch(name, json!({"metadata": {"annotations": {"bowline.dev/allow-deletion": "true"}}})).await;
    }
    world.sleep(LONG).await;
    assert!(world.get("node0").await.is_none() && world.get("node1").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_brake_counts_deletions_from_before_a_restart() {
    let mut world = world(10, 3).await;
    world.start();
    for index in 0..3 {
        world.wait_until_deleted(&format!("node{index}")).await;
    }
    world.kill().await;
    for index in 3..5 {
        world.cloud().delete(&format!("i-{index}")).unwrap();
    }
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 10).await, 7, "two more would be five of ten within ten minutes");
    assert!(world.event("node3", "DeletionHeldBack").await.is_some());
    // They are deleted after the window.
    world.wait_until_deleted("node3").await;
    world.wait_until_deleted("node4").await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_deleted_while_the_record_of_deletions_cannot_be_written() {
    let mut world = world(3, 1).await;
    world.fail("create", "leases", 500, None);
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
    world.server.faults().clear();
    world.wait_until_deleted("node0").await;
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_for_the_record_the_brake_still_works_in_this_process() {
    let mut world = world(10, 3).await;
    let permissions = bowline_controllers::Permissions::of(&world.options).of_one();
    world.permissions = Some(permissions.into_iter().filter(|permission| permission.resource != "leases").collect());
    world.start();
    for index in 0..3 {
        world.wait_until_deleted(&format!("node{index}")).await;
    }
    for index in 3..5 {
        world.cloud().delete(&format!("i-{index}")).unwrap();
    }
    world.sleep(LONG).await;
    assert_eq!(left(&world, 10).await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_stays_until_the_cloud_lists_its_machine_late() {
    let mut world = world(2, 0).await;
    world.register_with("late", json!({"spec": {"providerID": "local://i-late"}})).await;
    world.start();
    world.sleep(Duration::from_secs(240)).await;
    world.cloud().add(machine("late", "i-late", &[])).unwrap();
    world.wait_until_initialized("late").await;
}

#[tokio::test(start_paused = true)]
async fn the_brake_releases_when_fewer_machines_are_missing() {
    let mut world = world(10, 5).await;
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 10).await, 10);
    for index in 0..3 {
        world.cloud().add(machine(&format!("node{index}"), &format!("i-{index}"), &[])).unwrap();
    }
    world.sleep(LONG).await;
    assert_eq!(left(&world, 10).await, 8);
    assert_eq!(held_back(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn deleted_nodes_count_until_the_window_has_passed() {
    let mut world = world(10, 3).await;
    world.start();
    world.sleep(LONG).await;
    assert_eq!(left(&world, 10).await, 7, "three of ten are within the share");
    world.cloud().delete("i-9").unwrap();
    world.sleep(Duration::from_secs(120)).await;
    assert_eq!(left(&world, 10).await, 7, "a fourth within the window is not");
    world.wait_until_deleted("node9").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_of_other_clouds_and_of_no_cloud_are_not_deleted() {
    let mut world = world(3, 0).await;
    world.join("foreign", "elsewhere://i-1", "Unknown").await;
    world.register_with("nameless", json!({"spec": {"taints": null}})).await;
    world.set_ready("nameless", "Unknown").await;
    world.join("odd", "no-prefix-at-all", "Unknown").await;
    let unmanaged = json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}});
    world.join("unmanaged", "local://i-99", "Unknown").await;
    world.patch("unmanaged", unmanaged).await;
    world.start();
    world.sleep(LONG * 4).await;
    for name in ["foreign", "nameless", "odd", "unmanaged"] {
        assert!(world.get(name).await.is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recreated_node_of_the_same_name_is_not_deleted() {
    let mut world = world(3, 1).await;
    world.start();
    world.sleep(Duration::from_secs(32)).await;
    // The machine is replaced and its Node re-registered with another ID just before the second read.
    world.delete("node0").await;
    world.cloud().add(machine("node0", "i-100", &[])).unwrap();
    world.join("node0", "local://i-100", "Unknown").await;
    world.sleep(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_the_first_read_and_deletes_nothing_early() {
    let mut world = world(3, 1).await;
    world.options.node_lifecycle.as_mut().unwrap().policy.confirm_after = Duration::from_secs(100);
    world.start();
    world.sleep(Duration::from_secs(90)).await;
    world.stop().await;
    world.start();
    world.sleep(Duration::from_secs(90)).await;
    assert_eq!(left(&world, 3).await, 3);
    world.wait_until_deleted("node0").await;
}

#[tokio::test(start_paused = true)]
async fn many_nodes_that_are_not_ready_cost_one_read_per_sync() {
    let mut world = world(300, 0).await;
    world.options.node = None;
    world.start();
    world.sleep(Duration::from_secs(51)).await;
    // At most eleven syncs with three calls for a hundred machines each.
    assert!(world.cloud_calls() <= 33, "{:?}", world.cloud().calls());
    assert!(world.cloud_calls() >= 27, "{:?}", world.cloud().calls());
}

/// Gauge of Nodes that are held back.
fn held_back(world: &World) -> i64 {
    world.metric("bowline_node_deletions_held_back").values().sum::<f64>() as i64
}
