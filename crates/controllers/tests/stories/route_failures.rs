//! Routes with failures, lost responses and unreliable Node lists; and routes written in batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{CloudProvider, Result, Routes};
use bowline_controllers::route::Mode;
use bowline_core::{ClusterName, Route, RouteSpec};
use bowline_local::{Fault, FaultSpec};
use serde_json::json;

use crate::routes::{REFRESH, SETTLE, network_condition};
use crate::test_providers::Wrapped;
use crate::world::World;

const BROKEN: Fault = Fault::Failing(500);

#[tokio::test(start_paused = true)]
async fn r22_a_failed_route_creation_is_reported_and_retried_after_another_listing() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.calls.max_attempts = 1;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    let event = world.eventually("the Event", async || world.event("a", "FailedToCreateRoute").await).await;
    let uid = world.node("a").await.metadata.uid.unwrap();
    let message = event.message.unwrap();
    assert!(message.starts_with(&format!("Could not create route {uid} 10.120.0.0/24 for node a after ")), "{message}");
    assert_eq!(
        (event.type_.as_deref(), event.reporting_component.as_deref()),
        (Some("Warning"), Some("route_controller"))
    );
    assert_eq!(event.involved_object.api_version.as_deref(), Some("v1"));
    assert_eq!(world.route_syncs(), [("noop periodic".to_owned(), 1)].into(), "a failed creation is no failed sync");
    world.sleep(SETTLE).await;
    let count = world.event("a", "FailedToCreateRoute").await.unwrap().count;
    assert_eq!(count, Some(1), "reported once despite retries");
    world.cloud().repair(fault);
    world.wait_until_reachable("a").await;
    let calls = world.route_calls();
    assert!(calls["create-route"] > 2, "{calls:?}");
    assert_eq!(calls["list-routes"], calls["create-route"], "each retry follows a new listing");
}

#[tokio::test(start_paused = true)]
async fn failures_of_many_nodes_share_their_listings() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    let mut world = World::with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route").times(20));
    for (number, name) in names.iter().enumerate() {
        world.join_with_cidrs(name, &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    for name in &names {
        world.wait_until_reachable(name).await;
    }
    let calls = world.route_calls();
    assert_eq!((calls["create-route"], calls["list-routes"]), (40, 2));
}

#[tokio::test(start_paused = true)]
async fn r23_a_failed_listing_changes_nothing_and_is_retried_soon() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.calls.max_attempts = 1;
    world.create_route_by_hand("10.120.9.0/24", "b");
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("list-routes"));
    world.start();
    world.sleep(SETTLE).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.9.0/24 b"]);
    assert_eq!((network_condition(&world.node("a").await), network_condition(&world.node("b").await)), (None, None));
    assert!(world.route_syncs().keys().all(|key| key.starts_with("error")), "{:?}", world.route_syncs());
    world.cloud().repair(fault);
    world.wait_until_reachable("a").await;
    world.wait_until_reachable("b").await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a", "10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_routes_is_not_called_until_it_has_routes() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    let without = world.cloud().inject(FaultSpec::always(Fault::Failing(501)).on("list-routes"));
    world.start();
    world.sleep(SETTLE).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.sleep(SETTLE).await;
    assert_eq!((network_condition(&world.node("a").await), network_condition(&world.node("b").await)), (None, None));
    assert_eq!(world.route_calls(), [("list-routes".to_owned(), 1)].into(), "a new Node causes no call");
    assert!(world.route_syncs().is_empty(), "nothing failed: {:?}", world.route_syncs());
    world.cloud().repair(without);
    world.sleep(REFRESH).await;
    world.wait_until_reachable("a").await;
    world.wait_until_reachable("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_route_to_an_uninitialised_node_is_not_reported() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.join_with("a", json!({"providerID": "local://id-a"}), &["10.120.0.0/24"]).await;
    world.start();
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    world.sleep(SETTLE).await;
    assert!(world.event("a", "FailedToCreateRoute").await.is_none());
    world.patch("a", json!({"spec": {"taints": null}})).await;
    world.eventually("the Event", async || world.event("a", "FailedToCreateRoute").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_with_a_lost_response_creates_one_route() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(Fault::AnswerLost).on("create-route").times(1));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    assert_eq!(world.route_calls()["create-route"], 1, "the second listing shows it");
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_retried_and_blocks_a_new_route_to_its_destination() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.calls.max_attempts = 1;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("delete-route"));
    world.delete("a").await;
    world.join_with_cidrs("b", &["10.120.0.0/24"]).await;
    world.wait_for_condition("b", "True", "NoRouteCreated").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    assert_eq!(world.route_calls()["create-route"], 1, "not before the old route is deleted");
    world.cloud().repair(fault);
    world.wait_until_reachable("b").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn in_periodic_mode_the_next_period_is_the_next_retry() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route").times(2));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    world.sleep(Duration::from_secs(8)).await;
    assert_eq!(world.route_calls()["create-route"], 1);
    world.wait_until_reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 3);
    assert_eq!(world.route_syncs()["changed periodic"], 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_route_is_found_when_it_conflicts() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    // Created by hand after the listing: the creation for the next node conflicts with it.
    world.create_route_by_hand("10.120.1.0/24", "a");
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.wait_until_reachable("b").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a", "10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_with_one_pod_cidr_are_reported_and_the_first_keeps_its_route() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.join_with_cidrs("b", &["10.120.0.0/24"]).await;
    world.wait_for_condition("b", "True", "NoRouteCreated").await;
    let message = world.event("b", "FailedToCreateRoute").await.unwrap().message.unwrap();
    assert!(message.contains("10.120.0.0/24"), "{message}");
    world.sleep(REFRESH).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    assert_eq!(network_condition(&world.node("a").await).unwrap().0, "False");
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_write_is_retried_without_a_cloud_call() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.fail("patch", "nodes", 403, Some(3));
    world.start();
    world.wait_until_reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_route_and_condition_is_repaired_by_the_next_manager() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.fail("patch", "nodes", 503, None);
    world.start();
    world.eventually("the route", async || (!world.routes().is_empty()).then_some(())).await;
    world.kill().await;
    assert_eq!(network_condition(&world.node("a").await), None);
    world.server.faults().clear();
    world.start();
    world.wait_until_reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 1);
}

