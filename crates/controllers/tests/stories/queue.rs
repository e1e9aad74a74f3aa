//! Work queue rules (WQ-1 to WQ-5) with Nodes. The tests in `bowline-runtime` cover every rule in detail; these show that the
//! controller follows them.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec};
use serde_json::json;

use crate::world::{World, label, machine};

#[tokio::test(start_paused = true)]
async fn wq1_a_node_that_changes_during_its_sync_is_synced_again() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.cloud().set_latency(Duration::from_secs(5));
    world.register("node0").await;
    world.start();
    world.sleep(Duration::from_secs(2)).await;
    // A deprecated label is added during the cloud read; the write in progress does not include it.
    let old = json!({"metadata": {"labels": {"failure-domain.beta.kubernetes.io/zone": "late"}}});
    world.patch("node0", old).await;
    world
        .eventually("the label is mirrored", async || {
            let node = world.node("node0").await;
            (label(&node, "topology.kubernetes.io/zone").as_deref() == Some("late")).then_some(())
        })
        .await;
    assert_eq!(world.event("node0", "Synced").await.unwrap().count, Some(1), "never synced twice at a time");
}

#[tokio::test(start_paused = true)]
async fn wq2_a_change_ends_the_back_off() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    world.register("node0").await;
    world.start();
    // No cloud knows the machine, until the back-off is at its maximum.
    world.sleep(Duration::from_secs(600)).await;
    world.cloud().add(machine("elsewhere", "i-0", &[])).unwrap();
    let begin = tokio::time::Instant::now();
    world.patch("node0", json!({"spec": {"providerID": "local://i-0"}})).await;
    world.wait_until_initialized("node0").await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn wq3_a_failing_node_is_retried_with_back_off_which_a_success_resets() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    world.calls.max_attempts = 1;
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)));
    world.register("node0").await;
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    let early = world.cloud_calls();
    assert!((8..=14).contains(&early), "{early} calls in the first minute");
    world.sleep(Duration::from_secs(600)).await;
    let late = world.cloud_calls() - early;
    assert!((9..=12).contains(&late), "{late} calls in ten more minutes");
    world.cloud().repair_all();
    world.wait_until_initialized("node0").await;
}

#[tokio::test(start_paused = true)]
async fn wq4_wq5_queues_are_keyed_by_object_and_have_their_upstream_names() {
    let mut world = World::new().await;
    for name in ["node0", "node1"] {
        world.cloud().add(machine(name, &format!("i-{name}"), &[])).unwrap();
        world.register(name).await;
    }
    world.start();
    world.wait_until_initialized("node0").await;
    world.wait_until_initialized("node1").await;
    for name in ["one", "two", "three"] {
        world.create_service(name).await;
        world.wait_for_address(name).await;
    }
    let adds = world.metric("workqueue_adds_total");
    assert!(adds["Nodes"] >= 2.0);
    assert_eq!(adds["service"], 3.0);
}
