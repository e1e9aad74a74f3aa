//! No doubtful deletion: grace, two looks, the witness, the brake, and nodes of others.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec};
use serde_json::json;

use crate::world::{World, machine};

/// Long enough for every grace, confirmation and retry; shorter than the brake's window.
const LONG: Duration = Duration::from_secs(300);

/// `size` Nodes that are not Ready, of which the first `missing` have lost their machines.
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
    world.pass(Duration::from_secs(110)).await;
    assert_eq!(left(&world, 3).await, 3);
    world.gone("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_missing_once_and_came_back_keeps_its_node() {
    let mut world = world(3, 1).await;
    world.options.node_lifecycle.as_mut().unwrap().policy.confirm_after = Duration::from_secs(60);
    world.start();
    // Past the grace period and the first look, before the second.
    world.pass(Duration::from_secs(60)).await;
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.pass(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_ready_between_the_looks_stays() {
    let mut world = world(3, 1).await;
    world.options.node_lifecycle.as_mut().unwrap().policy.confirm_after = Duration::from_secs(60);
    world.start();
    world.pass(Duration::from_secs(60)).await;
    world.set_ready("node0", "True").await;
    world.pass(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_that_shows_no_machine_is_not_enough() {
    let mut world = world(3, 1).await;
    // The cloud shows how it was before the machine was made, but only now and then.
    let mut stale = FaultSpec::always(Fault::Stale);
    stale.times = Some(1);
    world.cloud().inject(stale);
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_project_in_which_nothing_is_visible_deletes_nothing() {
    let mut world = world(4, 4).await;
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 4).await, 4);
    let event = world.event("node0", "DeletionHeldBack").await.unwrap();
    assert!(event.message.unwrap().contains("kubectl annotate node node0 bowline.dev/allow-deletion=true"));
}

#[tokio::test(start_paused = true)]
async fn the_brake_stops_all_deletions_and_tells_how_to_release_it() {
    let mut world = world(10, 5).await;
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 10).await, 10, "none goes, not as many as allowed");
    for index in 0..5 {
        let event = world.event(&format!("node{index}"), "DeletionHeldBack").await.unwrap();
        assert_eq!(event.count, Some(1));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
    assert_eq!(held_back(&world), 5);
    // Two are let go; the three that are left are within the share of what is left.
    for name in ["node0", "node1"] {
        world.patch(name, json!({"metadata": {"annotations": {"bowline.dev/allow-deletion": "true"}}})).await;
    }
    world.pass(LONG).await;
    assert!(world.get("node0").await.is_none() && world.get("node1").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_brake_counts_deletions_from_before_a_restart() {
    let mut world = world(10, 3).await;
    world.start();
    for index in 0..3 {
        world.gone(&format!("node{index}")).await;
    }
    world.kill().await;
    for index in 3..5 {
        world.cloud().delete(&format!("i-{index}")).unwrap();
    }
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 10).await, 7, "two more would be five of ten within ten minutes");
    assert!(world.event("node3", "DeletionHeldBack").await.is_some());
    // Once the window has passed.
    world.gone("node3").await;
    world.gone("node4").await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_deleted_while_the_record_of_deletions_cannot_be_written() {
    let mut world = world(3, 1).await;
    world.fail("create", "leases", 500, None);
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
    world.server.faults().clear();
    world.gone("node0").await;
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_for_the_record_the_brake_still_works_in_this_process() {
    let mut world = world(10, 3).await;
    let permissions = bowline_controllers::Permissions::of(&world.options).of_one();
    world.permissions = Some(permissions.into_iter().filter(|permission| permission.resource != "leases").collect());
    world.start();
    for index in 0..3 {
        world.gone(&format!("node{index}")).await;
    }
    for index in 3..5 {
        world.cloud().delete(&format!("i-{index}")).unwrap();
    }
    world.pass(LONG).await;
    assert_eq!(left(&world, 10).await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_stays_until_the_cloud_lists_its_machine_late() {
    let mut world = world(2, 0).await;
    world.register_with("late", json!({"spec": {"providerID": "local://i-late"}})).await;
    world.start();
    world.pass(Duration::from_secs(240)).await;
    world.cloud().add(machine("late", "i-late", &[])).unwrap();
    world.initialized("late").await;
}

#[tokio::test(start_paused = true)]
async fn the_brake_releases_when_fewer_are_missing() {
    let mut world = world(10, 5).await;
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 10).await, 10);
    for index in 0..3 {
        world.cloud().add(machine(&format!("node{index}"), &format!("i-{index}"), &[])).unwrap();
    }
    world.pass(LONG).await;
    assert_eq!(left(&world, 10).await, 8);
    assert_eq!(held_back(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn what_went_already_counts_until_the_window_has_passed() {
    let mut world = world(10, 3).await;
    world.start();
    world.pass(LONG).await;
    assert_eq!(left(&world, 10).await, 7, "three of ten are within the share");
    world.cloud().delete("i-9").unwrap();
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(left(&world, 10).await, 7, "a fourth within the window is not");
    world.gone("node9").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_of_other_clouds_and_of_nobody_are_left_alone() {
    let mut world = world(3, 0).await;
    world.join("foreign", "elsewhere://i-1", "Unknown").await;
    world.register_with("nameless", json!({"spec": {"taints": null}})).await;
    world.set_ready("nameless", "Unknown").await;
    world.join("odd", "no-prefix-at-all", "Unknown").await;
    let hands_off = json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}});
    world.join("unmanaged", "local://i-99", "Unknown").await;
    world.patch("unmanaged", hands_off).await;
    world.start();
    world.pass(LONG * 4).await;
    for name in ["foreign", "nameless", "odd", "unmanaged"] {
        assert!(world.get(name).await.is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_node_of_the_same_name_is_not_deleted_in_the_old_ones_place() {
    let mut world = world(3, 1).await;
    world.start();
    world.pass(Duration::from_secs(32)).await;
    // The machine was replaced, and its Node re-registered under another ID, just before the second look.
    world.delete("node0").await;
    world.cloud().add(machine("node0", "i-100", &[])).unwrap();
    world.join("node0", "local://i-100", "Unknown").await;
    world.pass(LONG).await;
    assert_eq!(left(&world, 3).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_the_first_look_and_deletes_nothing_early() {
    let mut world = world(3, 1).await;
    world.options.node_lifecycle.as_mut().unwrap().policy.confirm_after = Duration::from_secs(100);
    world.start();
    world.pass(Duration::from_secs(90)).await;
    world.stop().await;
    world.start();
    world.pass(Duration::from_secs(90)).await;
    assert_eq!(left(&world, 3).await, 3);
    world.gone("node0").await;
}

#[tokio::test(start_paused = true)]
async fn many_nodes_that_are_not_ready_cost_one_read_a_pass() {
    let mut world = world(300, 0).await;
    world.options.node = None;
    world.start();
    world.pass(Duration::from_secs(51)).await;
    // Eleven passes at most, three calls of a hundred each.
    assert!(world.cloud_calls() <= 33, "{:?}", world.cloud().calls());
    assert!(world.cloud_calls() >= 27, "{:?}", world.cloud().calls());
}

/// The gauge of Nodes that are held back for an operator to look at.
fn held_back(world: &World) -> i64 {
    world.metric("bowline_node_deletions_held_back").values().sum::<f64>() as i64
}
