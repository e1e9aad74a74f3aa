//! Targets of load balancers (9.7): selection, and the cost of added and deleted Nodes.

use std::time::Duration;

use bowline_core::service::NodeSet;
use bowline_core::well_known::UNINITIALIZED_TAINT;
use bowline_local::{Fault, FaultSpec};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::load_balancers::{ports, targets};
use crate::world::{World, has_taint, machine};

const SETTLE: Duration = Duration::from_secs(20);
/// Longer than the drain period.
const DRAINED: Duration = Duration::from_secs(60);

/// World with the Nodes a, b and c and this number of Services, all with addresses; every second one has the policy Local.
async fn three_nodes_and(services: usize) -> World {
    let mut world = World::with_nodes(&["a", "b", "c"]).await;
    world.start();
    for index in 0..services {
        let policy = if index % 2 == 0 { "Cluster" } else { "Local" };
        world.create_service_with(&format!("web-{index}"), json!({"spec": {"externalTrafficPolicy": policy}})).await;
    }
    for index in 0..services {
        world.wait_for_address(&format!("web-{index}")).await;
    }
    world.sleep(SETTLE).await;
    world.cloud().reset_calls();
    world
}

/// Sets one taint, or removes all with `None`.
async fn taint(world: &World, node: &str, key: Option<&str>) {
    let taints: Vec<Value> = key.into_iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
    world.patch(node, json!({"spec": {"taints": taints}})).await;
}

async fn exclude(world: &World, node: &str, value: Option<&str>) {
    let label = json!({"node.kubernetes.io/exclude-from-external-load-balancers": value});
    world.patch(node, json!({"metadata": {"labels": label}})).await;
}

