//! Routes to the pod CIDRs of Nodes (9.9).

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_apiserver::{Effect, FaultRule};
use bowline_controllers::route::{Mode, Options};
use bowline_kube::Cluster;
use bowline_local::{NewRoute, RouteRecord};
use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{World, machine};

/// Long enough for every sync, and shorter than the refresh period.
pub(crate) const SETTLE: Duration = Duration::from_secs(30);

/// Longer than the refresh period.
pub(crate) const REFRESH: Duration = Duration::from_secs(700);

impl World {
    /// World with the route controller alone, on one cloud with a machine for each name.
    pub(crate) async fn with_routes(machines: &[&str]) -> World {
        let mut world = World::new().await;
        world.route_only();
        machines.iter().for_each(|name| world.add_machine(name));
        world
    }

    pub(crate) fn route_only(&mut self) {
        let cidrs = vec!["10.120.0.0/16".parse().unwrap(), "a00::/8".parse().unwrap()];
        self.options.route = Some(Options::new("kubernetes".into(), cidrs));
        (self.options.node, self.options.node_lifecycle, self.options.service) = (None, None, None);
    }

    pub(crate) fn route_mode(&mut self, mode: Mode) {
        self.options.route.as_mut().unwrap().mode = mode;
    }

    pub(crate) fn add_machine(&self, name: &str) {
        self.cloud().add(machine(name, &format!("id-{name}"), &["I10.0.0.1"])).unwrap();
    }

    /// Registers an initialised Node with these pod CIDRs on the machine of its name.
    pub(crate) async fn join_with_cidrs(&self, name: &str, cidrs: &[&str]) -> Node {
        let spec = json!({"taints": null, "providerID": format!("local://id-{name}")});
        self.join_with(name, spec, cidrs).await
    }

    pub(crate) async fn join_with(&self, name: &str, mut spec: Value, cidrs: &[&str]) -> Node {
        if let Some(first) = cidrs.first() {
            (spec["podCIDR"], spec["podCIDRs"]) = (json!(first), json!(cidrs));
        }
        self.register_with(name, json!({"spec": spec})).await
    }

    /// Routes of the first cloud as `CIDR machine`, by CIDR.
    pub(crate) fn routes(&self) -> Vec<String> {
        self.cloud().routes("kubernetes").iter().map(describe).collect()
    }

    /// Creates a route directly in the cloud.
    pub(crate) fn create_route_by_hand(&self, destination: &str, machine: &str) -> RouteRecord {
        let route = json!({"destination": destination, "machine": format!("id-{machine}")});
        let route: NewRoute = serde_json::from_value(route).unwrap();
        self.cloud().add_route("kubernetes", route).unwrap()
    }

    /// Waits until the Node has the condition NetworkUnavailable with this status and reason.
    pub(crate) async fn wait_for_condition(&self, name: &str, status: &str, reason: &str) {
        let what = format!("{name} has NetworkUnavailable={status} {reason}");
        self.eventually(&what, async || {
            (network_condition(&self.node(name).await) == Some((status.to_owned(), reason.to_owned()))).then_some(())
        })
        .await;
    }

    /// Writes the condition NetworkUnavailable, as another client does.
    pub(crate) async fn set_condition(&self, name: &str, status: &str, reason: &str) {
        let condition =
            json!({"type": "NetworkUnavailable", "status": status, "reason": reason, "message": "set by the test"});
        let patch = json!({"status": {"conditions": [condition]}});
        self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    }

    pub(crate) async fn wait_until_reachable(&self, name: &str) {
        self.wait_for_condition(name, "False", "RouteCreated").await;
    }

    /// Number of route calls to the first cloud, by kind.
    pub(crate) fn route_calls(&self) -> BTreeMap<String, u64> {
        let calls = self.cloud().calls().into_iter();
        calls.filter(|(call, _)| call.contains("route")).collect()
    }

    /// Number of syncs in the metric, by `outcome trigger`.
    pub(crate) fn route_syncs(&self) -> BTreeMap<String, u64> {
        let syncs = self.metric("route_controller_route_sync_total");
        syncs.into_iter().map(|(labels, count)| (labels, count as u64)).collect()
    }
}

pub(crate) fn describe(route: &RouteRecord) -> String {
    let machine = route.spec.machine.trim_start_matches("id-");
    format!("{} {machine}{}", route.spec.destination, if route.blackhole { " (lost)" } else { "" })
}

