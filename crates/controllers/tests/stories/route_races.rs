//! Routes of Nodes that change during a cloud call, and Events of failed calls.

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

use crate::routes::{REFRESH, SETTLE, network_condition};
use crate::test_providers::Wrapped;
use crate::world::{World, machine};

const BROKEN: Fault = Fault::Failing(500);

const SLOW: Fault = Fault::Slow(Duration::from_secs(5));

/// Long enough for a call to begin, and too short for it to end.
const MOMENT: Duration = Duration::from_secs(2);

impl World {
    /// Events about failed routes of this Node.
    async fn route_events(&self, name: &str) -> Vec<Event> {
        let is_meant = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some("FailedToCreateRoute")
        };
        self.events().await.into_iter().filter(is_meant).collect()
    }

    /// Adds Nodes `n0`, `n1`, … with a machine and a pod CIDR each.
    async fn join_many(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.join_with_cidrs(&format!("n{number}"), &[&format!("10.120.{number}.0/24")]).await;
        }
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

async fn with_machines(count: usize) -> World {
    World::with_routes(&names(count).iter().map(String::as_str).collect::<Vec<_>>()).await
}

// ---- Nodes that are added and deleted during a call

#[tokio::test(start_paused = true)]
async fn a_node_recreated_during_the_deletion_of_its_route_gets_a_new_one() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.wait_until_reachable("b").await;
    world.cloud().inject(FaultSpec::always(SLOW).on("delete-route"));
    world.delete("a").await;
    world.eventually("its route is being deleted", async || world.route_calls().get("delete-route").copied()).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.sleep(SETTLE).await;
    world.wait_until_reachable("a").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a", "10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_route_created_during_the_deletion_of_its_node_is_deleted() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.start();
    world.wait_until_reachable("b").await;
    world.cloud().inject(FaultSpec::always(SLOW).on("create-route"));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world
        .eventually("its route is being created", async || (world.route_calls()["create-route"] == 2).then_some(()))
        .await;
    world.delete("a").await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.1.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_recreated_on_another_machine_gets_a_route_to_it() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.cloud().delete("id-a").unwrap();
    world.cloud().add(machine("a", "id-new", &["I10.0.0.1"])).unwrap();
    world.delete("a").await;
    let spec = json!({"taints": null, "providerID": "local://id-new"});
    world.join_with("a", spec, &["10.120.0.0/24"]).await;
    world.sleep(SETTLE).await;
    world.wait_until_reachable("a").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 new"]);
}

#[tokio::test(start_paused = true)]
async fn pod_cidrs_added_during_a_route_deletion_are_not_reported_as_routed() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_cidrs("a", &[]).await;
    world.create_route_by_hand("10.120.9.0/24", "a");
    world.cloud().inject(FaultSpec::always(SLOW).on("delete-route"));
    world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.start();
    world.eventually("the route is being deleted", async || world.route_calls().get("delete-route").copied()).await;
    world.patch("a", json!({"spec": {"podCIDR": "10.120.0.0/24", "podCIDRs": ["10.120.0.0/24"]}})).await;
    let before = world.node_writes()["patch status"];
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    assert_eq!(world.node_writes()["patch status"], before + 1, "no other condition was written in between");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_unmanaged_meanwhile_gets_no_condition() {
    let mut world = World::with_routes(&["a"]).await;
    world.cloud().inject(FaultSpec::always(SLOW).on("create-route"));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.eventually("its route is being created", async || world.route_calls().get("create-route").copied()).await;
    world.patch("a", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.sleep(SETTLE).await;
    assert_eq!(network_condition(&world.node("a").await), None);
}

#[tokio::test(start_paused = true)]
async fn shutdown_begins_no_further_deletion() {
    let mut world = with_machines(40).await;
    world.clouds[0].0.routes.max_parallel = 2;
    world.options.route.as_mut().unwrap().max_share = 1.0;
    for number in 0..40 {
        world.create_route_by_hand(&format!("10.120.{number}.0/24"), &format!("n{number}"));
    }
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_millis(100))).on("delete-route"));
    world.start();
    world.eventually("routes are being deleted", async || world.route_calls().get("delete-route").copied()).await;
    world.stop().await;
    let deleted = world.route_calls()["delete-route"];
    assert_eq!(world.routes().len(), 40 - deleted as usize, "deletions in progress are finished");
    assert!(deleted < 40, "{deleted}");
}

#[tokio::test(start_paused = true)]
async fn in_periodic_mode_an_overlong_run_is_followed_by_the_next_at_once() {
    // ROUTE-2: a run of 25 s with a period of 10 s.
    let mut world = World::with_routes(&["a"]).await;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_secs(25))).on("create-route").times(1));
    world.start();
    world.sleep(Duration::from_secs(24)).await;
    assert_eq!(world.route_calls()["list-routes"], 1);
    world.sleep(Duration::from_secs(3)).await;
    assert_eq!(world.route_calls()["list-routes"], 2);
    world.sleep(Duration::from_secs(10)).await;
    assert_eq!(world.route_calls()["list-routes"], 3);
}

