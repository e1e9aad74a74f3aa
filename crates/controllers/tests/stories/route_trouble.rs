//! Routes when something fails, answers get lost, or the list of Nodes is not to be believed; and routes written in batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{CloudProvider, Result, Routes};
use bowline_controllers::route::Mode;
use bowline_core::{ClusterName, Route, RouteSpec};
use bowline_local::{Fault, FaultSpec};
use serde_json::json;

use crate::routes::{REFRESH, WHILE, network};
use crate::world::World;
use crate::wrappers::Wrapped;

const BROKEN: Fault = Fault::Failing(500);

#[tokio::test(start_paused = true)]
async fn r22_a_route_that_cannot_be_made_is_told_and_tried_again_after_another_look() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.calls.max_attempts = 1;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.network("a", "True", "NoRouteCreated").await;
    let event = world.eventually("it is told", async || world.event("a", "FailedToCreateRoute").await).await;
    let uid = world.node("a").await.metadata.uid.unwrap();
    let message = event.message.unwrap();
    assert!(message.starts_with(&format!("Could not create route {uid} 10.120.0.0/24 for node a after ")), "{message}");
    assert_eq!(
        (event.type_.as_deref(), event.reporting_component.as_deref()),
        (Some("Warning"), Some("route_controller"))
    );
    assert_eq!(event.involved_object.api_version.as_deref(), Some("v1"));
    assert_eq!(world.route_syncs(), [("noop periodic".to_owned(), 1)].into(), "a failure is no error of the pass");
    world.pass(WHILE).await;
    let count = world.event("a", "FailedToCreateRoute").await.unwrap().count;
    assert_eq!(count, Some(1), "once, however often it is tried");
    world.cloud().repair(fault);
    world.reachable("a").await;
    let calls = world.route_calls();
    assert!(calls["create-route"] > 2, "{calls:?}");
    assert_eq!(calls["list-routes"], calls["create-route"], "each try rests on a look of its own");
}

