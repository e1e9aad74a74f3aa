//! Nodes whose pod ranges are led to them (9.9).

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

/// Long enough for anything that is going to happen without another look at the cloud.
pub(crate) const WHILE: Duration = Duration::from_secs(30);

/// Longer than the pause between two looks at the cloud.
pub(crate) const REFRESH: Duration = Duration::from_secs(700);

impl World {
    /// The route controller alone, on one cloud with a machine for each name.
    pub(crate) async fn with_routes(machines: &[&str]) -> World {
        let mut world = World::new().await;
        world.route_only();
        machines.iter().for_each(|name| world.add_machine(name));
        world
    }

    pub(crate) fn route_only(&mut self) {
        let ranges = vec!["10.120.0.0/16".parse().unwrap(), "a00::/8".parse().unwrap()];
        self.options.route = Some(Options::new("kubernetes".into(), ranges));
        (self.options.node, self.options.node_lifecycle, self.options.service) = (None, None, None);
    }

    pub(crate) fn route_mode(&mut self, mode: Mode) {
        self.options.route.as_mut().unwrap().mode = mode;
    }

    pub(crate) fn add_machine(&self, name: &str) {
        self.cloud().add(machine(name, &format!("id-{name}"), &["I10.0.0.1"])).unwrap();
    }

    /// A Node past initialisation, on the machine of its name, with these pod ranges.
    pub(crate) async fn join_with_ranges(&self, name: &str, ranges: &[&str]) -> Node {
        let spec = json!({"taints": null, "providerID": format!("local://id-{name}")});
        self.join_with(name, spec, ranges).await
    }

    pub(crate) async fn join_with(&self, name: &str, mut spec: Value, ranges: &[&str]) -> Node {
        if let Some(first) = ranges.first() {
            (spec["podCIDR"], spec["podCIDRs"]) = (json!(first), json!(ranges));
        }
        self.register_with(name, json!({"spec": spec})).await
    }

    /// The routes of the first cloud: `range machine`, by range.
    pub(crate) fn led(&self) -> Vec<String> {
        self.cloud().routes("kubernetes").iter().map(told).collect()
    }

    /// A route that somebody made by hand.
    pub(crate) fn lead(&self, destination: &str, machine: &str) -> RouteRecord {
        let route = json!({"destination": destination, "machine": format!("id-{machine}")});
        let route: NewRoute = serde_json::from_value(route).unwrap();
        self.cloud().add_route("kubernetes", route).unwrap()
    }

    /// Waits until the Node's condition says this.
    pub(crate) async fn network(&self, name: &str, status: &str, reason: &str) {
        let what = format!("{name} says NetworkUnavailable={status} {reason}");
        self.eventually(&what, async || {
            (network(&self.node(name).await) == Some((status.to_owned(), reason.to_owned()))).then_some(())
        })
        .await;
    }

    /// Somebody else says this in the condition.
    pub(crate) async fn say_network(&self, name: &str, status: &str, reason: &str) {
        let condition = json!({"type": "NetworkUnavailable", "status": status, "reason": reason, "message": "said"});
        let patch = json!({"status": {"conditions": [condition]}});
        self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    }

    pub(crate) async fn reachable(&self, name: &str) {
        self.network(name, "False", "RouteCreated").await;
    }

    /// How often the first cloud was asked for this.
    pub(crate) fn route_calls(&self) -> BTreeMap<String, u64> {
        let calls = self.cloud().calls().into_iter();
        calls.filter(|(call, _)| call.contains("route")).collect()
    }

    /// What the metric of passes says: `outcome trigger` and how often.
    pub(crate) fn route_syncs(&self) -> BTreeMap<String, u64> {
        let syncs = self.metric("route_controller_route_sync_total");
        syncs.into_iter().map(|(labels, count)| (labels, count as u64)).collect()
    }
}

pub(crate) fn told(route: &RouteRecord) -> String {
    let machine = route.spec.machine.trim_start_matches("id-");
    format!("{} {machine}{}", route.spec.destination, if route.blackhole { " (lost)" } else { "" })
}