// ---- the brake

#[tokio::test(start_paused = true)]
async fn without_any_node_routes_stay_until_one_appears() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        world.create_route_by_hand(&format!("10.120.{number}.0/24"), name);
    }
    world.start();
    world.sleep(3 * REFRESH).await;
    assert_eq!(world.routes().len(), 3);
    assert_eq!(world.held_routes("no_nodes"), 3);
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.wait_until_reachable("a").await;
    world.sleep(SETTLE).await;
    assert_eq!((world.held_routes("no_nodes"), world.held_routes("many")), (0, 2), "other nodes may still appear");
    world.sleep(2 * SETTLE).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    assert_eq!(world.held_routes("many"), 0);
}

#[tokio::test(start_paused = true)]
async fn many_routes_are_deleted_only_after_the_api_server_confirmed_twice_that_their_nodes_are_gone() {
    let names: Vec<String> = (0..30).map(|number| format!("n{number}")).collect();
    let mut world = World::with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (number, name) in names.iter().enumerate() {
        world.create_route_by_hand(&format!("10.120.{number}.0/24"), name);
    }
    for number in 0..10 {
        world.join_with_cidrs(&format!("n{number}"), &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    world.wait_until_reachable("n9").await;
    world.sleep(Duration::from_secs(50)).await;
    assert_eq!((world.routes().len(), world.held_routes("many")), (30, 20));
    let listed = world.response_count("list", "nodes", 200);
    world.sleep(SETTLE).await;
    assert_eq!((world.routes().len(), world.held_routes("many")), (10, 0));
    assert_eq!(world.response_count("list", "nodes", 200), listed + 1, "bypassing every cache");
    assert_eq!(world.route_calls()["list-routes"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_disabled_brake_deletes_all_routes() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        world.create_route_by_hand(&format!("10.120.{number}.0/24"), name);
    }
    world.options.route.as_mut().unwrap().max_share = 1.0;
    world.start();
    world.eventually("all routes are deleted", async || world.routes().is_empty().then_some(())).await;
}

impl World {
    /// Number of routes that the brake holds back for this reason.
    fn held_routes(&self, reason: &str) -> i64 {
        let held = self.metric("bowline_route_deletions_held_back");
        held.get(&format!("local {reason}")).map_or(0, |held| *held as i64)
    }
}

// ---- random changes

/// Nodes are added, deleted, changed and recreated, calls fail, responses are lost, the manager crashes and restarts: in the end
/// each existing Node has its routes, and there are no others.
#[tokio::test(start_paused = true)]
async fn random_changes_and_failures_end_with_exactly_the_routes_of_the_existing_nodes() {
    for seed in 0..6 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
        let mut world = World::with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        world.calls.max_attempts = 2;
        for call in ["create-route", "delete-route", "list-routes"] {
            world.cloud().inject(FaultSpec::always(BROKEN).on(call).probability(0.2));
            world.cloud().inject(FaultSpec::always(Fault::AnswerLost).on(call).probability(0.1));
        }
        world.start();
        for _ in 0..60 {
            let name = &names[chance.usize(..names.len())];
            match (world.get(name).await.is_some(), chance.u8(..10)) {
                (_, 0) => {
                    world.kill().await;
                    world.start();
                }
                (true, 1..5) => world.delete(name).await,
                (false, 1..8) => {
                    let range = format!("10.120.{}.0/24", names.iter().position(|one| one == name).unwrap());
                    world.join_with_cidrs(name, &[&range]).await;
                }
                _ => {}
            }
            world.sleep(Duration::from_millis(chance.u64(..3000))).await;
        }
        if world.nodes.list(&Default::default()).await.unwrap().items.is_empty() {
            world.join_with_cidrs("n0", &["10.120.0.0/24"]).await;
        }
        world.sleep(2 * REFRESH).await;
        let nodes = world.nodes.list(&Default::default()).await.unwrap().items;
        let mut expected: Vec<String> = nodes
            .iter()
            .map(|node| {
                let spec = node.spec.as_ref().unwrap();
                format!("{} {}", spec.pod_cidr.as_ref().unwrap(), node.metadata.name.as_ref().unwrap())
            })
            .collect();
        expected.sort();
        assert_eq!(world.routes(), expected, "seed {seed}");
        for node in &nodes {
            assert_eq!(network_condition(node), Some(("False".into(), "RouteCreated".into())), "seed {seed}");
        }
        world.stop().await;
    }
}

/// Writes routes in batches under a lock, and records their sizes.
struct InBatches {
    inner: Arc<dyn CloudProvider>,
    sizes: Arc<Mutex<Vec<usize>>>,
    writing: tokio::sync::Mutex<()>,
}

impl InBatches {
    fn routes(&self) -> &dyn Routes {
        self.inner.routes().expect("the local cloud has routes")
    }

    /// Slow call. Panics if another one is in progress.
    async fn call(&self, size: usize) {
        let _alone = self.writing.try_lock().expect("writes with one lock do not overlap");
        self.sizes.lock().unwrap().push(size);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[async_trait]
impl Routes for InBatches {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.routes().list(cluster).await
    }

    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>> {
        self.call(routes.len()).await;
        self.routes().create(cluster, routes).await
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        self.call(routes.len()).await;
        self.routes().delete(cluster, routes).await
    }

    fn lock(&self, _: &ClusterName) -> Option<String> {
        Some("router".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn routes_of_many_nodes_are_written_in_batches_that_do_not_overlap() {
    let names: Vec<_> = (0..60).map(|number| format!("n{number}")).collect();
    let mut world = World::with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let recorded = sizes.clone();
    world.wrap = Box::new(move |inner| {
        let (sizes, writing) = (recorded.clone(), tokio::sync::Mutex::default());
        Wrapped::batches(inner.clone(), InBatches { inner, sizes, writing }, 20)
    });
    for (number, name) in names.iter().enumerate() {
        world.join_with_cidrs(name, &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    for name in &names {
        world.wait_until_reachable(name).await;
    }
    assert_eq!(*sizes.lock().unwrap(), [20; 3]);
}

/// World with three Ready Nodes with routes, in a cloud that then lists an empty table.
async fn with_an_empty_table() -> World {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    world.calls.max_attempts = 1;
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.join_with_cidrs(name, &[&format!("10.120.{number}.0/24")]).await;
        world.set_ready(name, "True").await;
    }
    world.start();
    for name in ["a", "b", "c"] {
        world.wait_until_reachable(name).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn one_empty_listing_causes_another_listing_and_nothing_else() {
    let world = with_an_empty_table().await;
    let before = world.route_calls();
    world.cloud().inject(FaultSpec::always(Fault::Empty).on("list-routes").times(1));
    world.sleep(REFRESH + SETTLE).await;
    let calls = world.route_calls();
    assert_eq!(calls["create-route"], before["create-route"]);
    assert_eq!(calls["list-routes"], before["list-routes"] + 2);
}

#[tokio::test(start_paused = true)]
async fn an_empty_table_does_not_make_ready_nodes_unreachable() {
    let world = with_an_empty_table().await;
    world.cloud().inject(FaultSpec::always(Fault::Empty).on("list-routes"));
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.sleep(2 * REFRESH).await;
    assert!(world.event("a", "FailedToCreateRoute").await.is_some(), "the creation is attempted and fails");
    for name in ["a", "b", "c"] {
        assert_eq!(network_condition(&world.node(name).await).unwrap().0, "False", "{name}");
    }
    world.cloud().repair_all();
    world.sleep(REFRESH).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a", "10.120.1.0/24 b", "10.120.2.0/24 c"]);
}