/// Status and reason of the condition.
pub(crate) fn network_condition(node: &Node) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable")?;
    Some((condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

fn calls(list: u64, create: u64, delete: u64) -> BTreeMap<String, u64> {
    let calls = [("create-route", create), ("delete-route", delete), ("list-routes", list)];
    calls.into_iter().filter(|(_, count)| *count > 0).map(|(call, count)| (call.to_owned(), count)).collect()
}

#[tokio::test(start_paused = true)]
async fn r01_r02_every_pod_cidr_gets_one_route_and_its_node_the_condition() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24", "a00:200::/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.wait_until_reachable("b").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a", "10.120.1.0/24 b", "a00:100::/24 a", "a00:200::/24 b"]);
    assert_eq!(world.route_calls(), calls(1, 4, 0));
    assert_eq!(world.node_writes()["patch status"], 4, "two writes of the kubelets and two of ours");
    let condition = world.node("a").await.status.unwrap().conditions.unwrap().pop().unwrap();
    assert_eq!(condition.message.as_deref(), Some("RouteController created a route"));
    assert_eq!(condition.last_heartbeat_time, condition.last_transition_time);
    assert!(world.events().await.is_empty());
    // R2: a new manager that finds all routes only lists them.
    world.stop().await;
    world.cloud().reset_calls();
    world.start();
    world.sleep(SETTLE).await;
    assert_eq!(world.route_calls(), calls(1, 0, 0));
    assert_eq!(world.node_writes()["patch status"], 4);
    assert_eq!(world.route_syncs(), [("noop periodic".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn r03_r19_a_new_node_costs_its_own_routes_and_no_listing() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.cloud().reset_calls();
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.wait_until_reachable("b").await;
    assert_eq!(world.route_calls(), calls(0, 1, 0));
    // Heartbeats cause no call.
    let (syncs, writes) = (world.route_syncs(), world.node_writes()["patch status"]);
    for _ in 0..5 {
        world.set_ready("b", "True").await;
        world.sleep(Duration::from_secs(10)).await;
    }
    assert_eq!((world.route_calls(), world.route_syncs()), (calls(0, 1, 0), syncs));
    assert_eq!(world.node_writes()["patch status"], writes + 5);
}

#[tokio::test(start_paused = true)]
async fn r04_r05_r26_routes_to_unknown_nodes_are_deleted_and_those_outside_the_cluster_cidr_stay() {
    let mut world = World::with_routes(&["a", "b", "c", "d"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    for (range, machine) in [
        ("10.120.0.0/24", "a"),
        ("10.120.2.0/24", "c"),
        ("10.120.3.0/24", "d"),
        ("192.168.0.0/24", "a"),
        ("192.168.1.0/24", "c"),
        ("10.0.0.0/8", "c"),
    ] {
        world.create_route_by_hand(range, machine);
    }
    world.start();
    world.wait_until_reachable("b").await;
    world.sleep(SETTLE).await;
    assert_eq!(
        world.routes(),
        ["10.0.0.0/8 c", "10.120.0.0/24 a", "10.120.1.0/24 b", "192.168.0.0/24 a", "192.168.1.0/24 c"]
    );
    assert_eq!(world.route_calls(), calls(1, 1, 2));
    assert_eq!(world.route_syncs(), [("changed periodic".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn r06_a_node_without_pod_cidrs_and_routes_is_unchanged() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.join_with_cidrs("b", &[]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.sleep(SETTLE).await;
    assert_eq!(network_condition(&world.node("b").await), None);
    world.patch("b", json!({"spec": {"podCIDR": "10.120.1.0/24", "podCIDRs": ["10.120.1.0/24"]}})).await;
    world.wait_until_reachable("b").await;
    assert_eq!(world.route_calls(), calls(1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_routes_of_a_deleted_node_are_deleted_without_a_listing() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.wait_until_reachable("b").await;
    world.cloud().reset_calls();
    world.delete("a").await;
    world.eventually("its routes are deleted", async || (world.routes().len() == 1).then_some(())).await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.1.0/24 b"]);
    assert_eq!(world.route_calls(), calls(0, 0, 2));
    // The last one, too: one route does not trigger the brake.
    world.delete("b").await;
    world.eventually("no route is left", async || world.routes().is_empty().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn r07_a_route_to_a_deleted_machine_is_deleted_by_the_next_refresh() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.create_route_by_hand("10.120.7.0/24", "b");
    world.cloud().delete("id-b").unwrap();
    assert_eq!(world.routes(), ["10.120.7.0/24 b (lost)"]);
    world.start();
    world.wait_until_reachable("a").await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
}

#[tokio::test(start_paused = true)]
async fn r08_r09_a_node_with_changed_addresses_gets_a_new_route_if_the_cloud_reports_addresses() {
    for reports in [true, false] {
        let mut world = World::with_routes(&["a"]).await;
        world.clouds[0].0.routes.node_addresses = reports;
        world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
        world.start();
        world.wait_until_reachable("a").await;
        let before = world.cloud().routes("kubernetes");
        world.cloud().reset_calls();
        let addresses = json!([{"type": "InternalIP", "address": "10.0.0.9"}]);
        let patch = json!({"status": {"addresses": addresses}});
        world.nodes.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        world.sleep(SETTLE).await;
        let after = world.cloud().routes("kubernetes");
        let expected = if reports { calls(0, 1, 1) } else { calls(0, 0, 0) };
        assert_eq!(world.route_calls(), expected, "R8 if reported, else R9: {reports}");
        assert_eq!(before[0].id != after[0].id, reports);
        assert_eq!(network_condition(&world.node("a").await), Some(("False".into(), "RouteCreated".into())));
    }
}

#[tokio::test(start_paused = true)]
async fn r18_a_foreign_condition_is_overwritten_and_an_unavailable_network_at_once() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.set_condition("a", "False", "CalicoIsUp").await;
    world.start();
    world.wait_until_reachable("a").await;
    // The condition of another network controller is not overwritten all the time.
    for word in ["CalicoIsUp", "FlannelIsUp"] {
        world.set_condition("a", "False", word).await;
        world.sleep(Duration::from_secs(4)).await;
        assert_eq!(network_condition(&world.node("a").await).unwrap().1, word);
    }
    let writes = world.node_writes()["patch status"];
    world.sleep(SETTLE).await;
    assert_eq!(network_condition(&world.node("a").await).unwrap().1, "RouteCreated");
    assert_eq!(world.node_writes()["patch status"], writes + 1);
    // A restarting kubelet sets the condition to True; also with a manager that has not written it yet.
    world.set_condition("a", "True", "NoRouteCreated").await;
    world.wait_until_reachable("a").await;
    world.stop().await;
    world.start();
    world.sleep(SETTLE).await;
    world.set_condition("a", "True", "NoRouteCreated").await;
    world.wait_until_reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 1);
}

#[tokio::test(start_paused = true)]
async fn r21_a_route_to_a_node_without_pod_cidrs_is_deleted_and_the_condition_updated() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &[]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.create_route_by_hand("10.120.0.0/24", "a");
    world.create_route_by_hand("192.168.0.0/24", "b");
    world.start();
    world.wait_for_condition("a", "True", "NoRouteCreated").await;
    world.wait_until_reachable("b").await;
    assert_eq!(world.routes(), ["10.120.1.0/24 b", "192.168.0.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_cidr_that_moves_to_another_node_loses_its_old_route_first() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.cloud().reset_calls();
    world.delete("a").await;
    // At once, before the old route is deleted.
    world.join_with_cidrs("b", &["10.120.0.0/24"]).await;
    world.wait_until_reachable("b").await;
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 b"]);
    assert_eq!(world.route_calls(), calls(0, 1, 1));
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_recreated_on_its_machine_costs_nothing_but_its_condition() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.cloud().reset_calls();
    world.delete("a").await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.wait_until_reachable("a").await;
    world.sleep(SETTLE).await;
    assert_eq!((world.route_calls(), world.routes()), (calls(0, 0, 0), vec!["10.120.0.0/24 a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn manual_changes_of_the_route_table_are_corrected_by_the_next_refresh() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    let route = world.cloud().routes("kubernetes").pop().unwrap();
    world.cloud().remove_route("kubernetes", &route.id).unwrap();
    world.create_route_by_hand("10.120.9.0/24", "b");
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.9.0/24 b"]);
    world.sleep(REFRESH).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    assert_eq!(world.route_calls(), calls(3, 2, 1), "another listing confirms that the route is gone");
}

#[tokio::test(start_paused = true)]
async fn r20_in_periodic_mode_every_period_is_one_listing_and_the_only_trigger() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.sleep(Duration::from_secs(5)).await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"], "the period has not elapsed");
    world.wait_until_reachable("b").await;
    world.sleep(Duration::from_secs(100)).await;
    assert_eq!(world.route_calls()["create-route"], 2);
    let listings = world.route_calls()["list-routes"];
    assert!((11..=12).contains(&listings), "one listing per ten seconds: {listings}");
    let syncs = world.route_syncs();
    assert_eq!(syncs["changed periodic"], 2);
    assert_eq!(syncs["noop periodic"], listings - 2);
    assert_eq!(syncs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn routes_are_created_in_the_cloud_of_the_node_and_foreign_nodes_are_ignored() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.route_only();
    for (_, cloud) in &world.clouds {
        for name in ["e", "w", "n", "u"] {
            cloud.add(machine(name, &format!("id-{name}"), &["I10.0.0.1"])).unwrap();
        }
    }
    let on = |id: &str| json!({"taints": null, "providerID": id});
    world.join_with("e", on("east://id-e"), &["10.120.0.0/24"]).await;
    world.join_with("w", on("west://id-w"), &["10.120.1.0/24"]).await;
    world.join_with("f", on("foreign://id-f"), &["10.120.2.0/24"]).await;
    world.join_with("n", json!({"taints": null}), &["10.120.3.0/24"]).await;
    world.join_with("u", on("east://id-u"), &["10.120.4.0/24"]).await;
    world.patch("u", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.start();
    world.wait_until_reachable("e").await;
    world.wait_until_reachable("w").await;
    world.sleep(REFRESH).await;
    let routes_of = |index: usize| world.clouds[index].1.routes("kubernetes").iter().map(describe).collect::<Vec<_>>();
    assert_eq!((routes_of(0), routes_of(1)), (vec!["10.120.0.0/24 e".to_owned()], vec!["10.120.1.0/24 w".to_owned()]));
    for name in ["f", "n", "u"] {
        assert_eq!(network_condition(&world.node(name).await), None, "{name}");
    }
    // An unmanaged Node keeps its routes, and a Node of no cloud gets its route once it has a provider ID.
    world.patch("n", json!({"spec": {"providerID": "west://id-n"}})).await;
    world.wait_until_reachable("n").await;
    world.patch("e", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.sleep(REFRESH).await;
    assert_eq!((routes_of(0).len(), routes_of(1).len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn with_one_cloud_a_node_without_provider_id_gets_routes_by_its_name() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with("a", json!({"taints": null}), &["10.120.0.0/24"]).await;
    world.start();
    world.wait_until_reachable("a").await;
    assert_eq!(world.routes(), ["10.120.0.0/24 a"]);
    // The provider ID is set later, and changes nothing.
    world.patch("a", json!({"spec": {"providerID": "local://id-a"}})).await;
    world.sleep(REFRESH).await;
    assert_eq!(world.route_calls(), calls(2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_no_route_and_no_condition() {
    let mut world = World::with_routes(&["a", "b"]).await;
    (world.options.dry_run, world.layers.dry_run) = (true, true);
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.create_route_by_hand("10.120.9.0/24", "b");
    world.start();
    world.sleep(SETTLE).await;
    assert_eq!(world.routes(), ["10.120.9.0/24 b"]);
    assert_eq!(world.route_calls(), calls(1, 0, 0));
    assert_eq!(network_condition(&world.node("a").await), None);
}

#[tokio::test(start_paused = true)]
async fn routes_of_another_cluster_with_the_same_name_stay_and_ours_carry_the_uid_of_the_cluster() {
    let mut world = World::with_routes(&["a", "b", "x", "y", "z"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    let marked = |destination: &str, machine: &str, uid: Option<&str>| {
        let route = json!({"destination": destination, "machine": format!("id-{machine}"), "stamped": true,
            "clusterUid": uid});
        world.cloud().add_route("kubernetes", serde_json::from_value(route).unwrap()).unwrap();
    };
    marked("10.120.1.0/24", "x", Some("another cluster"));
    marked("10.120.7.0/24", "y", Some("another cluster"));
    marked("10.120.8.0/24", "z", None);
    world.start();
    world.wait_until_reachable("a").await;
    world.wait_for_condition("b", "True", "NoRouteCreated").await;
    assert!(world.events().await.iter().any(|event| event.reason.as_deref() == Some("FailedToCreateRoute")));
    world.sleep(REFRESH).await;
    assert_eq!(
        world.routes(),
        ["10.120.0.0/24 a", "10.120.1.0/24 x", "10.120.7.0/24 y"],
        "a route without a UID counted as ours"
    );
    let uid = Cluster::new(world.server.in_process_client()).uid().await.unwrap();
    assert!(uid.is_some());
    assert_eq!(world.cloud().routes("kubernetes")[0].spec.cluster_uid, uid);
}

#[tokio::test(start_paused = true)]
async fn a_manager_without_permission_to_read_the_cluster_uid_creates_routes_without_it() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.server.faults().add(FaultRule {
        resource: Some("namespaces".into()),
        effect: Effect::Status { code: StatusCode::FORBIDDEN, message: "no".into(), retry_after: None },
        ..FaultRule::default()
    });
    world.start();
    world.wait_until_reachable("a").await;
    assert_eq!(world.cloud().routes("kubernetes")[0].spec.cluster_uid, None);
}
