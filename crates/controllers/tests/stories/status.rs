//! Status board and health of a running manager.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::{node_ipam, route};
use bowline_core::ipam::ClusterCidr;
use bowline_runtime::Kind;
use serde_json::{Value, json};

use crate::test_providers::{FaultInjector, Hanging};
use crate::world::World;

const MINUTE: Duration = Duration::from_secs(60);

/// Longer than any watchdog timeout of a queue.
const LONG: Duration = Duration::from_secs(61 * 60);

impl World {
    /// Status of this component.
    fn component_status(&self, kind: Kind, name: &str) -> Value {
        let entry = self.board.entries().into_iter().find(|entry| entry.kind == kind && entry.name == name);
        entry.unwrap_or_else(|| panic!("there is no {kind:?} {name}")).component.status()
    }

    /// Health errors, by component.
    fn health_errors(&self) -> Vec<String> {
        let entries = self.board.entries().into_iter();
        entries.filter_map(|entry| Some(format!("{}: {}", entry.name, entry.component.health().err()?))).collect()
    }

    pub(crate) fn with_everything(&mut self) {
        let ranges = vec!["10.120.0.0/16".parse().unwrap()];
        self.options.route = Some(route::Options::new("kubernetes".into(), ranges));
        self.options.node_ipam = Some(node_ipam::Options {
            cluster_cidrs: vec![ClusterCidr::new("10.120.0.0/16".parse().unwrap(), 24).unwrap()],
            service_cidrs: Vec::new(),
            allocator: AllocatorType::Range,
        });
    }
}

#[tokio::test(start_paused = true)]
async fn every_controller_queue_watch_and_cloud_is_on_the_board_and_an_idle_manager_stays_healthy() {
    let mut world = World::with_nodes(&["a"]).await;
    world.with_everything();
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
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
        world.sleep(60 * MINUTE).await;
        assert_eq!(world.health_errors(), [""; 0], "after {hour} hours");
    }
    let watch = world.component_status(Kind::Watch, "nodes");
    assert_eq!((&watch["synced"], &watch["objects"]), (&json!(true), &json!(1)));
    let controller = world.component_status(Kind::Controller, "cloud-node-lifecycle-controller");
    assert!(controller["parts"]["sync"]["turns"].as_u64().unwrap() > 10_000, "{controller}");
    world.stop().await;
    let controller = world.component_status(Kind::Controller, "cloud-node-lifecycle-controller");
    assert_eq!(controller["running"], false);
}

#[tokio::test(start_paused = true)]
async fn two_clouds_have_separate_queues_on_the_board_and_one_metric_series() {
    let mut world = World::with_prefixes(&["one", "two"]).await;
    world.with_everything();
    world.start();
    world.sleep(MINUTE).await;
    for name in ["Routes (local-one)", "Routes (local-two)"] {
        assert_eq!(world.component_status(Kind::Queue, name)["working"], true);
    }
    assert_eq!(world.metric("workqueue_depth").keys().filter(|name| *name == "Routes").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_service_is_shown_with_its_error_and_next_retry_and_the_manager_is_healthy() {
    let mut world = World::with_nodes(&["a"]).await;
    let deny = |operation| {
        (operation == "apply").then(|| Error::new(ErrorKind::PermissionDenied, "apply load balancer", "not permitted"))
    };
    world.wrap = Box::new(move |provider| FaultInjector::wrap(provider, Arc::new(deny)));
    world.start();
    world.create_service("web").await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    world.sleep(LONG).await;
    let recent = &world.component_status(Kind::Queue, "service")["recent"][0];
    assert_eq!(recent["key"], "default/web");
    assert!(recent["error"].as_str().unwrap().contains("not permitted"), "{recent}");
    assert!(recent["nextTryInSeconds"].as_f64().unwrap() <= 1800.0, "{recent}");
    let cloud = world.component_status(Kind::Cloud, "local");
    assert_eq!(cloud["lastError"]["kind"], "permission_denied");
    assert_eq!(world.health_errors(), [""; 0], "the controller retries");
    assert!(world.metric("bowline_load_balancer_ensures_total")["failure"] > 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_makes_only_its_controller_unhealthy_until_it_ends() {
    let mut world = World::with_nodes(&["a"]).await;
    let (hangs, hung) = tokio::sync::watch::channel(true);
    world.wrap = Box::new(move |provider| Hanging::wrap(provider, hung.clone()));
    world.start();
    world.create_service("web").await;
    world.sleep(10 * MINUTE).await;
    assert_eq!(world.health_errors(), [""; 0], "a slow call is no error");
    assert_eq!(world.component_status(Kind::Cloud, "local")["operationsUnderWay"], 1);
    world.sleep(6 * MINUTE).await;
    let errors = world.health_errors();
    let stuck = "0 waiting, 1 in work; default/web has been in work for";
    assert_eq!(errors.len(), 2, "the controller and its queue: {errors:?}");
    assert!(errors[0].starts_with("service-lb-controller: service: no key was finished for"), "{errors:?}");
    assert!(errors.iter().all(|error| error.contains(stuck)), "{errors:?}");
    hangs.send_replace(false);
    world.wait_for_address("web").await;
    assert_eq!(world.health_errors(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_api_server_is_shown_and_the_manager_is_healthy() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.sleep(MINUTE).await;
    world.fail("watch", "nodes", 503, None);
    world.fail("list", "nodes", 503, None);
    world.server.cut_watches();
    world.sleep(LONG).await;
    let watch = world.component_status(Kind::Watch, "nodes");
    assert!(watch["interruptedForSeconds"].as_f64().unwrap() > 60.0, "{watch}");
    assert!(watch["lastError"]["message"].as_str().unwrap().contains("injected fault"), "{watch}");
    assert!(world.metric("bowline_watch_restarts_total")["nodes"] > 1.0);
    assert_eq!(world.metric("bowline_watch_interrupted")["nodes"], 1.0);
    assert_eq!(world.health_errors(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_time_since_an_object_was_first_seen_is_measured_apart_from_its_age() {
    let mut world = World::new().await;
    world.cloud().add(crate::world::machine("a", "id-a", &["I10.0.0.1"])).unwrap();
    world.register("a").await;
    world.create_service("web").await;
    world.sleep(60 * MINUTE).await;
    world.start();
    world.wait_until_initialized("a").await;
    world.wait_for_address("web").await;
    for name in ["bowline_node_seen_to_initialized_seconds", "bowline_service_seen_to_address_seconds"] {
        let families = world.metrics.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let seen = family.get_metric()[0].get_histogram();
        assert_eq!(seen.get_sample_count(), 1, "{name}");
        assert!(seen.get_sample_sum() < 60.0, "{name}: {}", seen.get_sample_sum());
    }
}
