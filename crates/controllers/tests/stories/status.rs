//! What can be seen of a manager while it works, and whether it is well.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::{node_ipam, route};
use bowline_core::ipam::ClusterCidr;
use bowline_runtime::Kind;
use serde_json::{Value, json};

use crate::world::World;
use crate::wrappers::{Hanging, Steered};

const MINUTE: Duration = Duration::from_secs(60);

/// Longer than any queue may stand still.
const LONG: Duration = Duration::from_secs(61 * 60);

impl World {
    /// What this part says of itself.
    fn part(&self, kind: Kind, name: &str) -> Value {
        let entry = self.board.entries().into_iter().find(|entry| entry.kind == kind && entry.name == name);
        entry.unwrap_or_else(|| panic!("there is no {kind:?} {name}")).part.status()
    }

    /// What ails, by name.
    fn ailments(&self) -> Vec<String> {
        let entries = self.board.entries().into_iter();
        entries.filter_map(|entry| Some(format!("{}: {}", entry.name, entry.part.health().err()?))).collect()
    }

    pub(crate) fn with_everything(&mut self) {
        let ranges = vec!["10.120.0.0/16".parse().unwrap()];
        self.options.route = Some(route::Options::new("kubernetes".into(), ranges));
        self.options.node_ipam = Some(node_ipam::Options {
            ranges: vec![ClusterCidr::new("10.120.0.0/16".parse().unwrap(), 24).unwrap()],
            services: Vec::new(),
            allocator: AllocatorType::Range,
        });
    }
}

#[tokio::test(start_paused = true)]
async fn every_controller_queue_watch_and_cloud_is_on_the_board_and_an_idle_manager_is_well_for_days() {
    let mut world = World::with_nodes(&["a"]).await;
    world.with_everything();
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    let parts: Vec<_> = world.board.entries().into_iter().map(|entry| (entry.kind, entry.name)).collect();
    let wanted = [
        (Kind::Controller, "cloud-node-controller"),
        (Kind::Controller, "cloud-node-lifecycle-controller"),
        (Kind::Controller, "service-lb-controller"),
        (Kind::Controller, "node-ipam-controller"),
        (Kind::Controller, "node-route-controller"),
        (Kind::Queue, "Nodes"),
        (Kind::Queue, "service"),
        (Kind::Queue, "cidrallocator_node"),
        (Kind::Queue, "Routes"),
        (Kind::Watch, "nodes"),
        (Kind::Watch, "services"),
        (Kind::Cloud, "local"),
    ];
    assert_eq!(parts, wanted.map(|(kind, name)| (kind, name.to_owned())));
    let running = world.metric("running_managed_controllers");
    let names = ["cloud-node", "cloud-node-lifecycle", "nodeipam", "route", "service"];
    let names = names.map(|name| (format!("cloud-controller-manager {name}"), 1.0));
    assert_eq!(running, names.into());
    for hour in 0..50 {
        world.pass(60 * MINUTE).await;
        assert_eq!(world.ailments(), [""; 0], "after {hour} hours");
    }
    let watch = world.part(Kind::Watch, "nodes");
    assert_eq!((&watch["synced"], &watch["objects"]), (&json!(true), &json!(1)));
    let controller = world.part(Kind::Controller, "cloud-node-lifecycle-controller");
    assert!(controller["parts"]["look"]["turns"].as_u64().unwrap() > 10_000, "{controller}");
    world.stop().await;
    let controller = world.part(Kind::Controller, "cloud-node-lifecycle-controller");
    assert_eq!(controller["running"], false);
}

#[tokio::test(start_paused = true)]
async fn two_clouds_have_a_queue_each_on_the_board_and_one_series() {
    let mut world = World::with_prefixes(&["one", "two"]).await;
    world.with_everything();
    world.start();
    world.pass(MINUTE).await;
    for name in ["Routes (local-one)", "Routes (local-two)"] {
        assert_eq!(world.part(Kind::Queue, name)["working"], true);
    }
    assert_eq!(world.metric("workqueue_depth").keys().filter(|name| *name == "Routes").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_is_shown_with_its_error_and_next_try_and_is_no_ailment() {
    let mut world = World::with_nodes(&["a"]).await;
    let refuse = |operation| {
        (operation == "apply").then(|| Error::new(ErrorKind::PermissionDenied, "apply load balancer", "no such right"))
    };
    world.wrap = Box::new(move |provider| Steered::around(provider, Arc::new(refuse)));
    world.start();
    world.serve("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    world.pass(LONG).await;
    let recent = &world.part(Kind::Queue, "service")["recent"][0];
    assert_eq!(recent["key"], "default/web");
    assert!(recent["error"].as_str().unwrap().contains("no such right"), "{recent}");
    assert!(recent["nextTryInSeconds"].as_f64().unwrap() <= 1800.0, "{recent}");
    let cloud = world.part(Kind::Cloud, "local");
    assert_eq!(cloud["lastError"]["kind"], "permission_denied");
    assert_eq!(world.ailments(), [""; 0], "it retries");
    assert!(world.metric("bowline_load_balancer_ensures_total")["failure"] > 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_fails_its_controller_and_nobody_else_until_it_ends_after_all() {
    let mut world = World::with_nodes(&["a"]).await;
    let (hangs, hung) = tokio::sync::watch::channel(true);
    world.wrap = Box::new(move |provider| Hanging::around(provider, hung.clone()));
    world.start();
    world.serve("web").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.ailments(), [""; 0], "slow is no ailment");
    assert_eq!(world.part(Kind::Cloud, "local")["operationsUnderWay"], 1);
    world.pass(6 * MINUTE).await;
    let ailments = world.ailments();
    let stuck = "0 wait, 1 are in work; default/web is in work for";
    assert_eq!(ailments.len(), 2, "the controller and its queue: {ailments:?}");
    assert!(ailments[0].starts_with("service-lb-controller: service: no key was finished for"), "{ailments:?}");
    assert!(ailments.iter().all(|ailment| ailment.contains(stuck)), "{ailments:?}");
    hangs.send_replace(false);
    world.addressed("web").await;
    assert_eq!(world.ailments(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_shown_and_is_no_ailment() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.pass(MINUTE).await;
    world.fail("watch", "nodes", 503, None);
    world.fail("list", "nodes", 503, None);
    world.server.cut_watches();
    world.pass(LONG).await;
    let watch = world.part(Kind::Watch, "nodes");
    assert!(watch["interruptedForSeconds"].as_f64().unwrap() > 60.0, "{watch}");
    assert!(watch["lastError"]["message"].as_str().unwrap().contains("as the story has it"), "{watch}");
    assert!(world.metric("bowline_watch_restarts_total")["nodes"] > 1.0);
    assert_eq!(world.metric("bowline_watch_interrupted")["nodes"], 1.0);
    assert_eq!(world.ailments(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_time_from_first_sight_is_measured_apart_from_the_age_of_the_object() {
    let mut world = World::new().await;
    world.cloud().add(crate::world::machine("a", "id-a", &["I10.0.0.1"])).unwrap();
    world.register("a").await;
    world.serve("web").await;
    world.pass(60 * MINUTE).await;
    world.start();
    world.initialized("a").await;
    world.addressed("web").await;
    for name in ["bowline_node_seen_to_initialized_seconds", "bowline_service_seen_to_address_seconds"] {
        let families = world.metrics.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let seen = family.get_metric()[0].get_histogram();
        assert_eq!(seen.get_sample_count(), 1, "{name}");
        assert!(seen.get_sample_sum() < 60.0, "{name}: {}", seen.get_sample_sum());
    }
}