#[tokio::test(start_paused = true)]
async fn q02_q04_q06_a_new_node_is_one_update_of_each_load_balancer_and_nothing_else() {
    let mut world = three_nodes_and(3).await;
    world.create_service_with("inside", json!({"spec": {"type": "ClusterIP"}})).await;
    world.create_service_with("ports", json!({"spec": {"type": "NodePort"}})).await;
    world.join_machine("d", 3).await;
    world.wait_for_targets(&["a", "b", "c", "d"]).await;
    world.sleep(SETTLE).await;
    assert_eq!((world.call_count("update-targets"), world.cloud().writes()), (3, 3));
    for index in 0..3 {
        assert_eq!(world.wait_for_event(&format!("web-{index}"), "UpdatedLoadBalancer").await.count, Some(1));
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn q03_a_service_that_is_deleted_during_the_debounce_is_skipped() {
    let world = three_nodes_and(2).await;
    world.join_machine("d", 3).await;
    world.delete_service("web-1").await;
    world.wait_until_service_deleted("web-1").await;
    world.wait_for_targets(&["a", "b", "c", "d"]).await;
    world.sleep(SETTLE).await;
    assert_eq!((world.call_count("update-targets"), world.cloud().balancers().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn q05_q07_q11_q13_y1_y3_y4_y5_irrelevant_node_changes_cause_no_cloud_call() {
    let world = three_nodes_and(2).await;
    world.set_ready("b", "False").await;
    world.sleep(SETTLE).await;
    world.set_ready("b", "Unknown").await;
    world.set_ready("b", "True").await;
    taint(&world, "b", Some("example.com/other")).await;
    world.patch("b", json!({"metadata": {"labels": {"example.com/other": "x"}}})).await;
    world.sleep(SETTLE).await;
    taint(&world, "b", None).await;
    world.sleep(SETTLE).await;
    assert_eq!((world.call_count("observe-balancers"), world.cloud().writes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn q08_q09_y2_y6_y8_a_leaving_node_is_drained_and_then_removed() {
    let world = three_nodes_and(1).await;
    taint(&world, "b", Some("ToBeDeletedByClusterAutoscaler")).await;
    world.wait_for_targets(&["a", "b (draining)", "c"]).await;
    world.wait_for_targets(&["a", "c"]).await;
    world.sleep(DRAINED).await;
    assert_eq!(world.cloud().writes(), 2, "draining, gone");
    taint(&world, "b", None).await;
    world.wait_for_targets(&["a", "b", "c"]).await;
    exclude(&world, "c", Some("")).await;
    world.wait_for_targets(&["a", "b", "c (draining)"]).await;
    world.wait_for_targets(&["a", "b"]).await;
    exclude(&world, "c", Some("false")).await;
    world.wait_for_targets(&["a", "b", "c"]).await;
    world.patch("a", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    world.delete("a").await;
    world.wait_for_targets(&["a (draining)", "b", "c"]).await;
    world.patch("a", json!({"metadata": {"finalizers": null}})).await;
    world.wait_for_targets(&["b", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_is_not_added_again_by_a_new_process() {
    let mut world = three_nodes_and(2).await;
    exclude(&world, "b", Some("true")).await;
    world.wait_for_targets(&["a", "c"]).await;
    world.stop().await;
    world.cloud().reset_calls();
    world.start();
    world.sleep(DRAINED * 2).await;
    assert_eq!(world.cloud().writes(), 0);
    assert_eq!(targets(&world.cloud().balancers()[0]), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn q08_y8_y12_without_draining_the_autoscaler_taint_counts_at_the_next_update() {
    let mut world = World::with_nodes(&["a", "b", "c"]).await;
    world.options.service.as_mut().unwrap().drain = Duration::ZERO;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.sleep(SETTLE).await;
    world.cloud().reset_calls();
    taint(&world, "b", Some("ToBeDeletedByClusterAutoscaler")).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.cloud().writes(), 0);
    exclude(&world, "c", Some("true")).await;
    world.wait_for_targets(&["a"]).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.cloud().writes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_cannot_drain_removes_a_leaving_node_at_once() {
    let mut world = World::with_nodes(&["a", "b"]).await;
    world.clouds[0].0.load_balancers.drain = false;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.cloud().reset_calls();
    taint(&world, "b", Some("ToBeDeletedByClusterAutoscaler")).await;
    world.wait_for_targets(&["a"]).await;
    world.sleep(DRAINED).await;
    assert_eq!(world.cloud().writes(), 1);
}

#[tokio::test(start_paused = true)]
async fn q10_a_deleted_node_is_no_target() {
    let world = three_nodes_and(2).await;
    world.delete("c").await;
    world.wait_for_targets(&["a", "b"]).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.cloud().writes(), 2);
}

#[tokio::test(start_paused = true)]
async fn q12_y7_a_new_machine_of_the_same_name_is_a_new_target() {
    let world = three_nodes_and(1).await;
    world.delete("c").await;
    world.cloud().delete("i-c").unwrap();
    world.cloud().add(machine("c", "i-new", &["I10.0.9.9"])).unwrap();
    world.join("c", "local://i-new", "True").await;
    world
        .eventually("the new machine", async || {
            world.load_balancer().targets.iter().any(|target| target.machine.as_deref() == Some("i-new")).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn q14_no_load_balancer_is_changed_before_the_nodes_are_listed() {
    let mut world = three_nodes_and(2).await;
    world.stop().await;
    world.join_machine("d", 3).await;
    world.cloud().reset_calls();
    // upstream: a failing lister makes every Service wait for a retry; here no sync begins before the Nodes are listed.
    world.fail("list", "nodes", 500, Some(3));
    world.start();
    world.eventually("the failures", async || (world.response_count("list", "nodes", 500) == 3).then_some(())).await;
    assert_eq!((world.call_count("observe-balancers"), world.cloud().writes()), (0, 0));
    world.wait_for_targets(&["a", "b", "c", "d"]).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.call_count("update-targets"), 2);
}

#[tokio::test(start_paused = true)]
async fn q15_each_set_of_nodes_is_reported_once() {
    let world = three_nodes_and(2).await;
    for (index, names) in [["d", "e"], ["f", "g"]].iter().enumerate() {
        for (place, name) in names.iter().enumerate() {
            world.join_machine(name, 10 + index * 2 + place).await;
        }
        world.sleep(SETTLE).await;
        assert_eq!(world.call_count("update-targets"), 2 * (index as u64 + 1));
    }
    world.wait_for_targets(&["a", "b", "c", "d", "e", "f", "g"]).await;
}

#[tokio::test(start_paused = true)]
async fn q16_a_full_sync_with_the_new_node_is_not_followed_by_an_update() {
    let world = three_nodes_and(2).await;
    world.cloud().set_latency(Duration::from_millis(1500));
    world.join_machine("d", 3).await;
    // During the debounce, the user changes one of the Services.
    world.patch_service("web-1", json!({"spec": {"ports": [{"port": 81}]}})).await;
    world.wait_for_targets(&["a", "b", "c", "d"]).await;
    world.sleep(SETTLE).await;
    assert_eq!((world.call_count("update-balancer"), world.call_count("update-targets")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn q17_a_missing_load_balancer_is_no_failed_update() {
    let world = three_nodes_and(1).await;
    world.cloud().delete_balancer(&world.load_balancer().id).unwrap();
    world.join_machine("d", 3).await;
    // upstream: it stays missing until the Service changes; here it is created again.
    world.wait_for_targets(&["a", "b", "c", "d"]).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.event("web-0", "UpdateLoadBalancerFailed").await, None);
}

#[tokio::test(start_paused = true)]
async fn q18_q19_a_failed_update_is_reported_with_the_nodes_and_retried() {
    let world = three_nodes_and(1).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(400)).on("update-targets").times(1));
    for index in 0..22 {
        world.join_machine(&format!("n{index:02}"), 10 + index).await;
    }
    let event = world.wait_for_event("web-0", "UpdateLoadBalancerFailed").await;
    let message = event.message.unwrap();
    let start = "Error updating load balancer with new hosts [a b c n00 ";
    let end = "n16 <5 more>] [node names limited, total number of nodes: 25], error: ";
    assert!(message.starts_with(start) && message.contains(end), "{message}");
    world.eventually("all targets", async || (world.load_balancer().targets.len() == 25).then_some(())).await;
    assert!(!world.reasons("web-0").await.contains_key("SyncLoadBalancerFailed"), "one failure emits one Event");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_that_join_in_sequence_are_one_update_of_each_load_balancer() {
    let mut world = three_nodes_and(4).await;
    for index in 0..100 {
        world.cloud().add(machine(&format!("n{index:03}"), "", &[&format!("I10.1.0.{index}")])).unwrap();
        world.register(&format!("n{index:03}")).await;
        world.sleep(Duration::from_millis(100)).await;
    }
    world
        .eventually("all targets", async || {
            world.cloud().balancers().iter().all(|balancer| balancer.targets.len() == 103).then_some(())
        })
        .await;
    world.sleep(SETTLE).await;
    assert_eq!(world.call_count("update-targets"), 4);
    assert_eq!(world.cloud().writes(), 4);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn new_nodes_are_targets_within_two_seconds_and_only_they_are_sent() {
    const SERVICES: u64 = 40;
    const JOINING: u64 = 100;
    let world = three_nodes_and(SERVICES as usize).await;
    world.cloud().set_latency(Duration::from_millis(20));
    let name = |index: u64| format!("n{index:03}");
    for index in 0..JOINING {
        world.cloud().add(machine(&name(index), "", &[&format!("I10.1.0.{index}")])).unwrap();
        world.register(&name(index)).await;
    }
    let initialised = async || {
        for index in 0..JOINING {
            world.get(&name(index)).await.filter(|node| !has_taint(node, UNINITIALIZED_TAINT))?;
        }
        Some(Instant::now())
    };
    let begin = world.eventually("all are initialised", initialised).await;
    let is_updated = async || (world.call_count("update-targets") >= SERVICES).then_some(());
    world.eventually("all load balancers are updated", is_updated).await;
    assert!(begin.elapsed() <= Duration::from_secs(2), "{:?}", begin.elapsed());
    world.sleep(SETTLE).await;
    assert_eq!((world.call_count("update-targets"), world.cloud().writes()), (SERVICES, SERVICES));
    assert!(world.cloud().balancers().iter().all(|balancer| balancer.targets.len() as u64 == 3 + JOINING));
    // A new target has some 80 bytes. Each load balancer is observed and changed, and each Node is looked up a few times.
    let (sent, _) = world.cloud().bytes();
    assert!(sent < SERVICES * (JOINING * 100 + 1_000) + JOINING * 200, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_a_target_once_it_is_initialised_or_at_once_if_configured() {
    for (nodes, wanted) in [(NodeSet::Initialized, &["a"][..]), (NodeSet::All, &["a", "raw"])] {
        let mut world = World::with_nodes(&["a"]).await;
        world.options.node = None;
        world.options.node_lifecycle = None;
        world.options.service.as_mut().unwrap().nodes = nodes;
        world.register("raw").await;
        world.start();
        world.create_service("web").await;
        world.wait_for_address("web").await;
        assert_eq!(targets(&world.load_balancer()), wanted, "{nodes:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_has_targets_of_its_own_cloud_only() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    for (index, (name, prefix)) in [("e", "east"), ("w", "west"), ("x", "elsewhere")].into_iter().enumerate() {
        if let Some((_, cloud)) = world.clouds.get(index) {
            cloud.add(machine(name, &format!("i-{name}"), &["I10.0.0.1"])).unwrap();
        }
        world.join(name, &format!("{prefix}://i-{name}"), "True").await;
    }
    world.start();
    world.create_service_with("web", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    world.wait_for_address("web").await;
    assert_eq!(targets(&world.clouds[1].1.balancers()[0]), ["w"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_selector_selects_targets_and_follows_their_labels() {
    let mut world = World::with_nodes(&["a", "b", "c"]).await;
    let colour = |colour: &str| json!({"metadata": {"labels": {"colour": colour}}});
    world.patch("a", colour("red")).await;
    world.patch("b", colour("blue")).await;
    world.start();
    let selector = json!({"metadata": {"annotations": {"bowline.dev/target-nodes": "colour in (red, green)"}}});
    world.create_service_with("web", selector).await;
    world.wait_for_address("web").await;
    assert_eq!(targets(&world.load_balancer()), ["a"]);
    let event = world.wait_for_event("web", "NodesLeftOut").await;
    let expected = "Nodes left out of the load balancer: b, c (not selected by the Service)";
    assert_eq!((event.message.as_deref(), event.type_.as_deref()), (Some(expected), Some("Normal")));
    world.annotate("web", "example.com/other", Some("x")).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.reasons("web").await["NodesLeftOut"], 1, "the same Nodes are reported once");
    world.patch("c", colour("green")).await;
    world.wait_for_targets(&["a", "c"]).await;
    world.patch("a", colour("black")).await;
    world.wait_for_targets(&["c"]).await;
}

#[tokio::test(start_paused = true)]
async fn svc27_the_latency_of_a_node_sync_is_measured_from_its_own_start() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    // Nodes that change no load balancer do not start the measurement.
    world.join_machine("b", 1).await;
    world.sleep(SETTLE * 30).await;
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.join_machine("c", 2).await;
    world.wait_for_targets(&["a", "b", "c"]).await;
    world.sleep(SETTLE).await;
    let families = world.metrics.gather();
    let latency =
        families.iter().find(|family| family.name() == "service_controller_nodesync_latency_seconds").unwrap();
    let histogram = latency.get_metric()[0].get_histogram();
    assert_eq!(histogram.get_sample_count(), 1);
    assert!(histogram.get_sample_sum() < SETTLE.as_secs_f64(), "{}", histogram.get_sample_sum());
}

#[tokio::test(start_paused = true)]
async fn the_number_of_targets_is_limited_to_the_maximum_of_the_load_balancer() {
    let mut world = World::with_nodes(&["b", "c"]).await;
    world.clouds[0].0.load_balancers.max_targets = Some(2);
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.sleep(Duration::from_secs(2)).await;
    world.join_machine("a", 3).await;
    world.sleep(SETTLE).await;
    let message = world.event("web", "NodesLeftOut").await.unwrap().message.unwrap();
    let expected = "Nodes left out of the load balancer: a (the load balancer takes at most 2 targets)";
    assert_eq!((message.as_str(), targets(&world.load_balancer())), (expected, vec!["b".to_owned(), "c".to_owned()]));
    // Other changes of the Service are applied all the same.
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    world.eventually("port 81", async || (ports(&world.load_balancer())[0].1 == 81).then_some(())).await;
    assert_eq!(targets(&world.load_balancer()), ["b", "c"], "existing targets stay");
    world.delete("b").await;
    world.wait_for_targets(&["a", "c"]).await;
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"));
}
