//! Many Services: priority, concurrency limit, fairness and shutdown.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::load_balancers::ingress;
use crate::recorder::Recorder;
use crate::world::World;

const SETTLE: Duration = Duration::from_secs(20);

/// World with this number of concurrent writes, in which every call takes a tenth of a second.
async fn recorded(concurrency: usize) -> (World, Arc<Recorder>) {
    let mut world = World::with_nodes(&["a"]).await;
    let recorder = Arc::new(Recorder::default());
    let wrapper = recorder.clone();
    world.wrap = Box::new(move |inner| wrapper.wrap(inner));
    world.options.service.as_mut().unwrap().concurrency = concurrency;
    world.cloud().set_latency(Duration::from_millis(100));
    (world, recorder)
}

async fn namespace(world: &World, name: &str) {
    let namespaces: Api<Namespace> = Api::all(world.server.in_process_client());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_number_of_concurrent_load_balancer_writes_is_that_of_the_flag() {
    for concurrency in [1, 5] {
        let (mut world, recorder) = recorded(concurrency).await;
        for index in 0..20 {
            world.create_service(&format!("web-{index}")).await;
        }
        world.start();
        for index in 0..20 {
            world.wait_for_address(&format!("web-{index}")).await;
        }
        assert_eq!(recorder.max_concurrent.load(Ordering::SeqCst), concurrency);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_never_written_by_two_syncs_at_a_time_even_if_services_share_it() {
    let (mut world, recorder) = recorded(8).await;
    world.start();
    for index in 0..6 {
        let shared = json!({
            "metadata": {"annotations": {"bowline.dev/share-group": "front"}},
            "spec": {"ports": [{"port": 80 + index}]},
        });
        world.create_service_with(&format!("shared-{index}"), shared).await;
    }
    world.create_service("own").await;
    for round in 0..10 {
        // Changes of every kind during syncs.
        world.patch_service("own", json!({"spec": {"ports": [{"port": 8000 + round}]}})).await;
        world.annotate("shared-0", "example.com/round", Some(&round.to_string())).await;
        world.join_machine(&format!("n{round}"), 20 + round).await;
        world.sleep(Duration::from_millis(130)).await;
    }
    world.delete_service("shared-1").await;
    world.wait_until_service_deleted("shared-1").await;
    let address = world.wait_for_address("shared-0").await;
    for index in 2..6 {
        assert_eq!(world.wait_for_address(&format!("shared-{index}")).await, address);
    }
    assert_eq!(recorder.overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(world.cloud().balancers().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_services_does_not_delay_another_namespace() {
    let (mut world, recorder) = recorded(1).await;
    for name in ["crowded", "quiet"] {
        namespace(&world, name).await;
    }
    for index in 0..40 {
        world.create_service_in("crowded", &format!("web-{index:02}"), json!({})).await;
    }
    world.create_service_in("quiet", "web", json!({})).await;
    world.start();
    world.eventually("all have load balancers", async || (world.cloud().balancers().len() == 41).then_some(())).await;
    // Two steps per Service; without fair queueing it would be the last.
    assert!(recorder.position("quiet/web") < 20, "{:?}", recorder.steps());
}

#[tokio::test(start_paused = true)]
async fn a_new_service_is_synced_before_refreshes() {
    let (mut world, recorder) = recorded(1).await;
    world.cloud().set_latency(Duration::ZERO);
    world.start();
    for index in 0..40 {
        world.create_service(&format!("old-{index:02}")).await;
    }
    for index in 0..40 {
        world.wait_for_address(&format!("old-{index:02}")).await;
    }
    world.stop().await;
    world.join_machine("b", 1).await;
    world.create_service("new").await;
    world.cloud().set_latency(Duration::from_millis(100));
    recorder.forget();
    world.start();
    world.wait_for_targets(&["a", "b"]).await;
    assert!(recorder.position("default/new") < 10, "{:?}", recorder.steps());
}

#[tokio::test(start_paused = true)]
async fn a_refresh_observes_as_many_load_balancers_at_once_as_the_cloud_shows() {
    let (mut world, recorder) = recorded(16).await;
    world.options.service.as_mut().unwrap().refresh = Duration::from_secs(600);
    for index in 0..100 {
        world.create_service(&format!("web-{index:02}")).await;
    }
    world.start();
    for index in 0..100 {
        world.wait_for_address(&format!("web-{index:02}")).await;
    }
    world.sleep(SETTLE).await;
    recorder.forget();
    world.sleep(Duration::from_secs(600)).await;
    assert_eq!((recorder.observed(), recorder.steps()), (vec![100], vec![]));
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_the_step_in_progress_and_the_next_manager_continues() {
    let (mut world, recorder) = recorded(1).await;
    world.cloud().set_latency(Duration::from_secs(1));
    world.start();
    world.create_service("web").await;
    world.eventually("the first step", async || (!recorder.steps().is_empty()).then_some(())).await;
    world.stop().await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 0));
    assert!(ingress(&world.service("web").await).is_empty());
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"), "a shutdown is no failure");
    world.start();
    world.wait_for_address("web").await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing_anywhere() {
    let mut world = World::with_nodes(&["a"]).await;
    world.options.dry_run = true;
    world.layers.dry_run = true;
    world.create_service("new").await;
    world
        .create_service_with(
            "going",
            json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}}),
        )
        .await;
    world.delete_service("going").await;
    world.register("raw").await;
    let before = world.service("new").await.metadata.resource_version;
    let (raw, going) = (world.node("raw").await, world.service("going").await);
    world.start();
    world.sleep(SETTLE).await;
    assert_eq!(world.service("new").await.metadata.resource_version, before);
    assert_eq!(world.service("going").await, going);
    assert_eq!(world.node("raw").await, raw);
    assert_eq!((world.cloud().writes(), world.events().await.len()), (0, 0));
    world.stop().await;
}