#[tokio::test(start_paused = true)]
async fn failures_of_many_nodes_share_their_looks() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    let mut world = World::with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route").times(20));
    for (number, name) in names.iter().enumerate() {
        world.join_with_ranges(name, &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    for name in &names {
        world.reachable(name).await;
    }
    let calls = world.route_calls();
    assert_eq!((calls["create-route"], calls["list-routes"]), (40, 2));
}

#[tokio::test(start_paused = true)]
async fn r23_without_a_listing_nothing_is_touched_and_the_next_comes_soon() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.calls.max_attempts = 1;
    world.lead("10.120.9.0/24", "b");
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("list-routes"));
    world.start();
    world.pass(WHILE).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.9.0/24 b"]);
    assert_eq!((network(&world.node("a").await), network(&world.node("b").await)), (None, None));
    assert!(world.route_syncs().keys().all(|key| key.starts_with("error")), "{:?}", world.route_syncs());
    world.cloud().repair(fault);
    world.reachable("a").await;
    world.reachable("b").await;
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_has_no_routes_after_all_is_left_alone_until_it_has() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    let without = world.cloud().inject(FaultSpec::always(Fault::Failing(501)).on("list-routes"));
    world.start();
    world.pass(WHILE).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.pass(WHILE).await;
    assert_eq!((network(&world.node("a").await), network(&world.node("b").await)), (None, None));
    assert_eq!(
        world.route_calls(),
        [("list-routes".to_owned(), 1)].into(),
        "a Node that comes is no reason to ask again"
    );
    assert!(world.route_syncs().is_empty(), "nothing failed: {:?}", world.route_syncs());
    world.cloud().repair(without);
    world.pass(REFRESH).await;
    world.reachable("a").await;
    world.reachable("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_route_to_a_node_that_is_not_initialised_yet_fails_in_silence() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.join_with("a", json!({"providerID": "local://id-a"}), &["10.120.0.0/24"]).await;
    world.start();
    world.network("a", "True", "NoRouteCreated").await;
    world.pass(WHILE).await;
    assert!(world.event("a", "FailedToCreateRoute").await.is_none());
    world.patch("a", json!({"spec": {"taints": null}})).await;
    world.eventually("it is told", async || world.event("a", "FailedToCreateRoute").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_is_lost_makes_one_route() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(Fault::AnswerLost).on("create-route").times(1));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    assert_eq!(world.route_calls()["create-route"], 1, "the second look has shown it");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_tried_again_and_keeps_the_range_from_being_led_elsewhere() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.calls.max_attempts = 1;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("delete-route"));
    world.delete("a").await;
    world.join_with_ranges("b", &["10.120.0.0/24"]).await;
    world.network("b", "True", "NoRouteCreated").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    assert_eq!(world.route_calls()["create-route"], 1, "not before the old one is gone");
    world.cloud().repair(fault);
    world.reachable("b").await;
    assert_eq!(world.led(), ["10.120.0.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn in_periodic_mode_the_next_period_is_the_next_try() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route").times(2));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.network("a", "True", "NoRouteCreated").await;
    world.pass(Duration::from_secs(8)).await;
    assert_eq!(world.route_calls()["create-route"], 1);
    world.reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 3);
    assert_eq!(world.route_syncs()["changed periodic"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_nobody_accounted_for_is_found_when_it_is_in_the_way() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    // By hand, after the look: the creation for the next node meets it.
    world.lead("10.120.1.0/24", "a");
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.reachable("b").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_claim_one_range_are_told_and_the_first_keeps_it() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.join_with_ranges("b", &["10.120.0.0/24"]).await;
    world.network("b", "True", "NoRouteCreated").await;
    let message = world.event("b", "FailedToCreateRoute").await.unwrap().message.unwrap();
    assert!(message.contains("10.120.0.0/24"), "{message}");
    world.pass(REFRESH).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    assert_eq!(network(&world.node("a").await).unwrap().0, "False");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_cannot_be_written_is_tried_again_without_the_cloud() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.fail("patch", "nodes", 403, Some(3));
    world.start();
    world.reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_between_route_and_condition_is_made_good_by_the_next_manager() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.fail("patch", "nodes", 503, None);
    world.start();
    world.eventually("the route is there", async || (!world.led().is_empty()).then_some(())).await;
    world.kill().await;
    assert_eq!(network(&world.node("a").await), None);
    world.server.faults().clear();
    world.start();
    world.reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 1);
}

// ---- the brake

#[tokio::test(start_paused = true)]
async fn without_a_single_node_routes_stay_until_there_is_one() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        world.lead(&format!("10.120.{number}.0/24"), name);
    }
    world.start();
    world.pass(3 * REFRESH).await;
    assert_eq!(world.led().len(), 3);
    assert_eq!(world.held_routes("no_nodes"), 3);
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.reachable("a").await;
    world.pass(WHILE).await;
    assert_eq!((world.held_routes("no_nodes"), world.held_routes("many")), (0, 2), "the others may be on their way");
    world.pass(2 * WHILE).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    assert_eq!(world.held_routes("many"), 0);
}

