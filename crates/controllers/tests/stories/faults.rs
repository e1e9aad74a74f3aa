//! The API server fails: what was begun converges, and nothing is written twice.

use std::time::Duration;

use bowline_apiserver::{Effect, FaultRule};
use serde_json::json;

use crate::world::{World, machine};

const SIZE: usize = 20;

/// Nodes that wait to be initialised, and their machines.
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
        world.initialized(&format!("node{index}")).await;
    }
}

/// Each Node took one write and one status write, whatever went wrong on the way.
fn assert_no_write_was_doubled(world: &World, before: &std::collections::BTreeMap<String, u64>) {
    let after = world.node_writes();
    for kind in ["patch", "patch status"] {
        let made = after.get(kind).unwrap_or(&0) - before.get(kind).unwrap_or(&0);
        assert_eq!(made, SIZE as u64, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_and_forgotten_history_lose_nothing() {
    let mut world = World::new().await;
    world.start();
    world.pass(Duration::from_secs(1)).await;
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
    world.pass(Duration::from_secs(60)).await;
    let made = world.node_writes()["patch"] - before.get("patch").unwrap_or(&0);
    assert_eq!(made, SIZE as u64);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_conflicts_converges() {
    let mut world = world().await;
    let before = world.node_writes();
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: Effect::Status { code: http::StatusCode::CONFLICT, message: "a storm".to_owned(), retry_after: None },
        probability: 0.5,
        times: Some(200),
        ..FaultRule::default()
    });
    world.start();
    all_initialized(&world).await;
    world.pass(Duration::from_secs(600)).await;
    assert_eq!(world.node_writes()["patch"] - before.get("patch").unwrap_or(&0), SIZE as u64);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_or_asks_for_patience_is_tried_again() {
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
        world.pass(Duration::from_secs(600)).await;
        assert_no_write_was_doubled(&world, &before);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_for_a_while_recovers() {
    let mut world = World::new().await;
    for verb in ["list", "watch"] {
        world.fail(verb, "nodes", 500, Some(5));
    }
    world.start();
    world.cloud().add(machine("node0", "i-0", &[])).unwrap();
    world.register("node0").await;
    world.initialized("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_line_that_breaks_off_is_survived() {
    let mut world = World::new().await;
    world.start();
    world.pass(Duration::from_secs(1)).await;
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
    world.initialized("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_nothing_changed_writes_nothing_and_reads_once() {
    let mut world = world().await;
    world.start();
    all_initialized(&world).await;
    for index in 0..SIZE {
        world.set_ready(&format!("node{index}"), "True").await;
    }
    world.pass(Duration::from_secs(30)).await;
    world.stop().await;
    let (writes, events) = (world.node_writes(), world.events().await.len());
    world.cloud().reset_calls();
    world.start();
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.node_writes(), writes);
    assert_eq!(world.events().await.len(), events);
    assert_eq!(world.cloud_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_the_write_in_hand_and_begins_no_other() {
    let mut world = world().await;
    world.options.node.as_mut().unwrap().concurrency = 1;
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: Effect::Latency(Duration::from_secs(3)),
        ..FaultRule::default()
    });
    world.start();
    world.pass(Duration::from_secs(2)).await;
    let before = world.node_writes();
    world.stop().await;
    let after = world.node_writes();
    let finished = after.get("patch").unwrap_or(&0) - before.get("patch").unwrap_or(&0);
    assert_eq!(finished, 1, "the one in hand, and its addresses");
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.node_writes(), after);
}

#[tokio::test(start_paused = true)]
async fn five_thousand_events_are_not_dropped_by_the_sink() {
    // Smaller here than in the benchmark, but more than the thousand that upstream's buffer holds.
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
async fn a_node_that_was_initialised_by_another_hand_gets_its_addresses_at_once() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "i-0", &["I10.0.0.1"])).unwrap();
    world.start();
    world.pass(Duration::from_secs(1)).await;
    // The write is on its way when the Node changes; a write of ours whose answer gets lost ends in the same conflict.
    world.server.faults().add(FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some(String::new()),
        effect: Effect::Latency(Duration::from_secs(2)),
        times: Some(1),
        ..FaultRule::default()
    });
    world.register("node0").await;
    world.pass(Duration::from_secs(1)).await;
    world.patch("node0", json!({"spec": {"taints": null, "providerID": "local://i-0"}})).await;
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(crate::world::addresses(&world.node("node0").await), ["InternalIP 10.0.0.1", "Hostname node0"]);
    assert_eq!(world.events().await.len(), 0, "it was not our work");
}
