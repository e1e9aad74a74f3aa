//! Node lifecycle: stopped and deleted machines (F1 to F21).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_local::{Fault, FaultSpec};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::test_providers::WithoutDetails;
use crate::world::{SHUTDOWN, UNINITIALIZED, World, addresses, has_taint, machine, taints, version};

/// Long enough for every grace period, confirmation and retry.
const LONG: Duration = Duration::from_secs(300);

/// World with `size` Nodes whose machines run; all are Ready but the first, whose condition Ready is `ready`.
async fn world(size: usize, ready: &str) -> World {
    let world = World::new().await;
    for index in 0..size {
        world.cloud().add(machine(&format!("node{index}"), &format!("i-{index}"), &[])).unwrap();
        let ready = if index == 0 { ready } else { "True" };
        world.join(&format!("node{index}"), &format!("local://i-{index}"), ready).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn f01_f04_f20_a_node_that_is_not_ready_is_deleted_with_its_machine() {
    for ready in ["False", "Unknown", ""] {
        let mut world = World::new().await;
        world.cloud().add(machine("other", "i-9", &[])).unwrap();
        world.join("other", "local://i-9", "True").await;
        world.register_with("node0", json!({"spec": {"taints": null, "providerID": "local://i-0"}})).await;
        if !ready.is_empty() {
            world.set_ready("node0", ready).await;
        }
        world.start();
        world.wait_until_deleted("node0").await;
        let event = world.event("node0", "DeletingNode").await.unwrap();
        let expected = "Deleting node node0 because it does not exist in the cloud provider";
        assert_eq!(event.message.as_deref(), Some(expected), "Ready is {ready:?}");
        assert!(world.get("other").await.is_some());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f01_the_only_node_of_a_cloud_is_deleted_too() {
    let mut world = World::new().await;
    world.join("node0", "local://i-0", "False").await;
    world.start();
    world.wait_until_deleted("node0").await;
}

#[tokio::test(start_paused = true)]
async fn f02_a_failing_cloud_deletes_no_node_until_it_recovers() {
    for fault in [
        Fault::Failing(401),
        Fault::Failing(403),
        Fault::Failing(404),
        Fault::Failing(500),
        Fault::Throttled(Some(Duration::from_secs(20))),
        Fault::Throttled(None),
        Fault::Hanging,
        Fault::Garbled,
        Fault::Empty,
    ] {
        // All three Nodes are not Ready, and all machines exist.
        let mut world = world(3, "False").await;
        world.set_ready("node1", "Unknown").await;
        world.set_ready("node2", "Unknown").await;
        world.cloud().inject(FaultSpec::always(fault.clone()));
        world.start();
        world.sleep(LONG).await;
        for name in ["node0", "node1", "node2"] {
            let node = world.get(name).await;
            assert!(node.is_some_and(|node| taints(&node).is_empty()), "{name} under {fault:?}");
            let events =
                world.events().await.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
            assert_eq!(events.count(), 1, "one Event per cause: {name} under {fault:?}");
        }
        world.cloud().repair_all();
        world.cloud().delete("i-0").unwrap();
        world.wait_until_deleted("node0").await;
        assert!(world.get("node1").await.is_some() && world.get("node2").await.is_some());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f03_f05_the_node_of_a_running_machine_is_unchanged() {
    for ready in ["False", "Unknown"] {
        let mut world = world(2, ready).await;
        let before = world.node("node0").await;
        world.start();
        world.sleep(LONG).await;
        assert_eq!(version(&world.node("node0").await), version(&before), "{ready}");
    }
}

#[tokio::test(start_paused = true)]
async fn f06_a_ready_node_causes_no_cloud_call() {
    let mut world = World::new().await;
    world.options.node = None;
    let before = world.join("node0", "local://i-0", "True").await;
    world.start();
    world.sleep(LONG).await;
    assert_eq!(version(&world.node("node0").await), version(&before));
    assert_eq!(world.cloud_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn f07_f10_f11_the_node_of_a_stopped_machine_is_tainted_until_it_is_ready_again() {
    let mut world = world(2, "False").await;
    world.patch("node0", json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}})).await;
    world.cloud().stop("i-0").unwrap();
    world.start();
    let tainted =
        world.eventually("the taint", async || world.get("node0").await.filter(|node| has_taint(node, SHUTDOWN))).await;
    let expected = [("mine".to_owned(), "NoExecute".to_owned()), (SHUTDOWN.to_owned(), "NoSchedule".to_owned())];
    assert_eq!(taints(&tainted), expected);
    let ours = tainted.spec.unwrap().taints.unwrap().into_iter().find(|taint| taint.key == SHUTDOWN).unwrap();
    assert_eq!((ours.value, ours.time_added), (None, None));
    // F12: the taint is added once.
    let writes = world.node_writes();
    world.sleep(LONG).await;
    assert_eq!(world.node_writes(), writes);
    // F11: a running machine is not enough.
    world.cloud().start("i-0").unwrap();
    world.sleep(LONG).await;
    assert!(has_taint(&world.node("node0").await, SHUTDOWN));
    // F10: a Ready Node is.
    world.set_ready("node0", "True").await;
    world
        .eventually("the taint is removed", async || world.get("node0").await.filter(|node| !has_taint(node, SHUTDOWN)))
        .await;
    assert!(has_taint(&world.node("node0").await, "mine"));
}

#[tokio::test(start_paused = true)]
async fn f12_a_shutdown_taint_with_a_value_is_replaced_in_place() {
    let mut world = world(2, "False").await;
    let odd = json!({"key": SHUTDOWN, "value": "yes", "effect": "NoSchedule"});
    world.patch("node0", json!({"spec": {"taints": [odd, {"key": "mine", "effect": "NoExecute"}]}})).await;
    world.cloud().stop("i-0").unwrap();
    world.start();
    let value = |node: &Node| node.spec.as_ref()?.taints.as_ref()?.first()?.value.clone();
    let replaced = world
        .eventually("the taint without a value", async || world.get("node0").await.filter(|node| value(node).is_none()))
        .await;
    let expected = [(SHUTDOWN.to_owned(), "NoSchedule".to_owned()), ("mine".to_owned(), "NoExecute".to_owned())];
    assert_eq!(taints(&replaced), expected);
}

#[tokio::test(start_paused = true)]
async fn f08_the_node_of_a_machine_that_was_stopped_and_then_deleted_is_deleted() {
    let mut world = world(2, "Unknown").await;
    world.cloud().stop("i-0").unwrap();
    world.cloud().delete("i-0").unwrap();
    world.start();
    world.wait_until_deleted("node0").await;
}

#[tokio::test(start_paused = true)]
async fn f09_a_node_without_provider_id_that_no_cloud_knows_is_deleted_only_if_enabled() {
    for enabled in [false, true] {
        let mut world = world(2, "True").await;
        world.options.node_lifecycle.as_mut().unwrap().delete_unclaimed = enabled;
        world.register_with("stranger", json!({"spec": {"taints": null}})).await;
        world.set_ready("stranger", "False").await;
        world.start();
        // An uninitialised Node is deleted after five minutes at the earliest.
        world.sleep(2 * LONG).await;
        assert_eq!(world.get("stranger").await.is_none(), enabled);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f15_a_failed_deletion_is_reported_and_retried() {
    let mut world = world(2, "False").await;
    world.cloud().delete("i-0").unwrap();
    // A rejected request is not retried by the client.
    world.fail("delete", "nodes", 403, Some(1));
    world.start();
    world.wait_until_deleted("node0").await;
    let failed = world.event("node0", "DeletingNodeFailed").await.unwrap();
    assert!(failed.message.unwrap().starts_with("Failed deleting node node0: "));
}

#[tokio::test(start_paused = true)]
async fn f17_f18_f19_the_lookup_uses_the_provider_id_of_the_node() {
    let mut world = world(2, "False").await;
    // Another machine has the name now; the provider ID decides.
    world.cloud().delete("i-0").unwrap();
    world.cloud().add(machine("node0", "i-77", &[])).unwrap();
    world.start();
    world.wait_until_deleted("node0").await;
}

#[tokio::test(start_paused = true)]
async fn f21_a_node_that_was_never_initialised_is_deleted_with_its_machine() {
    let mut world = world(2, "True").await;
    world.register_with("late", json!({"spec": {"providerID": "local://i-88"}})).await;
    world.set_ready("late", "False").await;
    world.start();
    world.wait_until_deleted("late").await;
}

#[tokio::test(start_paused = true)]
async fn f13_f14_a_cloud_without_shutdown_state_taints_no_node() {
    let mut world = world(2, "False").await;
    world.clouds[0].0.shutdown_state = false;
    world.cloud().stop("i-0").unwrap();
    world.start();
    world.sleep(LONG).await;
    assert!(taints(&world.node("node0").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_details_cannot_be_read_counts_as_existing() {
    let mut world = World::new().await;
    let is_failing = Arc::new(AtomicBool::new(true));
    let flag = is_failing.clone();
    world.wrap = Box::new(move |inner| WithoutDetails::wrap(inner, flag.clone()));
    for (index, name) in ["runs", "stopped", "new"].iter().enumerate() {
        world.cloud().add(machine(name, &format!("i-{index}"), &["I10.0.0.1"])).unwrap();
    }
    world.cloud().stop("i-1").unwrap();
    for (name, id) in [("runs", "i-0"), ("stopped", "i-1"), ("gone", "i-9")] {
        world.join(name, &format!("local://{id}"), "False").await;
    }
    let known = addresses(&world.node("runs").await);
    world.register("new").await;
    world.start();
    world.wait_until_deleted("gone").await;
    world.sleep(LONG).await;
    assert!(has_taint(&world.node("stopped").await, SHUTDOWN));
    assert!(!has_taint(&world.node("runs").await, SHUTDOWN));
    assert_eq!(addresses(&world.node("runs").await), known, "addresses are unchanged while they cannot be read");
    assert!(world.event("runs", "CloudUnavailable").await.is_none(), "the state of the machine is known");
    assert!(has_taint(&world.node("new").await, UNINITIALIZED));
    let event = world.event("new", "CloudUnavailable").await.unwrap();
    assert!(event.message.unwrap().contains("the ports may not be read"));
    is_failing.store(false, Ordering::SeqCst);
    world.wait_until_initialized("new").await;
}