#[tokio::test(start_paused = true)]
async fn many_routes_go_only_when_the_api_server_has_said_twice_that_their_nodes_are_gone() {
    let names: Vec<String> = (0..30).map(|number| format!("n{number}")).collect();
    let mut world = World::with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (number, name) in names.iter().enumerate() {
        world.lead(&format!("10.120.{number}.0/24"), name);
    }
    for number in 0..10 {
        world.join_with_ranges(&format!("n{number}"), &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    world.reachable("n9").await;
    world.pass(Duration::from_secs(50)).await;
    assert_eq!((world.led().len(), world.held_routes("many")), (30, 20));
    let listed = world.answered("list", "nodes", 200);
    world.pass(WHILE).await;
    assert_eq!((world.led().len(), world.held_routes("many")), (10, 0));
    assert_eq!(world.answered("list", "nodes", 200), listed + 1, "past every cache");
    assert_eq!(world.route_calls()["list-routes"], 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_who_switches_the_brake_off_gets_an_empty_table() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        world.lead(&format!("10.120.{number}.0/24"), name);
    }
    world.options.route.as_mut().unwrap().max_share = 1.0;
    world.start();
    world.eventually("all routes are gone", async || world.led().is_empty().then_some(())).await;
}

impl World {
    /// How many routes the brake keeps for this reason.
    fn held_routes(&self, reason: &str) -> i64 {
        let held = self.metric("bowline_route_deletions_held_back");
        held.get(&format!("local {reason}")).map_or(0, |held| *held as i64)
    }
}

// ---- whatever happens

/// Nodes come, go, change and come back, calls fail, answers get lost, the manager is killed and started: in the end each
/// Node that is there is led to, and no other.
#[tokio::test(start_paused = true)]
async fn whatever_comes_goes_and_fails_in_the_end_exactly_the_nodes_that_are_there_are_led_to() {
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
                    world.join_with_ranges(name, &[&range]).await;
                }
                _ => {}
            }
            world.pass(Duration::from_millis(chance.u64(..3000))).await;
        }
        if world.nodes.list(&Default::default()).await.unwrap().items.is_empty() {
            world.join_with_ranges("n0", &["10.120.0.0/24"]).await;
        }
        world.pass(2 * REFRESH).await;
        let nodes = world.nodes.list(&Default::default()).await.unwrap().items;
        let mut expected: Vec<String> = nodes
            .iter()
            .map(|node| {
                let spec = node.spec.as_ref().unwrap();
                format!("{} {}", spec.pod_cidr.as_ref().unwrap(), node.metadata.name.as_ref().unwrap())
            })
            .collect();
        expected.sort();
        assert_eq!(world.led(), expected, "seed {seed}");
        for node in &nodes {
            assert_eq!(network(node), Some(("False".into(), "RouteCreated".into())), "seed {seed}");
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

    /// One call that takes its time. Fails if another one is under way.
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
        world.join_with_ranges(name, &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    for name in &names {
        world.reachable(name).await;
    }
    assert_eq!(*sizes.lock().unwrap(), [20; 3]);
}

/// Three Nodes with routes, all Ready, in a cloud that then shows an empty table.
async fn with_an_empty_table() -> World {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    world.calls.max_attempts = 1;
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.join_with_ranges(name, &[&format!("10.120.{number}.0/24")]).await;
        world.set_ready(name, "True").await;
    }
    world.start();
    for name in ["a", "b", "c"] {
        world.reachable(name).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn one_empty_listing_costs_another_listing_and_nothing_else() {
    let world = with_an_empty_table().await;
    let before = world.route_calls();
    world.cloud().inject(FaultSpec::always(Fault::Empty).on("list-routes").times(1));
    world.pass(REFRESH + WHILE).await;
    let calls = world.route_calls();
    assert_eq!(calls["create-route"], before["create-route"]);
    assert_eq!(calls["list-routes"], before["list-routes"] + 2);
}

#[tokio::test(start_paused = true)]
async fn an_empty_table_does_not_make_ready_nodes_unreachable() {
    let world = with_an_empty_table().await;
    world.cloud().inject(FaultSpec::always(Fault::Empty).on("list-routes"));
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.pass(2 * REFRESH).await;
    assert!(world.event("a", "FailedToCreateRoute").await.is_some(), "creation is tried, and fails");
    for name in ["a", "b", "c"] {
        assert_eq!(network(&world.node(name).await).unwrap().0, "False", "{name}");
    }
    world.cloud().repair_all();
    world.pass(REFRESH).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 b", "10.120.2.0/24 c"]);
}
