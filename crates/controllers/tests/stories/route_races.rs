//! Routes when Nodes change while a call to the cloud is under way, and what is told of calls that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{CloudProvider, Error, ErrorKind, OneRoutePerCall, Result, Routes};
use bowline_controllers::route::Mode;
use bowline_core::{ClusterName, IpFamily, Route, RouteSpec};
use bowline_local::{Fault, FaultSpec};
use k8s_openapi::api::core::v1::Event;
use serde_json::json;

use crate::routes::{REFRESH, WHILE, network};
use crate::world::{World, machine};
use crate::wrappers::Wrapped;

const BROKEN: Fault = Fault::Failing(500);

const SLOW: Fault = Fault::Slow(Duration::from_secs(5));

/// Long enough for a call to begin, and not for it to end.
const MOMENT: Duration = Duration::from_secs(2);

impl World {
    /// What was said about routes of this Node that could not be made.
    async fn route_events(&self, name: &str) -> Vec<Event> {
        let is_meant = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some("FailedToCreateRoute")
        };
        self.events().await.into_iter().filter(is_meant).collect()
    }

    /// Nodes `n0`, `n1`, … with a machine and a range each.
    async fn join_many(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.join_with_ranges(&format!("n{number}"), &[&format!("10.120.{number}.0/24")]).await;
        }
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

async fn with_machines(count: usize) -> World {
    World::with_routes(&names(count).iter().map(String::as_str).collect::<Vec<_>>()).await
}

// ---- Nodes that come and go while something is under way

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_while_its_route_is_being_deleted_gets_it_again() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.reachable("b").await;
    world.cloud().inject(FaultSpec::always(SLOW).on("delete-route"));
    world.delete("a").await;
    world.eventually("its route is being deleted", async || world.route_calls().get("delete-route").copied()).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.pass(WHILE).await;
    world.reachable("a").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_made_while_its_node_goes_goes_as_well() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.start();
    world.reachable("b").await;
    world.cloud().inject(FaultSpec::always(SLOW).on("create-route"));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world
        .eventually("its route is being made", async || (world.route_calls()["create-route"] == 2).then_some(()))
        .await;
    world.delete("a").await;
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_at_once_on_another_machine_is_led_to_there() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.cloud().delete("id-a").unwrap();
    world.cloud().add(machine("a", "id-new", &["I10.0.0.1"])).unwrap();
    world.delete("a").await;
    let spec = json!({"taints": null, "providerID": "local://id-new"});
    world.join_with("a", spec, &["10.120.0.0/24"]).await;
    world.pass(WHILE).await;
    world.reachable("a").await;
    assert_eq!(world.led(), ["10.120.0.0/24 new"]);
}

#[tokio::test(start_paused = true)]
async fn ranges_that_come_while_a_route_goes_are_not_told_as_led_to() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_ranges("a", &[]).await;
    world.lead("10.120.9.0/24", "a");
    world.cloud().inject(FaultSpec::always(SLOW).on("delete-route"));
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.start();
    world.eventually("the route is being deleted", async || world.route_calls().get("delete-route").copied()).await;
    world.patch("a", json!({"spec": {"podCIDR": "10.120.0.0/24", "podCIDRs": ["10.120.0.0/24"]}})).await;
    let before = world.node_writes()["patch status"];
    world.network("a", "True", "NoRouteCreated").await;
    assert_eq!(world.node_writes()["patch status"], before + 1, "nothing else was said in between");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_an_operator_takes_over_meanwhile_is_told_nothing() {
    let mut world = World::with_routes(&["a"]).await;
    world.cloud().inject(FaultSpec::always(SLOW).on("create-route"));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.eventually("its route is being made", async || world.route_calls().get("create-route").copied()).await;
    world.patch("a", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.pass(WHILE).await;
    assert_eq!(network(&world.node("a").await), None);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_stops_begins_no_further_deletion() {
    let mut world = with_machines(40).await;
    world.clouds[0].0.routes.max_parallel = 2;
    world.options.route.as_mut().unwrap().max_share = 1.0;
    for number in 0..40 {
        world.lead(&format!("10.120.{number}.0/24"), &format!("n{number}"));
    }
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_millis(100))).on("delete-route"));
    world.start();
    world.eventually("routes are being deleted", async || world.route_calls().get("delete-route").copied()).await;
    world.stop().await;
    let deleted = world.route_calls()["delete-route"];
    assert_eq!(world.led().len(), 40 - deleted as usize, "what was begun is finished");
    assert!(deleted < 40, "{deleted}");
}