#[tokio::test(start_paused = true)]
async fn without_a_refresh_period_there_is_one_listing_and_changes_are_still_synced() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.route_mode(Mode::Watch { refresh: Duration::ZERO });
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.sleep(3 * REFRESH).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.wait_until_reachable("b").await;
    assert_eq!(world.route_calls()["list-routes"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_does_not_respond_blocks_no_other() {
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
    world.sleep(SETTLE).await;
    assert_eq!(network_condition(&world.node("n20").await).map(|(status, _)| status).as_deref(), Some("False"));
    world.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_meets_conflicts_is_retried_at_once_and_not_reported() {
    // ROUTE-9: five attempts.
    let mut world = World::with_routes(&["a"]).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(409)).on("create-route").times(4));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    let calls = world.route_calls();
    assert_eq!((calls["create-route"], calls["list-routes"]), (5, 1));
    assert!(world.route_events("a").await.is_empty());
}

// ---- the brake

#[tokio::test(start_paused = true)]
async fn a_confirmation_is_reset_when_the_nodes_return() {
    let mut world = with_machines(30).await;
    world.join_many(0..30).await;
    world.start();
    for name in names(30) {
        world.wait_until_reachable(&name).await;
    }
    let lose = async || {
        for number in 10..30 {
            world.delete(&format!("n{number}")).await;
        }
    };
    lose().await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes().len(), 30, "confirmed once");
    world.join_many(10..30).await;
    world.sleep(REFRESH).await;
    lose().await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes().len(), 30, "the confirmation starts over");
    world.sleep(2 * SETTLE).await;
    assert_eq!(world.routes().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_return_one_by_one_to_an_empty_cluster_keep_their_routes() {
    let mut world = with_machines(6).await;
    for number in 0..6 {
        world.create_route_by_hand(&format!("10.120.{number}.0/24"), &format!("n{number}"));
    }
    world.start();
    world.sleep(SETTLE).await;
    for number in 0..5 {
        world.join_many(number..number + 1).await;
        world.sleep(Duration::from_secs(8)).await;
    }
    assert_eq!(world.routes().len(), 6);
    assert_eq!(world.route_calls().get("delete-route"), None);
    world.sleep(3 * SETTLE).await;
    assert_eq!(world.routes().len(), 5, "nodes that have not returned by then count as deleted");
}

// ---- reports of failed calls

#[tokio::test(start_paused = true)]
async fn each_pod_cidr_of_a_node_is_reported_once() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    world.join_with_cidrs("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.start();
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    world.sleep(SETTLE).await;
    let said = async || world.route_events("a").await.iter().map(|event| event.count.unwrap_or(1)).sum::<i32>();
    assert_eq!(said().await, 2, "one for each pod CIDR, despite retries");
    world.cloud().repair(fault);
    world.wait_until_reachable("a").await;
    // After a success, the same failure is new.
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("create-route"));
    for route in world.cloud().routes("kubernetes") {
        world.cloud().remove_route("kubernetes", &route.id).unwrap();
    }
    world.sleep(REFRESH).await;
    assert_eq!(said().await, 4);
    world.cloud().repair(fault);
    world.wait_until_reachable("a").await;
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_ip_family_is_reported_and_the_other_gets_a_route() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.clouds[0].0.routes.ip_families = vec![IpFamily::IPv4];
    world.join_with_cidrs("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.start();
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    world.sleep(3 * REFRESH).await;
    let events = world.route_events("a").await;
    let messages: Vec<&str> = events.iter().filter_map(|event| event.message.as_deref()).collect();
    assert_eq!((messages.len(), events[0].count), (1, Some(1)), "{messages:?}");
    assert!(messages[0].contains("a00:100::/24"), "{messages:?}");
    assert_eq!(world.route_calls()["create-route"], 1);
}

#[tokio::test(start_paused = true)]
async fn an_exceeded_route_quota_is_reported_with_advice_and_retried_without_a_listing() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.clouds[0].0.routes.max_routes = Some(1);
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.wait_for_condition("b", "True", "NoRouteCreated").await;
    let message = world.route_events("b").await[0].message.clone().unwrap();
    assert!(message.contains(". Raise the account's quota or free some of it"), "{message}");
    world.sleep(Duration::from_secs(60)).await;
    let calls = world.route_calls();
    assert!(calls["create-route"] > 3, "{calls:?}");
    assert_eq!(calls["list-routes"], 1, "the outcome of a rejected creation is known");
    world.delete("a").await;
    world.wait_until_reachable("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_listing_fails_all_syncs_that_waited_for_it() {
    let mut world = with_machines(40).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(Fault::Slow(Duration::from_millis(500))).on("list-routes"));
    let fault = world.cloud().inject(FaultSpec::always(BROKEN).on("list-routes"));
    world.start();
    world.sleep(MOMENT).await;
    world.join_many(0..40).await;
    world.sleep(Duration::from_secs(20)).await;
    let calls = world.route_calls();
    assert!(calls["list-routes"] < 30, "{calls:?}");
    world.cloud().repair(fault);
    for name in names(40) {
        world.wait_until_reachable(&name).await;
    }
}