/// Status and reason of the condition.
pub(crate) fn network(node: &Node) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable")?;
    Some((condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

fn calls(list: u64, create: u64, delete: u64) -> BTreeMap<String, u64> {
    let calls = [("create-route", create), ("delete-route", delete), ("list-routes", list)];
    calls.into_iter().filter(|(_, count)| *count > 0).map(|(call, count)| (call.to_owned(), count)).collect()
}

#[tokio::test(start_paused = true)]
async fn r01_r02_every_range_is_led_to_its_node_once_and_the_node_is_told() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24", "a00:200::/24"]).await;
    world.start();
    world.reachable("a").await;
    world.reachable("b").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 b", "a00:100::/24 a", "a00:200::/24 b"]);
    assert_eq!(world.route_calls(), calls(1, 4, 0));
    assert_eq!(world.node_writes()["patch status"], 4, "the kubelets' two and ours");
    let condition = world.node("a").await.status.unwrap().conditions.unwrap().pop().unwrap();
    assert_eq!(condition.message.as_deref(), Some("RouteController created a route"));
    assert_eq!(condition.last_heartbeat_time, condition.last_transition_time);
    assert!(world.events().await.is_empty());
    // R2: a manager that finds all of it does nothing but look.
    world.stop().await;
    world.cloud().reset_calls();
    world.start();
    world.pass(WHILE).await;
    assert_eq!(world.route_calls(), calls(1, 0, 0));
    assert_eq!(world.node_writes()["patch status"], 4);
    assert_eq!(world.route_syncs(), [("noop periodic".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn r03_r19_a_node_that_comes_costs_its_own_routes_and_no_listing() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.cloud().reset_calls();
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.reachable("b").await;
    assert_eq!(world.route_calls(), calls(0, 1, 0));
    // Heartbeats cost nothing at all.
    let (syncs, writes) = (world.route_syncs(), world.node_writes()["patch status"]);
    for _ in 0..5 {
        world.set_ready("b", "True").await;
        world.pass(Duration::from_secs(10)).await;
    }
    assert_eq!((world.route_calls(), world.route_syncs()), (calls(0, 1, 0), syncs));
    assert_eq!(world.node_writes()["patch status"], writes + 5);
}

#[tokio::test(start_paused = true)]
async fn r04_r05_r26_routes_to_unknown_nodes_go_and_those_of_other_ranges_stay() {
    let mut world = World::with_routes(&["a", "b", "c", "d"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    for (range, machine) in [
        ("10.120.0.0/24", "a"),
        ("10.120.2.0/24", "c"),
        ("10.120.3.0/24", "d"),
        ("192.168.0.0/24", "a"),
        ("192.168.1.0/24", "c"),
        ("10.0.0.0/8", "c"),
    ] {
        world.lead(range, machine);
    }
    world.start();
    world.reachable("b").await;
    world.pass(WHILE).await;
    assert_eq!(
        world.led(),
        ["10.0.0.0/8 c", "10.120.0.0/24 a", "10.120.1.0/24 b", "192.168.0.0/24 a", "192.168.1.0/24 c"]
    );
    assert_eq!(world.route_calls(), calls(1, 1, 2));
    assert_eq!(world.route_syncs(), [("changed periodic".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn r06_a_node_without_ranges_and_routes_is_left_alone_until_it_has_ranges() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.join_with_ranges("b", &[]).await;
    world.start();
    world.reachable("a").await;
    world.pass(WHILE).await;
    assert_eq!(network(&world.node("b").await), None);
    world.patch("b", json!({"spec": {"podCIDR": "10.120.1.0/24", "podCIDRs": ["10.120.1.0/24"]}})).await;
    world.reachable("b").await;
    assert_eq!(world.route_calls(), calls(1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_takes_its_routes_with_it_without_a_listing() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24", "a00:100::/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.reachable("b").await;
    world.cloud().reset_calls();
    world.delete("a").await;
    world.eventually("its routes are gone", async || (world.led().len() == 1).then_some(())).await;
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.1.0/24 b"]);
    assert_eq!(world.route_calls(), calls(0, 0, 2));
    // The last one, too: one route is not many.
    world.delete("b").await;
    world.eventually("no route is left", async || world.led().is_empty().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn r07_a_route_whose_machine_is_gone_goes_with_the_next_look_and_not_with_the_machine() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.lead("10.120.7.0/24", "b");
    world.cloud().delete("id-b").unwrap();
    assert_eq!(world.led(), ["10.120.7.0/24 b (lost)"]);
    world.start();
    world.reachable("a").await;
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
}

#[tokio::test(start_paused = true)]
async fn r08_r09_a_node_whose_addresses_change_gets_its_route_anew_where_the_cloud_tells_addresses() {
    for tells in [true, false] {
        let mut world = World::with_routes(&["a"]).await;
        world.clouds[0].0.routes.node_addresses = tells;
        world.join_with_ranges("a", &["10.120.0.0/24"]).await;
        world.start();
        world.reachable("a").await;
        let before = world.cloud().routes("kubernetes");
        world.cloud().reset_calls();
        let addresses = json!([{"type": "InternalIP", "address": "10.0.0.9"}]);
        let patch = json!({"status": {"addresses": addresses}});
        world.nodes.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        world.pass(WHILE).await;
        let after = world.cloud().routes("kubernetes");
        let expected = if tells { calls(0, 1, 1) } else { calls(0, 0, 0) };
        assert_eq!(world.route_calls(), expected, "R8 if told, else R9: {tells}");
        assert_eq!(before[0].id != after[0].id, tells);
        assert_eq!(network(&world.node("a").await), Some(("False".into(), "RouteCreated".into())));
    }
}

#[tokio::test(start_paused = true)]
async fn r18_another_networks_word_is_written_over_and_a_lost_network_at_once() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.say_network("a", "False", "CalicoIsUp").await;
    world.start();
    world.reachable("a").await;
    // Another network is not argued with all the time.
    for word in ["CalicoIsUp", "FlannelIsUp"] {
        world.say_network("a", "False", word).await;
        world.pass(Duration::from_secs(4)).await;
        assert_eq!(network(&world.node("a").await).unwrap().1, word);
    }
    let writes = world.node_writes()["patch status"];
    world.pass(WHILE).await;
    assert_eq!(network(&world.node("a").await).unwrap().1, "RouteCreated");
    assert_eq!(world.node_writes()["patch status"], writes + 1);
    // A kubelet that starts anew says that there is none; also to a manager that has not said anything yet.
    world.say_network("a", "True", "NoRouteCreated").await;
    world.reachable("a").await;
    world.stop().await;
    world.start();
    world.pass(WHILE).await;
    world.say_network("a", "True", "NoRouteCreated").await;
    world.reachable("a").await;
    assert_eq!(world.route_calls()["create-route"], 1);
}

#[tokio::test(start_paused = true)]
async fn r21_a_route_to_a_node_that_has_no_ranges_goes_and_the_node_is_told() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &[]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.lead("10.120.0.0/24", "a");
    world.lead("192.168.0.0/24", "b");
    world.start();
    world.network("a", "True", "NoRouteCreated").await;
    world.reachable("b").await;
    assert_eq!(world.led(), ["10.120.1.0/24 b", "192.168.0.0/24 b"]);
}

#[tokio::test(start_paused = true)]
async fn a_range_that_passes_from_one_node_to_another_is_free_before_it_is_led_anew() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.cloud().reset_calls();
    world.delete("a").await;
    // At once, before anybody has thought of the old route.
    world.join_with_ranges("b", &["10.120.0.0/24"]).await;
    world.reachable("b").await;
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.0.0/24 b"]);
    assert_eq!(world.route_calls(), calls(0, 1, 1));
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_on_its_machine_costs_nothing_but_its_condition() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.cloud().reset_calls();
    world.delete("a").await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.reachable("a").await;
    world.pass(WHILE).await;
    assert_eq!((world.route_calls(), world.led()), (calls(0, 0, 0), vec!["10.120.0.0/24 a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_does_to_the_table_is_seen_with_the_next_look() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    let route = world.cloud().routes("kubernetes").pop().unwrap();
    world.cloud().remove_route("kubernetes", &route.id).unwrap();
    world.lead("10.120.9.0/24", "b");
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.9.0/24 b"]);
    world.pass(REFRESH).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    assert_eq!(world.route_calls(), calls(3, 2, 1), "another listing confirms that the route is gone");
}

#[tokio::test(start_paused = true)]
async fn r20_in_periodic_mode_every_period_is_one_listing_and_nothing_else_is_a_cause() {
    let mut world = World::with_routes(&["a", "b"]).await;
    world.route_mode(Mode::Periodic { period: Duration::from_secs(10) });
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"], "its period has not come");
    world.reachable("b").await;
    world.pass(Duration::from_secs(100)).await;
    assert_eq!(world.route_calls()["create-route"], 2);
    let listings = world.route_calls()["list-routes"];
    assert!((11..=12).contains(&listings), "one each ten seconds: {listings}");
    let syncs = world.route_syncs();
    assert_eq!(syncs["changed periodic"], 2);
    assert_eq!(syncs["noop periodic"], listings - 2);
    assert_eq!(syncs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn routes_are_made_in_the_cloud_that_the_node_is_in_and_others_nodes_are_left_alone() {
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
    world.reachable("e").await;
    world.reachable("w").await;
    world.pass(REFRESH).await;
    let led = |index: usize| world.clouds[index].1.routes("kubernetes").iter().map(told).collect::<Vec<_>>();
    assert_eq!((led(0), led(1)), (vec!["10.120.0.0/24 e".to_owned()], vec!["10.120.1.0/24 w".to_owned()]));
    for name in ["f", "n", "u"] {
        assert_eq!(network(&world.node(name).await), None, "{name}");
    }
    // Whose hands are off keeps what it has, and a Node that nobody knew is led to once it says where it is.
    world.patch("n", json!({"spec": {"providerID": "west://id-n"}})).await;
    world.reachable("n").await;
    world.patch("e", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.pass(REFRESH).await;
    assert_eq!((led(0).len(), led(1).len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn with_one_cloud_a_node_without_an_id_is_led_to_by_its_name() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with("a", json!({"taints": null}), &["10.120.0.0/24"]).await;
    world.start();
    world.reachable("a").await;
    assert_eq!(world.led(), ["10.120.0.0/24 a"]);
    // The ID comes later, and changes nothing.
    world.patch("a", json!({"spec": {"providerID": "local://id-a"}})).await;
    world.pass(REFRESH).await;
    assert_eq!(world.route_calls(), calls(2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_no_route_and_no_condition() {
    let mut world = World::with_routes(&["a", "b"]).await;
    (world.options.dry_run, world.layers.dry_run) = (true, true);
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.lead("10.120.9.0/24", "b");
    world.start();
    world.pass(WHILE).await;
    assert_eq!(world.led(), ["10.120.9.0/24 b"]);
    assert_eq!(world.route_calls(), calls(1, 0, 0));
    assert_eq!(network(&world.node("a").await), None);
}

#[tokio::test(start_paused = true)]
async fn routes_of_another_cluster_with_the_same_name_stay_and_ours_carry_the_uid_of_the_cluster() {
    let mut world = World::with_routes(&["a", "b", "x", "y", "z"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    let marked = |destination: &str, machine: &str, uid: Option<&str>| {
        let route = json!({"destination": destination, "machine": format!("id-{machine}"), "stamped": true,
            "clusterUid": uid});
        world.cloud().add_route("kubernetes", serde_json::from_value(route).unwrap()).unwrap();
    };
    marked("10.120.1.0/24", "x", Some("another cluster"));
    marked("10.120.7.0/24", "y", Some("another cluster"));
    marked("10.120.8.0/24", "z", None);
    world.start();
    world.reachable("a").await;
    world.network("b", "True", "NoRouteCreated").await;
    assert!(world.events().await.iter().any(|event| event.reason.as_deref() == Some("FailedToCreateRoute")));
    world.pass(REFRESH).await;
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 x", "10.120.7.0/24 y"], "without a UID it was ours");
    let uid = Cluster::new(world.server.in_process_client()).uid().await.unwrap();
    assert!(uid.is_some());
    assert_eq!(world.cloud().routes("kubernetes")[0].spec.cluster_uid, uid);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_may_not_read_the_uid_of_the_cluster_creates_routes_without_it() {
    let mut world = World::with_routes(&["a"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.server.faults().add(FaultRule {
        resource: Some("namespaces".into()),
        effect: Effect::Status { code: StatusCode::FORBIDDEN, message: "no".into(), retry_after: None },
        ..FaultRule::default()
    });
    world.start();
    world.reachable("a").await;
    assert_eq!(world.cloud().routes("kubernetes")[0].spec.cluster_uid, None);
}
