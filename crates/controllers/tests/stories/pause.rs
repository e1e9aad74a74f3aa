//! Nodes and Services that an operator has paused.

use std::time::Duration;

use bowline_runtime::Kind;
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers, ports};
use crate::world::{UNINITIALIZED, World, has_taint, machine};

const SETTLE: Duration = Duration::from_secs(60);
const PAUSED: &str = "bowline.dev/paused";

/// Sets the annotation of a Node, or removes it.
async fn pause(world: &World, node: &str, value: Option<&str>) {
    world.patch(node, json!({"metadata": {"annotations": {PAUSED: value}}})).await;
}

/// World with a paused Service `web` whose load balancer has the target `a`.
async fn with_paused_service() -> World {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.annotate("web", PAUSED, Some("true")).await;
    world.wait_for_event("web", "Paused").await;
    world
}

/// Names of the paused objects on the controller's status page.
fn shown(world: &World, controller: &str) -> String {
    let entries = world.board.entries();
    let entry = entries.iter().find(|entry| entry.kind == Kind::Controller && entry.name == controller).unwrap();
    entry.component.status()["parts"]["paused"]["names"].to_string()
}

#[tokio::test(start_paused = true)]
async fn no_controller_changes_a_paused_node_until_the_pause_ends() {
    let mut world = World::new().await;
    world.cloud().add(machine("a", "id-a", &["I10.0.0.1"])).unwrap();
    world.with_everything();
    let paused = json!({"metadata": {"annotations": {PAUSED: "true"}}, "spec": {"providerID": "local://id-a"}});
    world.register_with("a", paused).await;
    world.start();
    let event = world.wait_for_event("a", "Paused").await;
    let expected =
        "Paused by the annotation bowline.dev/paused: no cloud controller changes it until the annotation is removed.";
    assert_eq!((event.message.as_deref(), event.type_.as_deref()), (Some(expected), Some("Normal")));
    let untouched = world.node("a").await;
    world.set_ready("a", "False").await;
    world.sleep(SETTLE * 5).await;
    let node = world.node("a").await;
    assert!(has_taint(&node, UNINITIALIZED) && node.spec == untouched.spec, "{node:?}");
    assert_eq!(node.metadata.labels, untouched.metadata.labels);
    assert_eq!((world.routes(), shown(&world, "cloud-node-controller")), (vec![], "[\"a\"]".to_owned()));
    assert_eq!(world.reasons("a").await.remove("Paused"), Some(1), "reported once");
    pause(&world, "a", None).await;
    world.wait_until_initialized("a").await;
    world.wait_until_reachable("a").await;
    assert_eq!(shown(&world, "cloud-node-controller"), "[]");
    // The machine is deleted: its Node stays while it is paused.
    pause(&world, "a", Some("yes")).await;
    world.set_ready("a", "Unknown").await;
    world.cloud().delete("id-a").unwrap();
    world.sleep(SETTLE * 30).await;
    let warned = world.events().await.into_iter().filter(|event| event.reason.as_deref() == Some("Paused"));
    let warned: Vec<_> = warned.filter(|event| event.type_.as_deref() == Some("Warning")).collect();
    assert!(warned.len() == 1 && warned[0].message.as_ref().unwrap().contains("neither true nor false but \"yes\""));
    assert!(world.get("a").await.is_some());
    pause(&world, "a", Some("false")).await;
    world.wait_until_deleted("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_service_keeps_its_load_balancer_unchanged_and_its_deletion_waits() {
    let world = with_paused_service().await;
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    world.join_machine("b", 1).await;
    world.sleep(SETTLE * 20).await;
    let (balancer, patches) = (world.load_balancer(), world.patches());
    assert_eq!((ports(&balancer), balancer.targets.len()), (vec![("Tcp".to_owned(), 80)], 1));
    assert_eq!(world.reasons("web").await["Paused"], 1, "reported once");
    assert_eq!(shown(&world, "service-lb-controller"), "[\"default/web\"]");
    world.delete_service("web").await;
    world.sleep(SETTLE).await;
    assert_eq!((finalizers(&world.service("web").await), world.cloud().balancers().len()), (vec![FINALIZER.into()], 1));
    let waits = |message: &str| message.ends_with("Its deletion waits for that.");
    assert!(world.events().await.iter().any(|event| event.message.as_deref().is_some_and(waits)));
    assert_eq!(world.patches(), patches, "nothing is written");
    world.annotate("web", PAUSED, None).await;
    world.wait_until_service_deleted("web").await;
    assert!(world.cloud().balancers().is_empty());
    assert_eq!(shown(&world, "service-lb-controller"), "[]");
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_a_paused_service_stays_if_its_finalizer_is_removed() {
    let world = with_paused_service().await;
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    world.sleep(SETTLE * 20).await;
    assert_eq!(world.cloud().balancers().len(), 1);
}
