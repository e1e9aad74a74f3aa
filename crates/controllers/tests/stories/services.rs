//! Services that get a balancer, change, and lose it (9.5).

use std::time::Duration;

use bowline_controllers::service::DefaultCloud;
use bowline_local::{Fault, FaultSpec};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::balancing::{FINALIZER, finalizers, ingress, ports, targets};
use crate::world::World;

const WHILE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn s01_s09_q01_a_service_of_another_type_is_left_alone() {
    let mut world = World::with_nodes(&["a"]).await;
    world.serve_with("inside", json!({"spec": {"type": "ClusterIP"}})).await;
    world.serve_with("ports", json!({"spec": {"type": "NodePort"}})).await;
    world.start();
    world.pass(WHILE).await;
    world.delete_service("inside").await;
    world.join_machine("b", 7).await;
    world.pass(WHILE).await;
    assert_eq!(world.cloud().writes(), 0);
    assert_eq!((world.called("observe-balancers"), world.patches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn s02_s17_a_new_service_gets_a_finalizer_then_a_balancer_then_an_address() {
    let mut world = World::with_nodes(&["a", "b"]).await;
    world.start();
    world.serve("web").await;
    let address = world.addressed("web").await;
    let service = world.service("web").await;
    assert_eq!(finalizers(&service), [FINALIZER]);
    assert_eq!(world.patches(), 2, "finalizer, status");
    let balancer = world.balancer();
    assert_eq!(ports(&balancer), [("Tcp".to_owned(), 80)]);
    assert_eq!(targets(&balancer), ["a", "b"]);
    let owner = balancer.owner.unwrap();
    assert_eq!(
        (owner.cluster.as_str(), owner.namespace.as_str(), owner.service.as_str()),
        ("kubernetes", "default", "web")
    );
    assert_eq!(Some(owner.uid), service.metadata.uid);
    assert!(world.cloud().addresses().iter().any(|known| known.ip.to_string() == address));
    let told = [("EnsuredLoadBalancer".to_owned(), 1), ("EnsuringLoadBalancer".to_owned(), 1)];
    world.told("web", "EnsuredLoadBalancer").await;
    assert_eq!(world.reasons("web").await, told.into());
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Ensured"));
    // Then all is quiet.
    let calls = world.cloud_calls();
    world.pass(WHILE * 10).await;
    assert_eq!((world.cloud_calls(), world.patches()), (calls, 2));
}

#[tokio::test(start_paused = true)]
async fn s03_a_class_that_is_not_ours_is_somebody_elses() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve_with("theirs", json!({"spec": {"loadBalancerClass": "example.com/other"}})).await;
    world.pass(WHILE).await;
    assert_eq!((world.called("observe-balancers"), world.patches()), (0, 0));
    // Not even when it goes and has the finalizer that all share.
    world.patch_service("theirs", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.delete_service("theirs").await;
    world.pass(WHILE).await;
    assert_eq!(finalizers(&world.service("theirs").await), [FINALIZER]);
    assert_eq!((world.called("observe-balancers"), world.patches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn our_own_class_is_ours_and_picks_the_cloud() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.start();
    world.serve("nobodys").await;
    world.serve_with("mine", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    world.addressed("mine").await;
    assert_eq!((world.clouds[0].1.balancers().len(), world.clouds[1].1.balancers().len()), (0, 1));
    // The class is gone once the type is another one; the balancer is found all the same, by a new process too.
    world.stop().await;
    world.patch_service("mine", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    world.start();
    world.eventually("it is gone", async || world.clouds[1].1.balancers().is_empty().then_some(())).await;
    world.eventually("no finalizer", async || finalizers(&world.service("mine").await).is_empty().then_some(())).await;
    assert!(finalizers(&world.service("nobodys").await).is_empty());
    // Another manager's Service that has changed its type is that one's to clean up.
    let finalizer = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"type": "ClusterIP"}});
    world.patch_service("nobodys", finalizer).await;
    world.pass(WHILE).await;
    assert_eq!(finalizers(&world.service("nobodys").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn s04_s32_a_type_that_changes_and_back_takes_the_balancer_away_and_makes_another() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    let before = world.patches();
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world
        .eventually("the finalizer is gone", async || finalizers(&world.service("web").await).is_empty().then_some(()))
        .await;
    let service = world.service("web").await;
    assert!(ingress(&service).is_empty());
    assert_eq!(world.condition("web").await, None);
    assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
    // upstream: two; ours are one, so that nothing is half done.
    assert_eq!(world.patches() - before, 1, "finalizer, status and condition in one patch");
    world.told("web", "DeletingLoadBalancer").await;
    world.told("web", "DeletedLoadBalancer").await;
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    world.addressed("web").await;
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn s05_a_service_that_is_deleted_goes_when_its_balancer_has_gone() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    let (patches, looks) = (world.patches(), world.called("observe-balancers"));
    world.delete_service("web").await;
    world.service_gone("web").await;
    assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
    // upstream: two patches, of which the second meets nobody, and a second look.
    assert_eq!((world.patches() - patches, world.called("observe-balancers") - looks), (1, 1));
    world.told("web", "DeletedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn s05_a_service_that_somebody_else_holds_no_longer_shows_the_address_of_its_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve_with("web", json!({"metadata": {"finalizers": ["example.com/audit"]}})).await;
    world.addressed("web").await;
    let before = world.patches();
    world.delete_service("web").await;
    world
        .eventually("our finalizer is gone", async || {
            (finalizers(&world.service("web").await) == ["example.com/audit"]).then_some(())
        })
        .await;
    assert!(ingress(&world.service("web").await).is_empty());
    assert_eq!(world.condition("web").await, None);
    assert_eq!(world.patches() - before, 1);
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.service_gone("web").await;
}

#[tokio::test(start_paused = true)]
async fn s06_a_status_that_cannot_be_written_is_told_and_tried_again() {
    let mut world = World::with_nodes(&["a"]).await;
    world.serve_with("web", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.fail("patch", "services", 409, Some(1));
    world.start();
    let event = world.told("web", "SyncLoadBalancerFailed").await;
    let message = event.message.unwrap();
    assert!(message.starts_with("Error syncing load balancer: failed to update load balancer status: "), "{message}");
    world.addressed("web").await;
}

#[tokio::test(start_paused = true)]
async fn s32_a_service_that_changes_its_type_while_its_balancer_is_made_is_no_failure() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_secs(3))).on("create-balancer").times(1));
    world.start();
    world.serve("web").await;
    world.eventually("the address is there", async || (world.called("create-address") == 1).then_some(())).await;
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world
        .eventually("the finalizer is gone", async || finalizers(&world.service("web").await).is_empty().then_some(()))
        .await;
    assert_eq!((world.called("create-balancer"), world.called("delete-balancer")), (1, 1));
    assert_eq!(world.patches(), 2, "the finalizer, on and off");
    assert_eq!(world.event("web", "SyncLoadBalancerFailed").await.map(|event| event.message), None);
    assert_eq!(world.condition("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn s07_u02_another_address_and_other_ports_are_a_full_sync() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    let first = world.addressed("web").await;
    let id = world.balancer().id;
    world.patch_service("web", json!({"spec": {"loadBalancerIP": "127.0.40.9"}})).await;
    world
        .eventually("the other address", async || {
            (ingress(&world.service("web").await) == ["127.0.40.9"]).then_some(())
        })
        .await;
    assert_ne!(first, "127.0.40.9");
    assert_eq!(world.cloud().addresses().len(), 1, "the first address is given back");
    world.patch_service("web", json!({"spec": {"ports": [{"name": "tls", "port": 443}]}})).await;
    world.eventually("port 443", async || (ports(&world.balancer()) == [("Tcp".to_owned(), 443)]).then_some(())).await;
    assert_eq!(world.balancer().id, id, "it is changed, not replaced");
}

#[tokio::test(start_paused = true)]
async fn s10_s11_a_service_whose_finalizer_was_taken_away_by_force_leaves_no_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer"));
    world.delete_service("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    let none = json!({"metadata": {"finalizers": null}});
    world.services.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    world.service_gone("web").await;
    let event = world.told("web", "DeleteLoadBalancerFailed").await;
    assert!(event.message.unwrap().starts_with("Error deleting load balancer: "));
    assert_eq!(world.cloud().balancers().len(), 1);
    world.cloud().repair_all();
    world.eventually("it is gone", async || world.cloud().balancers().is_empty().then_some(())).await;
    assert!(world.cloud().addresses().is_empty());
    world.told("web", "DeletedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_for_a_service_that_vanished_until_the_api_server_says_that_it_is_gone() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer").times(4));
    world.delete_service("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    world.fail("get", "services", 500, None);
    let none = json!({"metadata": {"finalizers": null}});
    world.services.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    world.pass(WHILE * 60).await;
    assert_eq!(world.cloud().balancers().len(), 1, "nobody knows");
    world.server.faults().clear();
    world.eventually("it is gone", async || world.cloud().balancers().is_empty().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn s15_a_service_that_is_going_without_our_finalizer_gets_no_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.serve_with("web", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
    world.delete_service("web").await;
    world.start();
    world.pass(WHILE * 20).await;
    assert_eq!((world.cloud().writes(), world.patches()), (0, 0));
    assert!(world.called("observe-balancers") <= 1);
}

#[tokio::test(start_paused = true)]
async fn s20_s21_a_restart_writes_nothing_at_all() {
    let mut world = World::with_nodes(&["a", "b"]).await;
    world.start();
    for name in ["one", "two", "three"] {
        world.serve(name).await;
    }
    for name in ["one", "two", "three"] {
        world.addressed(name).await;
    }
    world.stop().await;
    let (writes, patches, events) = (world.cloud().writes(), world.patches(), world.events().await.len());
    let looks = world.called("observe-balancers");
    world.start();
    world.pass(WHILE).await;
    assert_eq!((world.cloud().writes(), world.patches()), (writes, patches));
    assert_eq!(world.events().await.len(), events, "a restart is not news");
    assert_eq!(world.called("observe-balancers") - looks, 1, "all are looked at with one call");
}

#[tokio::test(start_paused = true)]
async fn s22_what_others_wrote_meanwhile_survives() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_latency(Duration::from_secs(1));
    world.start();
    world.serve_with("web", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
    world
        .eventually("the finalizer", async || (finalizers(&world.service("web").await).len() == 2).then_some(()))
        .await;
    world.annotate("web", "example.com/note", Some("kept")).await;
    world.addressed("web").await;
    let service = world.service("web").await;
    assert_eq!(service.metadata.annotations.as_ref().unwrap()["example.com/note"], "kept");
    assert_eq!(finalizers(&service), ["example.com/other", FINALIZER]);
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world
        .eventually("ours is gone", async || {
            (finalizers(&world.service("web").await) == ["example.com/other"]).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn s27_without_its_finalizer_a_service_has_nothing_in_the_cloud() {
    let mut world = World::with_nodes(&["a"]).await;
    world.fail("patch", "services", 403, Some(3));
    world.start();
    world.serve("web").await;
    let event = world.told("web", "SyncLoadBalancerFailed").await;
    let message = event.message.unwrap();
    let start = "Error syncing load balancer: failed to add load balancer cleanup finalizer: ";
    assert!(message.starts_with(start), "{message}");
    assert_eq!((world.called("observe-balancers"), world.cloud().writes()), (0, 0));
    world.addressed("web").await;
}

#[tokio::test(start_paused = true)]
async fn s27_a_service_that_went_before_it_got_its_finalizer_is_no_failure() {
    let mut world = World::with_nodes(&["a"]).await;
    world.fail("patch", "services", 404, Some(1));
    world.start();
    world.serve("web").await;
    world.told("web", "EnsuringLoadBalancer").await;
    world.pass(Duration::from_secs(4)).await;
    assert_eq!((world.called("observe-balancers"), world.cloud().writes(), world.patches()), (0, 0, 0));
    let refused =
        world.server.requests().into_iter().filter(|(kind, _)| kind.resource == "services" && kind.code == 404);
    assert_eq!(refused.map(|(_, count)| count).sum::<u64>(), 1, "the finalizer, and no condition for nobody");
    assert_eq!(world.event("web", "SyncLoadBalancerFailed").await.map(|event| event.message), None);
    // Should it be there after all, it is served.
    world.addressed("web").await;
}

#[tokio::test(start_paused = true)]
async fn s28_without_nodes_there_is_a_balancer_and_a_warning() {
    let mut world = World::new().await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    assert!(world.balancer().targets.is_empty());
    let event = world.told("web", "UnAvailableLoadBalancer").await;
    assert_eq!(event.message.as_deref(), Some("There are no available nodes for LoadBalancer"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    // The first node is taken in without waiting for others.
    let before = tokio::time::Instant::now();
    world.join_machine("a", 0).await;
    world.targets_are(&["a"]).await;
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    world.told("web", "UpdatedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn s29_the_ip_mode_is_what_the_annotation_says() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve_with("web", json!({"metadata": {"annotations": {"bowline.dev/ip-mode": "vip"}}})).await;
    world.addressed("web").await;
    let mode = async || {
        let status = world.service("web").await.status.unwrap().load_balancer.unwrap();
        status.ingress.unwrap().pop().unwrap().ip_mode.unwrap()
    };
    assert_eq!(mode().await, "VIP");
    world.annotate("web", "bowline.dev/ip-mode", Some("Proxy")).await;
    world.eventually("the other mode", async || (mode().await == "Proxy").then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn s30_tcp_and_udp_on_one_port_are_one_balancer() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    let both = json!([{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]);
    world.serve_with("dns", json!({"spec": {"ports": both}})).await;
    world.addressed("dns").await;
    assert_eq!(ports(&world.balancer()), [("Tcp".to_owned(), 53), ("Udp".to_owned(), 53)]);
}

#[tokio::test(start_paused = true)]
async fn s31_a_new_service_of_the_same_name_has_a_balancer_of_its_own() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    let old = world.serve("web").await.metadata.uid;
    world.addressed("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer").times(6));
    world.delete_service("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    let none = json!({"metadata": {"finalizers": null}});
    world.services.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    world.service_gone("web").await;
    let new = world.serve("web").await.metadata.uid;
    assert_ne!(old, new);
    world.addressed("web").await;
    world
        .eventually("one balancer, the new one's", async || {
            let balancers = world.cloud().balancers();
            let owners: Vec<_> =
                balancers.iter().map(|balancer| balancer.owner.clone().map(|owner| owner.uid)).collect();
            (owners == [new.clone()]).then_some(())
        })
        .await;
    assert_eq!(world.cloud().addresses().len(), 1);
}