/// Routes whose creation panics.
struct Panicking(Arc<dyn CloudProvider>);

#[async_trait]
impl OneRoutePerCall for Panicking {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.0.routes().expect("the local cloud has routes").list(cluster).await
    }

    async fn create_route(&self, _: &ClusterName, _: &RouteSpec) -> Result<Route> {
        panic!("injected fault")
    }

    async fn delete_route(&self, _: &ClusterName, _: &Route) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_ends_the_manager() {
    let mut world = World::with_routes(&["a"]).await;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.wrap = Box::new(|inner| Wrapped::routes(inner.clone(), Panicking(inner)));
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    let ended = tokio::time::timeout(SETTLE, world.end()).await.expect("it ends");
    assert!(ended.is_err());
}

/// Routes whose creation fails until the flag is cleared.
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
        Err(Error::new(self.kind, "create route", "injected fault"))
    }

    async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        self.routes().delete(cluster, std::slice::from_ref(route)).await.remove(0)
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_creation_error_is_reported_and_retried() {
    use ErrorKind::*;
    // Whether an Event is emitted, and the status of the condition meanwhile.
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
        // In progress is no failure.
        (InProgress, false, Some("True")),
        // A cancellation says nothing about the cloud.
        (Cancelled, false, None),
        // A success without a route.
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
        world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
        world.start();
        world.sleep(SETTLE).await;
        let events = world.route_events("a").await;
        assert_eq!(events.len(), usize::from(is_current), "{kind:?}");
        assert!(events.iter().all(|event| event.count == Some(1)), "{kind:?}");
        if matches!(kind, Unavailable | NotFound) {
            // Exactly upstream's message, for kinds without advice.
            let message = events[0].message.as_deref().unwrap();
            assert!(message.ends_with(": create route: injected fault"), "{message}");
        }
        assert_eq!(network_condition(&world.node("a").await).map(|(status, _)| status).as_deref(), status, "{kind:?}");
        is_over.store(true, Ordering::Relaxed);
        world.sleep(REFRESH).await;
        world.wait_until_reachable("a").await;
        assert_eq!(world.routes(), ["10.120.0.0/24 a"], "{kind:?}");
        world.stop().await;
    }
}

// ---- random changes

/// Returns a random pod CIDR that no Node has.
async fn free_range(world: &World, chance: &mut fastrand::Rng) -> String {
    let nodes = world.nodes.list(&Default::default()).await.unwrap().items;
    let taken: Vec<String> = nodes.into_iter().filter_map(|node| node.spec?.pod_cidr).collect();
    let all = (0..4).map(|number| format!("10.120.{number}.0/24"));
    chance.choice(all.filter(|range| !taken.contains(range)).collect::<Vec<_>>()).unwrap()
}

/// Nodes are added, deleted and recreated with another pod CIDR while calls are slow, fail, or lose their response. No refresh
/// repairs missed changes: in the end each existing Node has its route, and there are no others.
#[tokio::test(start_paused = true)]
async fn no_change_during_a_call_waits_for_the_next_refresh() {
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
        world.join_with_cidrs("n0", &["10.120.0.0/24"]).await;
        world.start();
        world.wait_until_reachable("n0").await;
        for _ in 0..8 {
            let name = format!("n{}", chance.usize(1..4));
            let is_there = world.get(&name).await.is_some();
            if is_there {
                world.delete(&name).await;
            }
            if !is_there || chance.bool() {
                let range = free_range(&world, &mut chance).await;
                world.join_with_cidrs(&name, &[&range]).await;
            }
            world.sleep(Duration::from_millis(chance.u64(..4000))).await;
        }
        // Longer than the maximum back-off.
        world.sleep(Duration::from_secs(1000)).await;
        let nodes = world.nodes.list(&Default::default()).await.unwrap().items;
        let mut expected = Vec::new();
        for node in &nodes {
            let (name, range) = (node.metadata.name.as_ref().unwrap(), node.spec.as_ref().unwrap().pod_cidr.as_ref());
            expected.push(format!("{} {name}", range.unwrap()));
            assert_eq!(network_condition(node), Some(("False".into(), "RouteCreated".into())), "seed {seed}: {name}");
        }
        expected.sort();
        assert_eq!(world.routes(), expected, "seed {seed}");
        world.stop().await;
    }
}
