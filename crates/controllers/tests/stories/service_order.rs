//! Many Services at once: who goes first, how many at a time, and what becomes of them when the manager stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::balancing::ingress;
use crate::noted::Notes;
use crate::world::World;

const WHILE: Duration = Duration::from_secs(20);

/// A world with so many writers at once, in which every call takes a tenth of a second.
async fn noted(concurrency: usize) -> (World, Arc<Notes>) {
    let mut world = World::with_nodes(&["a"]).await;
    let notes = Arc::new(Notes::default());
    let taken = notes.clone();
    world.wrap = Box::new(move |inner| taken.about(inner));
    world.options.service.as_mut().unwrap().concurrency = concurrency;
    world.cloud().set_latency(Duration::from_millis(100));
    (world, notes)
}

async fn namespace(world: &World, name: &str) {
    let namespaces: Api<Namespace> = Api::all(world.server.in_process_client());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn as_many_balancers_are_written_at_once_as_the_flag_says_and_no_more() {
    for concurrency in [1, 5] {
        let (mut world, notes) = noted(concurrency).await;
        for index in 0..20 {
            world.serve(&format!("web-{index}")).await;
        }
        world.start();
        for index in 0..20 {
            world.addressed(&format!("web-{index}")).await;
        }
        assert_eq!(notes.most_at_once.load(Ordering::SeqCst), concurrency);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_balancer_is_never_in_two_passes_even_if_two_services_share_it() {
    let (mut world, notes) = noted(8).await;
    world.start();
    for index in 0..6 {
        let shared = json!({
            "metadata": {"annotations": {"bowline.dev/share-group": "front"}},
            "spec": {"ports": [{"port": 80 + index}]},
        });
        world.serve_with(&format!("shared-{index}"), shared).await;
    }
    world.serve("own").await;
    for round in 0..10 {
        // Changes of every kind, while passes are under way.
        world.patch_service("own", json!({"spec": {"ports": [{"port": 8000 + round}]}})).await;
        world.annotate("shared-0", "example.com/round", Some(&round.to_string())).await;
        world.join_machine(&format!("n{round}"), 20 + round).await;
        world.pass(Duration::from_millis(130)).await;
    }
    world.delete_service("shared-1").await;
    world.service_gone("shared-1").await;
    let address = world.addressed("shared-0").await;
    for index in 2..6 {
        assert_eq!(world.addressed(&format!("shared-{index}")).await, address);
    }
    assert_eq!(notes.doubled.load(Ordering::SeqCst), 0);
    assert_eq!(world.cloud().balancers().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_services_does_not_keep_another_waiting() {
    let (mut world, notes) = noted(1).await;
    for name in ["crowded", "quiet"] {
        namespace(&world, name).await;
    }
    for index in 0..40 {
        world.serve_in("crowded", &format!("web-{index:02}"), json!({})).await;
    }
    world.serve_in("quiet", "web", json!({})).await;
    world.start();
    world.eventually("all have balancers", async || (world.cloud().balancers().len() == 41).then_some(())).await;
    // Two steps each; without turns it would be the last.
    assert!(notes.place("quiet/web") < 20, "{:?}", notes.steps());
}

#[tokio::test(start_paused = true)]
async fn a_new_service_goes_before_the_refreshes_of_others() {
    let (mut world, notes) = noted(1).await;
    world.cloud().set_latency(Duration::ZERO);
    world.start();
    for index in 0..40 {
        world.serve(&format!("old-{index:02}")).await;
    }
    for index in 0..40 {
        world.addressed(&format!("old-{index:02}")).await;
    }
    world.stop().await;
    world.join_machine("b", 1).await;
    world.serve("new").await;
    world.cloud().set_latency(Duration::from_millis(100));
    notes.forget();
    world.start();
    world.targets_are(&["a", "b"]).await;
    assert!(notes.place("default/new") < 10, "{:?}", notes.steps());
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_told_to_stop_finishes_the_step_in_hand_and_the_next_one_goes_on() {
    let (mut world, notes) = noted(1).await;
    world.cloud().set_latency(Duration::from_secs(1));
    world.start();
    world.serve("web").await;
    world.eventually("the first step", async || (!notes.steps().is_empty()).then_some(())).await;
    world.stop().await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 0));
    assert!(ingress(&world.service("web").await).is_empty());
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"), "stopping is no failure");
    world.start();
    world.addressed("web").await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing_anywhere() {
    let mut world = World::with_nodes(&["a"]).await;
    world.options.dry_run = true;
    world.layers.dry_run = true;
    world.serve("new").await;
    world
        .serve_with("going", json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}}))
        .await;
    world.delete_service("going").await;
    world.register("raw").await;
    let before = world.service("new").await.metadata.resource_version;
    let (raw, going) = (world.node("raw").await, world.service("going").await);
    world.start();
    world.pass(WHILE).await;
    assert_eq!(world.service("new").await.metadata.resource_version, before);
    assert_eq!(world.service("going").await, going);
    assert_eq!(world.node("raw").await, raw);
    assert_eq!((world.cloud().writes(), world.events().await.len()), (0, 0));
    world.stop().await;
}