#[tokio::test(start_paused = true)]
async fn in_periodic_mode_an_overlong_run_is_followed_by_the_next_at_once() {
    // ROUTE-2: a run of 25 s with a period of 10 s.
    let mut world = World::with_routes(&["a"]).await;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_secs(25))).on("create-route").times(1));
    world.start();
    world.pass(Duration::from_secs(24)).await;
    assert_eq!(world.route_calls()["list-routes"], 1);
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.route_calls()["list-routes"], 2);
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.route_calls()["list-routes"], 3);
}

#[tokio::test(start_paused = true)]
async fn without_a_refresh_period_there_is_one_look_and_changes_still_count() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.route_mode(Mode::Watch { refresh: Duration::ZERO });
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.pass(3 * REFRESH).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.reachable("b").await;
    assert_eq!(world.route_calls()["list-routes"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_does_not_answer_holds_up_no_other() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.route_only();
    for (config, cloud) in &mut world.clouds {
        config.routes.max_parallel = 1;
        for number in 0..21 {
            let name = format!("n{number}");
            cloud.add(machine(&name, &format!("id-{name}"), &["I10.0.0.1"])).unwrap();
        }
    }
    world.clouds[0].1.inject(FaultSpec::always(Fault::Hanging).on("create-route"));
    for number in 0..21 {
        let cloud = if number < 20 { "east" } else { "west" };
        let spec = json!({"taints": null, "providerID": format!("{cloud}://id-n{number}")});
        world.join_with(&format!("n{number}"), spec, &[&format!("10.120.{number}.0/24")]).await;
    }
    world.start();
    world.pass(WHILE).await;
    assert_eq!(network(&world.node("n20").await).map(|told| told.0).as_deref(), Some("False"));
    world.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_meets_conflicts_is_made_again_at_once_and_nobody_is_told() {
    // ROUTE-9: five attempts.
    let mut world = World::with_routes(&["a"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(409)).on("create-route").times(4));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    let calls = world.route_calls();
    assert_eq!((calls["create-route"], calls["list-routes"]), (5, 1));
    assert!(world.route_events("a").await.is_empty());
}

// ---- the brake

#[tokio::test(start_paused = true)]
async fn a_confirmation_does_not_outlive_the_return_of_the_nodes() {
    let mut world = with_machines(30).await;
    world.join_many(0..30).await;
    world.start();
    for name in names(30) {
        world.reachable(&name).await;
    }
    let lose = async || {
        for number in 10..30 {
            world.delete(&format!("n{number}")).await;
        }
    };
    lose().await;
    world.pass(WHILE).await;
    assert_eq!(world.led().len(), 30, "confirmed once");
    world.join_many(10..30).await;
    world.pass(REFRESH).await;
    lose().await;
    world.pass(WHILE).await;
    assert_eq!(world.led().len(), 30, "it counts from the beginning");
    world.pass(2 * WHILE).await;
    assert_eq!(world.led().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_back_one_by_one_into_an_empty_cluster_find_their_routes() {
    let mut world = with_machines(6).await;
    for number in 0..6 {
        world.lead(&format!("10.120.{number}.0/24"), &format!("n{number}"));
    }
    world.start();
    world.pass(WHILE).await;
    for number in 0..5 {
        world.join_many(number..number + 1).await;
        world.pass(Duration::from_secs(8)).await;
    }
    assert_eq!(world.led().len(), 6);
    assert_eq!(world.route_calls().get("delete-route"), None);
    world.pass(3 * WHILE).await;
    assert_eq!(world.led().len(), 5, "who has not come by then is gone");
}

// ---- what is told of calls that fail

#[tokio::test(start_paused = true)]
async fn each_range_of_a_node_has_its_own_word_and_says_it_once() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.join_with_ranges("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.start();
    world.network("a", "True", "NoRouteCreated").await;
    world.pass(WHILE).await;
    let said = async || world.route_events("a").await.iter().map(|event| event.count.unwrap_or(1)).sum::<i32>();
    assert_eq!(said().await, 2, "one for each range, however often they are tried");
    world.cloud().repair(fault);
    world.reachable("a").await;
    // After a success the same is news again.
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    for route in world.cloud().routes("kubernetes") {
        world.cloud().remove_route("kubernetes", &route.id).unwrap();
    }
    world.pass(REFRESH).await;
    assert_eq!(said().await, 4);
    world.cloud().repair(fault);
    world.reachable("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_family_that_the_cloud_cannot_lead_is_told_and_the_other_is_led() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.clouds[0].0.routes.ip_families = vec![IpFamily::IPv4];
    world.join_with_ranges("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.start();
    world.network("a", "True", "NoRouteCreated").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    world.pass(3 * REFRESH).await;
    let events = world.route_events("a").await;
    let messages: Vec<&str> = events.iter().filter_map(|event| event.message.as_deref()).collect();
    assert_eq!((messages.len(), events[0].count), (1, Some(1)), "{messages:?}");
    assert!(messages[0].contains("a00:100::/24"), "{messages:?}");
    assert_eq!(world.route_calls()["create-route"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_route_too_many_is_told_with_advice_and_tried_again_without_another_look() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.clouds[0].0.routes.max_routes = Some(1);
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.network("b", "True", "NoRouteCreated").await;
    let message = world.route_events("b").await[0].message.clone().unwrap();
    assert!(message.contains(". Raise the account's quota, or free some of it"), "{message}");
    world.pass(Duration::from_secs(60)).await;
    let calls = world.route_calls();
    assert!(calls["create-route"] > 3, "{calls:?}");
    assert_eq!(calls["list-routes"], 1, "that it was not made is beyond doubt");
    world.delete("a").await;
    world.reachable("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_is_the_answer_to_all_who_waited_for_it() {
    let mut world = with_machines(40).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_millis(500))).on("list-routes"));
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("list-routes"));
    world.start();
    world.pass(MOMENT).await;
    world.join_many(0..40).await;
    world.pass(Duration::from_secs(20)).await;
    let calls = world.route_calls();
    assert!(calls["list-routes"] < 30, "{calls:?}");
    world.cloud().repair(fault);
    for name in names(40) {
        world.reachable(&name).await;
    }
}

/// Has a fault that nobody thought of.
struct Panicking(Arc<dyn CloudProvider>);

#[async_trait]
impl OneRoutePerCall for Panicking {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.0.routes().expect("the local cloud has routes").list(cluster).await
    }

    async fn create_route(&self, _: &ClusterName, _: &RouteSpec) -> Result<Route> {
        panic!("as the story has it")
    }

    async fn delete_route(&self, _: &ClusterName, _: &Route) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_ends_the_manager_rather_than_all_further_checks() {
    let mut world = World::with_routes(&["a"]).await;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.wrap = Box::new(|inner| Wrapped::routes(inner.clone(), Panicking(inner)));
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    let ended = tokio::time::timeout(WHILE, world.end()).await.expect("it ends");
    assert!(ended.is_err());
}

/// Refuses to make routes, until it is told otherwise.
struct Refusing {
    inner: Arc<dyn CloudProvider>,
    kind: ErrorKind,
    is_over: Arc<AtomicBool>,
}

impl Refusing {
    fn routes(&self) -> &dyn Routes {
        self.inner.routes().expect("the local cloud has routes")
    }
}

#[async_trait]
impl OneRoutePerCall for Refusing {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.routes().list(cluster).await
    }

    async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        if self.is_over.load(Ordering::Relaxed) {
            return self.routes().create(cluster, std::slice::from_ref(route)).await.remove(0);
        }
        Err(Error::new(self.kind, "create route", "as the story has it"))
    }

    async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        self.routes().delete(cluster, std::slice::from_ref(route)).await.remove(0)
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_kind_of_error_a_creation_ends_with_the_node_is_told_and_led_to_when_it_is_over() {
    use ErrorKind::*;
    // Whether an Event tells it, and what the condition says meanwhile.
    let kinds = [
        (NotFound, true, Some("True")),
        (AlreadyExists, true, Some("True")),
        (Conflict, true, Some("True")),
        (RateLimited, true, Some("True")),
        (QuotaExceeded, true, Some("True")),
        (Unauthenticated, true, Some("True")),
        (PermissionDenied, true, Some("True")),
        (InvalidConfig, true, Some("True")),
        (Unsupported, true, Some("True")),
        (Unavailable, true, Some("True")),
        (Unexpected, true, Some("True")),
        // It is on its way, which is no failure.
        (InProgress, false, Some("True")),
        // We gave up, which says nothing about the cloud.
        (Cancelled, false, None),
        // A success without a result.
        (ImplementedElsewhere, false, Some("False")),
    ];
    for (kind, is_current, status) in kinds {
        let mut world = World::with_routes(&["a"]).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let switch = is_over.clone();
        world.wrap = Box::new(move |inner| {
            let refusing = Refusing { inner: inner.clone(), kind, is_over: switch.clone() };
            Wrapped::routes(inner, refusing)
        });
        world.join_with_ranges("a", &["10.120.0.0/24"]).await;
        world.start();
        world.pass(WHILE).await;
        let events = world.route_events("a").await;
        assert_eq!(events.len(), usize::from(is_current), "{kind:?}");
        assert!(events.iter().all(|event| event.count == Some(1)), "{kind:?}");
        if matches!(kind, Unavailable | NotFound) {
            // Exactly as the Go manager says it, where there is nothing to advise.
            let message = events[0].message.as_deref().unwrap();
            assert!(message.ends_with(": create route: as the story has it"), "{message}");
        }
        assert_eq!(network(&world.node("a").await).map(|told| told.0).as_deref(), status, "{kind:?}");
        is_over.store(true, Ordering::Relaxed);
        world.pass(REFRESH).await;
        world.reachable("a").await;
        assert_eq!(world.led(), ["10.120.0.0/24 a"], "{kind:?}");
        world.stop().await;
    }
}

// ---- whatever happens

/// One of a few ranges that no Node has.
async fn free_range(world: &World, chance: &mut fastrand::Rng) -> String {
    let nodes = world.nodes.list(&Default::default()).await.unwrap().items;
    let taken: Vec<String> = nodes.into_iter().filter_map(|node| node.spec?.pod_cidr).collect();
    let all = (0..4).map(|number| format!("10.120.{number}.0/24"));
    chance.choice(all.filter(|range| !taken.contains(range)).collect::<Vec<_>>()).unwrap()
}

/// Nodes come, go, and come back at once with another range, while calls are slow, fail, or lose their answer. No check makes
/// good what was missed: each Node that is there in the end is led to, and no other.
#[tokio::test(start_paused = true)]
async fn nothing_that_happens_while_a_call_is_under_way_waits_for_the_next_check() {
    for seed in 0..12 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut world = with_machines(4).await;
        world.calls.max_attempts = 1;
        world.route_mode(Mode::Watch { refresh: Duration::ZERO });
        for call in ["create-route", "delete-route", "list-routes"] {
            world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_secs(3))).on(call).probability(0.8));
            world.cloud().inject(FaultSpec::always(BROKEN).on(call).probability(0.1));
            world.cloud().inject(FaultSpec::always(Fault::AnswerLost).on(call).probability(0.1));
        }
        world.join_with_ranges("n0", &["10.120.0.0/24"]).await;
        world.start();
        world.reachable("n0").await;
        for _ in 0..8 {
            let name = format!("n{}", chance.usize(1..4));
            let is_there = world.get(&name).await.is_some();
            if is_there {
                world.delete(&name).await;
            }
            if !is_there || chance.bool() {
                let range = free_range(&world, &mut chance).await;
                world.join_with_ranges(&name, &[&range]).await;
            }
            world.pass(Duration::from_millis(chance.u64(..4000))).await;
        }
        // Longer than the longest wait for another try.
        world.pass(Duration::from_secs(1000)).await;
        let nodes = world.nodes.list(&Default::default()).await.unwrap().items;
        let mut expected = Vec::new();
        for node in &nodes {
            let (name, range) = (node.metadata.name.as_ref().unwrap(), node.spec.as_ref().unwrap().pod_cidr.as_ref());
            expected.push(format!("{} {name}", range.unwrap()));
            assert_eq!(network(node), Some(("False".into(), "RouteCreated".into())), "seed {seed}: {name}");
        }
        expected.sort();
        assert_eq!(world.led(), expected, "seed {seed}");
        world.stop().await;
    }
}
