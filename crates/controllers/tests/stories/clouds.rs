//! Several clouds in one cluster, and Nodes of no cloud.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec};
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers};
use crate::world::{UNINITIALIZED, World, has_taint, machine, provider_id, version};

#[tokio::test(start_paused = true)]
async fn a_node_belongs_to_the_cloud_with_the_prefix_of_its_provider_id() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    for (config, cloud) in &world.clouds {
        let mut same = machine("node0", "i-1", &["I10.0.0.1"]);
        same.zone = config.id_prefix.clone();
        cloud.add(same).unwrap();
    }
    world.register_with("node0", json!({"spec": {"providerID": "west://i-1"}})).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    let zone = node.metadata.labels.unwrap()["topology.kubernetes.io/zone"].clone();
    assert_eq!(zone, "west");
    assert_eq!(world.cloud_calls(), 0, "east is not called");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_belongs_to_the_first_cloud_that_knows_it() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    for (_, cloud) in &world.clouds {
        cloud.add(machine("both", "i-1", &[])).unwrap();
    }
    world.clouds[1].1.add(machine("west-only", "i-2", &[])).unwrap();
    world.register("both").await;
    world.register("west-only").await;
    world.start();
    assert_eq!(provider_id(&world.wait_until_initialized("both").await).as_deref(), Some("east://i-1"));
    assert_eq!(provider_id(&world.wait_until_initialized("west-only").await).as_deref(), Some("west://i-2"));
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_cloud_keeps_its_claim_on_nodes_without_provider_id() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    for (_, cloud) in &world.clouds {
        cloud.add(machine("node0", "i-1", &[])).unwrap();
    }
    world.cloud().inject(bowline_local::FaultSpec::always(bowline_local::Fault::Failing(503)));
    world.register("node0").await;
    world.start();
    world.sleep(Duration::from_secs(120)).await;
    assert!(has_taint(&world.node("node0").await, UNINITIALIZED), "the node may be east's");
    world.cloud().repair_all();
    assert_eq!(provider_id(&world.wait_until_initialized("node0").await).as_deref(), Some("east://i-1"));
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_cloud_does_not_block_the_nodes_of_another() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.cloud().inject(bowline_local::FaultSpec::always(bowline_local::Fault::Failing(503)));
    world.clouds[1].1.add(machine("node0", "i-1", &[])).unwrap();
    world.register_with("of-east", json!({"spec": {"providerID": "east://i-9"}})).await;
    world.register_with("node0", json!({"spec": {"providerID": "west://i-1"}})).await;
    world.start();
    world.wait_until_initialized("node0").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_of_no_configured_cloud_is_ignored_with_one_event() {
    let mut world = World::new().await;
    let foreign = world.register_with("foreign", json!({"spec": {"providerID": "elsewhere://i-1"}})).await;
    let unknown = world.register("unknown").await;
    world.start();
    world.sleep(Duration::from_secs(1000)).await;
    for (name, before, hint) in [("foreign", &foreign, "elsewhere://i-1"), ("unknown", &unknown, "--provider-id")] {
        assert_eq!(version(&world.node(name).await), version(before), "{name}");
        let event = world.event(name, "NotOurNode").await.unwrap();
        assert!(event.message.unwrap().contains(hint), "{name}");
        assert_eq!(event.count, Some(1), "{name}");
    }
    assert_eq!(world.events().await.len(), 2);
    // A machine that appears later is found without a restart.
    world.cloud().add(machine("unknown", "i-5", &[])).unwrap();
    world.wait_until_initialized("unknown").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_with_an_unmanaged_label_is_not_changed() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "i-1", &["I10.0.0.1"])).unwrap();
    for (index, (key, value)) in bowline_core::well_known::UNMANAGED_LABELS.iter().enumerate() {
        let name = format!("node{index}");
        let before = world.register_with(&name, json!({"metadata": {"labels": {*key: value}}})).await;
        if index == 0 {
            world.start();
        }
        world.sleep(Duration::from_secs(120)).await;
        assert_eq!(version(&world.node(&name).await), version(&before), "{key}");
    }
    assert_eq!(world.cloud_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_cloud_does_not_block_the_cleanup_in_other_clouds() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.start();
    world.create_service_with("web", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    world.wait_for_address("web").await;
    // The class, which names the cloud, is removed with the type: a new process has to query both clouds.
    world.stop().await;
    world.patch_service("web", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(401)).on("observe-balancers"));
    world.start();
    world.eventually("west has none", async || world.clouds[1].1.balancers().is_empty().then_some(())).await;
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains("waiting for cloud=local-east"), "{message}");
    world.sleep(Duration::from_secs(20)).await;
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER], "kept until all clouds are cleaned up");
    assert_eq!(world.event("web", "DeletedLoadBalancer").await.map(|event| event.message), None);
    world.cloud().repair_all();
    world.eventually("no finalizer", async || finalizers(&world.service("web").await).is_empty().then_some(())).await;
    world.wait_for_event("web", "DeletedLoadBalancer").await;
}
