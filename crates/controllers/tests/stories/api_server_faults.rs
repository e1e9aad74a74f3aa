//! Faults of the API server: controllers converge, and nothing is written twice.

use std::time::Duration;

use bowline_apiserver::{Effect, FaultRule};
use serde_json::json;

use crate::world::{World, machine};

const SIZE: usize = 20;

/// World with uninitialised Nodes and their machines.
async fn world() -> World {
    let world = World::new().await;
    for index in 0..SIZE {
        let name = format!("node{index}");
        world.cloud().add(machine(&name, &format!("i-{index}"), &[&format!("I10.0.0.{index}")])).unwrap();
        world.register(&name).await;
    }
    world
}

async fn all_initialized(world: &World) {
    for index in 0..SIZE {
        world.wait_until_initialized(&format!("node{index}")).await;
    }
}

/// Asserts that each Node took one write and one status write, despite all faults.
fn assert_no_duplicate_writes(world: &World, before: &std::collections::BTreeMap<String, u64>) {
    let after = world.node_writes();
    for kind in ["patch", "patch status"] {
        let made = after.get(kind).unwrap_or(&0) - before.get(kind).unwrap_or(&0);
        assert_eq!(made, SIZE as u64, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_and_a_compacted_history_lose_no_event() {
    let mut world = World::new().await;
    world.start();
    world.sleep(Duration::from_secs(1)).await;
    let before = world.node_writes();
    for index in 0..SIZE {
        let name = format!("node{index}");
        world.cloud().add(machine(&name, &format!("i-{index}"), &["I10.0.0.1"])).unwrap();
        world.register(&name).await;
        if index % 5 == 0 {
            world.server.cut_watches();
            world.server.compact();
        }
    }
    all_initialized(&world).await;
    world.sleep(Duration::from_secs(60)).await;
    let made = world.node_writes()["patch"] - before.get("patch").unwrap_or(&0);
    assert_eq!(made, SIZE as u64);
}

#[tokio::test(start_paused = true)]
async fn repeated_conflicts_converge() {
    let mut world = world().await;
    let before = world.node_writes();
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: Effect::Status {
            code: http::StatusCode::CONFLICT,
            message: "injected conflict".to_owned(),
            retry_after: None,
        },
        probability: 0.5,
        times: Some(200),
        ..FaultRule::default()
    });
    world.start();
    all_initialized(&world).await;
    world.sleep(Duration::from_secs(600)).await;
    assert_eq!(world.node_writes()["patch"] - before.get("patch").unwrap_or(&0), SIZE as u64);
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_failing_or_throttling_api_server_are_retried() {
    for (code, retry_after) in [(500, None), (503, None), (429, Some(2)), (504, None)] {
        let mut world = world().await;
        let before = world.node_writes();
        world.server.faults().add(FaultRule {
            verb: Some("patch".to_owned()),
            resource: Some("nodes".to_owned()),
            effect: Effect::Status {
                code: http::StatusCode::from_u16(code).unwrap(),
                message: "not now".to_owned(),
                retry_after,
            },
            times: Some(60),
            ..FaultRule::default()
        });
        world.start();
        all_initialized(&world).await;
        world.sleep(Duration::from_secs(600)).await;
        assert_no_duplicate_writes(&world, &before);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_watch_recovers() {
    let mut world = World::new().await;
    for verb in ["list", "watch"] {
        world.fail(verb, "nodes", 500, Some(5));
    }
    world.start();
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.register("node0").await;
    world.wait_until_initialized("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_truncated_watch_line_is_handled() {
    let mut world = World::new().await;
    world.start();
    world.sleep(Duration::from_secs(1)).await;
    world.server.faults().add(FaultRule {
        verb: Some("watch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: Effect::PartialWatchLine,
        times: Some(2),
        ..FaultRule::default()
    });
    world.server.cut_watches();
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.register("node0").await;
    world.wait_until_initialized("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_changes_writes_nothing_and_reads_once() {
    let mut world = world().await;
    world.start();
    all_initialized(&world).await;
    for index in 0..SIZE {
        world.set_ready(&format!("node{index}"), "True").await;
    }
    world.sleep(Duration::from_secs(30)).await;
    world.stop().await;
    let (writes, events) = (world.node_writes(), world.events().await.len());
    world.cloud().reset_calls();
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(world.node_writes(), writes);
    assert_eq!(world.events().await.len(), events);
    assert_eq!(world.cloud_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_the_write_in_progress_and_begins_no_other() {
    let mut world = world().await;
    world.options.node.as_mut().unwrap().concurrency = 1;
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: Effect::Latency(Duration::from_secs(3)),
        ..FaultRule::default()
    });
    world.start();
    world.sleep(Duration::from_secs(2)).await;
    let before = world.node_writes();
    world.stop().await;
    let after = world.node_writes();
    let finished = after.get("patch").unwrap_or(&0) - before.get("patch").unwrap_or(&0);
    assert_eq!(finished, 1, "the write in progress, and its addresses");
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(world.node_writes(), after);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_the_retry_of_a_throttled_write() {
    let mut world = world().await;
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: Effect::Status {
            code: http::StatusCode::TOO_MANY_REQUESTS,
            message: "throttled".to_owned(),
            retry_after: Some(50),
        },
        ..FaultRule::default()
    });
    world.start();
    world.sleep(Duration::from_secs(2)).await;
    let begin = tokio::time::Instant::now();
    world.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn fifteen_hundred_events_are_not_dropped_by_the_sink() {
    // More than the 1,000 Events that upstream's buffer holds.
    let mut world = World::new().await;
    for index in 0..1500 {
        let name = format!("node{index}");
        world.cloud().add(machine(&name, &format!("i-{index}"), &[])).unwrap();
        world.register_with(&name, json!({})).await;
    }
    world.start();
    world.eventually("an Event for each node", async || (world.events().await.len() == 1500).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_another_client_initialised_gets_its_addresses_at_once() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "i-0", &["I10.0.0.1"])).unwrap();
    world.start();
    world.sleep(Duration::from_secs(1)).await;
    // The Node changes while our write is in flight. A write of ours with a lost response ends in the same conflict.
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some(String::new()),
        effect: Effect::Latency(Duration::from_secs(2)),
        times: Some(1),
        ..FaultRule::default()
    });
    world.register("node0").await;
    world.sleep(Duration::from_secs(1)).await;
    world.patch("node0", json!({"spec": {"taints": null, "providerID": "local://i-0"}})).await;
    world.sleep(Duration::from_secs(30)).await;
    assert_eq!(crate::world::addresses(&world.node("node0").await), ["InternalIP 10.0.0.1", "Hostname node0"]);
    assert_eq!(world.events().await.len(), 0, "another client initialised the node");
}
