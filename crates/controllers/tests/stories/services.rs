//! Services whose load balancers are created, changed and deleted (9.5).

use std::time::Duration;

use bowline_controllers::service::DefaultCloud;
use bowline_local::{Fault, FaultSpec};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers, ingress, ports, targets};
use crate::world::World;

const SETTLE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn s01_s09_q01_a_service_of_another_type_is_ignored() {
    let mut world = World::with_nodes(&["a"]).await;
    world.create_service_with("inside", json!({"spec": {"type": "ClusterIP"}})).await;
    world.create_service_with("ports", json!({"spec": {"type": "NodePort"}})).await;
    world.start();
    world.sleep(SETTLE).await;
    world.delete_service("inside").await;
    world.join_machine("b", 7).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.cloud().writes(), 0);
    assert_eq!((world.call_count("observe-balancers"), world.patches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn s02_s17_a_new_service_gets_a_finalizer_then_a_load_balancer_then_an_address() {
    let mut world = World::with_nodes(&["a", "b"]).await;
    world.start();
    world.create_service("web").await;
    let address = world.wait_for_address("web").await;
    let service = world.service("web").await;
    assert_eq!(finalizers(&service), [FINALIZER]);
    assert_eq!(world.patches(), 2, "finalizer, status");
    let balancer = world.load_balancer();
    assert_eq!(ports(&balancer), [("Tcp".to_owned(), 80)]);
    assert_eq!(targets(&balancer), ["a", "b"]);
    let owner = balancer.owner.unwrap();
    assert_eq!(
        (owner.cluster.as_str(), owner.namespace.as_str(), owner.service.as_str()),
        ("kubernetes", "default", "web")
    );
    assert_eq!(Some(owner.uid), service.metadata.uid);
    assert!(world.cloud().addresses().iter().any(|known| known.ip.to_string() == address));
    let expected = [("EnsuredLoadBalancer".to_owned(), 1), ("EnsuringLoadBalancer".to_owned(), 1)];
    world.wait_for_event("web", "EnsuredLoadBalancer").await;
    assert_eq!(world.reasons("web").await, expected.into());
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Ensured"));
    // Nothing else is written.
    let calls = world.cloud_calls();
    world.sleep(SETTLE * 10).await;
    assert_eq!((world.cloud_calls(), world.patches()), (calls, 2));
}

#[tokio::test(start_paused = true)]
async fn s03_a_service_of_a_foreign_class_is_ignored() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("theirs", json!({"spec": {"loadBalancerClass": "example.com/other"}})).await;
    world.sleep(SETTLE).await;
    assert_eq!((world.call_count("observe-balancers"), world.patches()), (0, 0));
    // Not even when it is deleted with the shared finalizer.
    world.patch_service("theirs", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.delete_service("theirs").await;
    world.sleep(SETTLE).await;
    assert_eq!(finalizers(&world.service("theirs").await), [FINALIZER]);
    assert_eq!((world.call_count("observe-balancers"), world.patches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn our_class_selects_the_cloud() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.start();
    world.create_service("nobodys").await;
    world.create_service_with("mine", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    world.wait_for_address("mine").await;
    assert_eq!((world.clouds[0].1.balancers().len(), world.clouds[1].1.balancers().len()), (0, 1));
    // The class is removed with the type; the load balancer is found nevertheless, also by a new process.
    world.stop().await;
    world.patch_service("mine", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    world.start();
    world
        .eventually("the load balancer is deleted", async || world.clouds[1].1.balancers().is_empty().then_some(()))
        .await;
    world.eventually("no finalizer", async || finalizers(&world.service("mine").await).is_empty().then_some(())).await;
    assert!(finalizers(&world.service("nobodys").await).is_empty());
    // A Service of another manager that has changed its type is cleaned up by that manager.
    let finalizer = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"type": "ClusterIP"}});
    world.patch_service("nobodys", finalizer).await;
    world.sleep(SETTLE).await;
    assert_eq!(finalizers(&world.service("nobodys").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn s04_s32_changing_the_type_and_back_deletes_the_load_balancer_and_creates_another() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let before = world.patches();
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world
        .eventually("the finalizer is removed", async || {
            finalizers(&world.service("web").await).is_empty().then_some(())
        })
        .await;
    let service = world.service("web").await;
    assert!(ingress(&service).is_empty());
    assert_eq!(world.condition("web").await, None);
    assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
    // upstream: two patches; one here, so that no intermediate state is visible.
    assert_eq!(world.patches() - before, 1, "finalizer, status and condition in one patch");
    world.wait_for_event("web", "DeletingLoadBalancer").await;
    world.wait_for_event("web", "DeletedLoadBalancer").await;
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    world.wait_for_address("web").await;
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn s05_a_deleted_service_is_removed_after_its_load_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let (patches, observations) = (world.patches(), world.call_count("observe-balancers"));
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
    // upstream: two patches, of which the second gets a 404, and a second observation.
    assert_eq!((world.patches() - patches, world.call_count("observe-balancers") - observations), (1, 1));
    world.wait_for_event("web", "DeletedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn s05_a_deleted_service_with_a_foreign_finalizer_loses_its_address() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("web", json!({"metadata": {"finalizers": ["example.com/audit"]}})).await;
    world.wait_for_address("web").await;
    let before = world.patches();
    world.delete_service("web").await;
    world
        .eventually("our finalizer is removed", async || {
            (finalizers(&world.service("web").await) == ["example.com/audit"]).then_some(())
        })
        .await;
    assert!(ingress(&world.service("web").await).is_empty());
    assert_eq!(world.condition("web").await, None);
    assert_eq!(world.patches() - before, 1);
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.wait_until_service_deleted("web").await;
}

#[tokio::test(start_paused = true)]
async fn s06_a_failed_status_write_is_reported_and_retried() {
    let mut world = World::with_nodes(&["a"]).await;
    world.create_service_with("web", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.fail("patch", "services", 409, Some(1));
    world.start();
    let event = world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    let message = event.message.unwrap();
    assert!(message.starts_with("Error syncing load balancer: failed to update load balancer status: "), "{message}");
    world.wait_for_address("web").await;
}

#[tokio::test(start_paused = true)]
async fn s32_a_type_change_during_the_creation_of_the_load_balancer_is_no_failure() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_secs(3))).on("create-balancer").times(1));
    world.start();
    world.create_service("web").await;
    world.eventually("the address", async || (world.call_count("create-address") == 1).then_some(())).await;
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world
        .eventually("the finalizer is removed", async || {
            finalizers(&world.service("web").await).is_empty().then_some(())
        })
        .await;
    assert_eq!((world.call_count("create-balancer"), world.call_count("delete-balancer")), (1, 1));
    assert_eq!(world.patches(), 2, "the finalizer is added and removed");
    assert_eq!(world.event("web", "SyncLoadBalancerFailed").await.map(|event| event.message), None);
    assert_eq!(world.condition("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn s07_u02_a_changed_address_or_port_is_a_full_sync() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    let first = world.wait_for_address("web").await;
    let id = world.load_balancer().id;
    world.patch_service("web", json!({"spec": {"loadBalancerIP": "127.0.40.9"}})).await;
    world
        .eventually("the other address", async || {
            (ingress(&world.service("web").await) == ["127.0.40.9"]).then_some(())
        })
        .await;
    assert_ne!(first, "127.0.40.9");
    assert_eq!(world.cloud().addresses().len(), 1, "the first address is released");
    world.patch_service("web", json!({"spec": {"ports": [{"name": "tls", "port": 443}]}})).await;
    world
        .eventually("port 443", async || (ports(&world.load_balancer()) == [("Tcp".to_owned(), 443)]).then_some(()))
        .await;
    assert_eq!(world.load_balancer().id, id, "the load balancer is changed, not replaced");
}

#[tokio::test(start_paused = true)]
async fn s10_s11_a_service_deleted_without_its_finalizer_leaves_no_load_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer"));
    world.delete_service("web").await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    let none = json!({"metadata": {"finalizers": null}});
    world.services.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    world.wait_until_service_deleted("web").await;
    let event = world.wait_for_event("web", "DeleteLoadBalancerFailed").await;
    assert!(event.message.unwrap().starts_with("Error deleting load balancer: "));
    assert_eq!(world.cloud().balancers().len(), 1);
    world.cloud().repair_all();
    world.eventually("the load balancer is deleted", async || world.cloud().balancers().is_empty().then_some(())).await;
    assert!(world.cloud().addresses().is_empty());
    world.wait_for_event("web", "DeletedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_a_missing_service_is_deleted_only_after_the_api_server_confirms() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer").times(4));
    world.delete_service("web").await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    world.fail("get", "services", 500, None);
    let none = json!({"metadata": {"finalizers": null}});
    world.services.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    world.sleep(SETTLE * 60).await;
    assert_eq!(world.cloud().balancers().len(), 1, "the API server has not confirmed the deletion");
    world.server.faults().clear();
    world.eventually("the load balancer is deleted", async || world.cloud().balancers().is_empty().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn s15_a_service_in_deletion_without_our_finalizer_gets_no_load_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.create_service_with("web", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
    world.delete_service("web").await;
    world.start();
    world.sleep(SETTLE * 20).await;
    assert_eq!((world.cloud().writes(), world.patches()), (0, 0));
    assert!(world.call_count("observe-balancers") <= 1);
}

#[tokio::test(start_paused = true)]
async fn s20_s21_a_restart_writes_nothing() {
    let mut world = World::with_nodes(&["a", "b"]).await;
    world.start();
    for name in ["one", "two", "three"] {
        world.create_service(name).await;
    }
    for name in ["one", "two", "three"] {
        world.wait_for_address(name).await;
    }
    world.stop().await;
    let (writes, patches, events) = (world.cloud().writes(), world.patches(), world.events().await.len());
    let observations = world.call_count("observe-balancers");
    world.start();
    world.sleep(SETTLE).await;
    assert_eq!((world.cloud().writes(), world.patches()), (writes, patches));
    assert_eq!(world.events().await.len(), events, "a restart emits no Event");
    assert_eq!(world.call_count("observe-balancers") - observations, 1, "all are observed with one call");
}

#[tokio::test(start_paused = true)]
async fn s22_concurrent_writes_of_other_clients_survive() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_latency(Duration::from_secs(1));
    world.start();
    world.create_service_with("web", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
    world
        .eventually("the finalizer", async || (finalizers(&world.service("web").await).len() == 2).then_some(()))
        .await;
    world.annotate("web", "example.com/note", Some("kept")).await;
    world.wait_for_address("web").await;
    let service = world.service("web").await;
    assert_eq!(service.metadata.annotations.as_ref().unwrap()["example.com/note"], "kept");
    assert_eq!(finalizers(&service), ["example.com/other", FINALIZER]);
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world
        .eventually("our finalizer is removed", async || {
            (finalizers(&world.service("web").await) == ["example.com/other"]).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn s27_nothing_is_created_in_the_cloud_before_the_finalizer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.fail("patch", "services", 403, Some(3));
    world.start();
    world.create_service("web").await;
    let event = world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    let message = event.message.unwrap();
    let start = "Error syncing load balancer: failed to add load balancer cleanup finalizer: ";
    assert!(message.starts_with(start), "{message}");
    assert_eq!((world.call_count("observe-balancers"), world.cloud().writes()), (0, 0));
    world.wait_for_address("web").await;
}

#[tokio::test(start_paused = true)]
async fn s27_a_service_that_is_deleted_before_it_gets_its_finalizer_is_no_failure() {
    let mut world = World::with_nodes(&["a"]).await;
    world.fail("patch", "services", 404, Some(1));
    world.start();
    world.create_service("web").await;
    world.wait_for_event("web", "EnsuringLoadBalancer").await;
    world.sleep(Duration::from_secs(4)).await;
    assert_eq!((world.call_count("observe-balancers"), world.cloud().writes(), world.patches()), (0, 0, 0));
    let refused =
        world.server.requests().into_iter().filter(|(kind, _)| kind.resource == "services" && kind.code == 404);
    assert_eq!(refused.map(|(_, count)| count).sum::<u64>(), 1, "the finalizer, and no condition");
    assert_eq!(world.event("web", "SyncLoadBalancerFailed").await.map(|event| event.message), None);
    // If the Service exists after all, it gets its load balancer.
    world.wait_for_address("web").await;
}

#[tokio::test(start_paused = true)]
async fn s28_without_nodes_there_is_a_load_balancer_and_a_warning() {
    let mut world = World::new().await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    assert!(world.load_balancer().targets.is_empty());
    let event = world.wait_for_event("web", "UnAvailableLoadBalancer").await;
    assert_eq!(event.message.as_deref(), Some("There are no available nodes for LoadBalancer"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    // The first node becomes a target without a debounce.
    let before = tokio::time::Instant::now();
    world.join_machine("a", 0).await;
    world.wait_for_targets(&["a"]).await;
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    world.wait_for_event("web", "UpdatedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn s29_the_annotation_sets_the_ip_mode() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("web", json!({"metadata": {"annotations": {"bowline.dev/ip-mode": "vip"}}})).await;
    world.wait_for_address("web").await;
    let mode = async || {
        let status = world.service("web").await.status.unwrap().load_balancer.unwrap();
        status.ingress.unwrap().pop().unwrap().ip_mode.unwrap()
    };
    assert_eq!(mode().await, "VIP");
    world.annotate("web", "bowline.dev/ip-mode", Some("Proxy")).await;
    world.eventually("the other mode", async || (mode().await == "Proxy").then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn s30_tcp_and_udp_on_one_port_share_one_load_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    let both = json!([{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]);
    world.create_service_with("dns", json!({"spec": {"ports": both}})).await;
    world.wait_for_address("dns").await;
    assert_eq!(ports(&world.load_balancer()), [("Tcp".to_owned(), 53), ("Udp".to_owned(), 53)]);
}

#[tokio::test(start_paused = true)]
async fn s31_a_recreated_service_gets_a_new_load_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    let old = world.create_service("web").await.metadata.uid;
    world.wait_for_address("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer").times(6));
    world.delete_service("web").await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    let none = json!({"metadata": {"finalizers": null}});
    world.services.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    world.wait_until_service_deleted("web").await;
    let new = world.create_service("web").await.metadata.uid;
    assert_ne!(old, new);
    world.wait_for_address("web").await;
    world
        .eventually("only the new load balancer", async || {
            let balancers = world.cloud().balancers();
            let owners: Vec<_> =
                balancers.iter().map(|balancer| balancer.owner.clone().map(|owner| owner.uid)).collect();
            (owners == [new.clone()]).then_some(())
        })
        .await;
    assert_eq!(world.cloud().addresses().len(), 1);
}
