//! The console's document of a running manager: what each object waits for, and what was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_console::document::{Document, Health, Level, WorkState};
use bowline_console::{Position, Publisher};
use bowline_controllers::service::DefaultCloud;
use bowline_local::{Fault, FaultSpec};
use bowline_runtime::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::slow_cloud::{BERTH, SlowCloud};
use crate::test_providers::FaultInjector;
use crate::world::{UNINITIALIZED, World, machine};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

impl World {
    fn document(&self) -> Document {
        self.sources.read()
    }

    /// Level, reason and message of the Service `default/NAME`.
    fn service_health(&self, name: &str) -> (Level, String, String) {
        parts(&self.document().service[&format!("default/{name}")].health)
    }

    fn node_health(&self, name: &str) -> (Level, String, String) {
        parts(&self.document().node[name].health)
    }

    /// Starts a manager whose cloud fails to apply any plan with this error, and creates the Service `web`.
    async fn start_failing(error: Error) -> World {
        let mut world = World::with_nodes(&["a"]).await;
        world.wrap = Box::new(move |provider| {
            let error = error.clone();
            FaultInjector::wrap(provider, Arc::new(move |operation| (operation == "apply").then(|| error.clone())))
        });
        world.start();
        world.create_service("web").await;
        world.wait_for_event("web", "SyncLoadBalancerFailed").await;
        world.sleep(SECOND).await;
        world
    }
}

fn parts(health: &Health) -> (Level, String, String) {
    (health.level, health.reason.clone(), health.message.clone())
}

/// Asserts level and reason, and that the message contains these texts.
fn assert_health(health: (Level, String, String), level: Level, reason: &str, texts: &[&str]) {
    let (is_level, is_reason, message) = &health;
    assert_eq!((*is_level, is_reason.as_str()), (level, reason), "{message}");
    assert!(texts.iter().all(|text| message.contains(text)), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_document_shows_nodes_services_routes_controllers_queues_watches_clouds_and_the_manager() {
    let mut world = World::with_nodes(&["a", "b"]).await;
    world.with_everything();
    world.start();
    world.create_service("web").await;
    let address = world.wait_for_address("web").await;
    world.wait_until_reachable("a").await;
    world.wait_until_reachable("b").await;
    world.sleep(MINUTE).await;
    let document = world.document();
    let manager = &document.manager["self"];
    assert_eq!((manager.leader, manager.dry_run, manager.health.level), (true, false, Level::Ok));
    let node = &document.node["a"];
    assert_eq!((node.health.clone(), node.machine_state.as_str()), (Health::ok(), "running"));
    assert_eq!((node.cloud.as_deref(), node.machine.as_deref()), (Some("local"), Some("i-a")));
    assert_eq!(node.addresses, ["InternalIP 10.0.0.1"]);
    assert_eq!(node.pod_cidrs.len(), 1);
    let service = &document.service["default/web"];
    assert_eq!((service.health.clone(), service.addresses.clone()), (Health::ok(), vec![address]));
    assert_eq!((service.cloud.as_deref(), service.finalizer, service.target_count), (Some("local"), true, 2));
    assert_eq!(service.targets.iter().map(|target| target.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let plan = service.plan.as_ref().unwrap();
    assert_eq!(
        (plan.trigger.as_str(), plan.outcome.as_str(), plan.steps[0].verb.as_str()),
        ("userChange", "applied", "create")
    );
    assert!(plan.ended.is_some() && plan.steps.iter().all(|step| step.done), "{plan:?}");
    let step = plan.steps.iter().find(|step| step.kind == "load balancer").unwrap();
    assert_eq!(service.load_balancer.as_ref(), Some(&step.name));
    assert!(service.observed.as_ref().unwrap().exists);
    assert_eq!(document.route.values().map(|route| &*route.node).collect::<Vec<_>>(), ["a", "b"]);
    assert!(document.route.values().all(|route| route.health.level == Level::Ok), "{:?}", document.route);
    for controller in ["cloud-node-controller", "service-lb-controller", "node-route-controller"] {
        assert!(document.controller[controller].running, "{controller}");
    }
    assert!(document.controller["cloud-node-lifecycle-controller"].loops["local"].runs > 1);
    assert_eq!(document.queue.keys().collect::<Vec<_>>(), ["Nodes", "Routes", "cidrallocator_node", "service"]);
    assert_eq!((document.watch["nodes"].objects, document.watch["services"].health.clone()), (2, Health::ok()));
    let cloud = &document.cloud["local"];
    assert_eq!((cloud.health.clone(), cloud.provider.as_str()), (Health::ok(), "local"));
    assert!(cloud.capabilities.contains(&"routes".to_owned()), "{:?}", cloud.capabilities);
}

#[tokio::test(start_paused = true)]
async fn a_client_receives_exactly_the_items_that_have_changed() {
    let mut world = World::with_nodes(&["a", "b", "c"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.sleep(MINUTE).await;
    let publisher = Publisher::new(world.sources.clone(), Clock::from_tokio(Timestamp::now()));
    let first = publisher.changes(&Position::default()).unwrap();
    assert!(first.complete && first.items.len() > 8);
    let position = Position { epoch: first.epoch.to_string(), revision: first.revision };
    world.patch("b", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z9"}}})).await;
    world.sleep(Duration::from_millis(500)).await;
    let changes = publisher.changes(&position).unwrap();
    let is_busy = |key: &str| key.starts_with("controller/") || key.starts_with("cloud/") || key.starts_with("queue/");
    let keys: Vec<&str> = changes.items.keys().map(|key| &**key).filter(|key| !is_busy(key)).collect();
    assert_eq!((keys, changes.removed.len()), (vec!["node/b"], 0));
    let item: Value = serde_json::from_str(changes.items["node/b"].get()).unwrap();
    assert_eq!(item["zone"], "z9");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_no_client_asks() {
    let mut world = World::with_nodes(&["a"]).await;
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    world.sources.add(move |_: &mut Document| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    world.start();
    let publisher = Publisher::new(world.sources.clone(), Clock::from_tokio(Timestamp::now()));
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.sleep(60 * MINUTE).await;
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    publisher.changes(&Position::default()).unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 1);
}

// ---- why is this Service still pending?

#[tokio::test(start_paused = true)]
async fn a_service_without_nodes_says_that_no_traffic_arrives() {
    let mut world = World::new().await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let texts = ["has no targets", "the cloud local has no Nodes"];
    assert_health(world.service_health("web"), Level::Warning, "NoTargets", &texts);
    world.register("new").await;
    world.sleep(MINUTE).await;
    let texts = ["has no targets", "new (not initialized)"];
    assert_health(world.service_health("web"), Level::Warning, "NoTargets", &texts);
}

#[tokio::test(start_paused = true)]
async fn a_service_beyond_the_quota_says_so_with_the_remedy_and_the_next_try() {
    let world =
        World::start_failing(Error::new(ErrorKind::QuotaExceeded, "create address", "no address is left")).await;
    let texts = ["no address is left", "Raise the account's quota", "Next try at 20"];
    assert_health(world.service_health("web"), Level::Error, "QuotaExceeded", &texts);
    let service = &world.document().service["default/web"];
    assert_eq!((service.work.state, service.work.failures), (WorkState::Delayed, 1));
    assert!(service.work.next > service.work.last && service.work.error.is_some(), "{:?}", service.work);
    let plan = service.plan.as_ref().unwrap();
    assert_eq!((plan.outcome.as_str(), plan.steps[0].done), ("failed", false));
    assert!(plan.error.as_ref().unwrap().contains("no address is left"), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_retried_says_what_it_waits_for() {
    let error = Error::new(ErrorKind::InvalidConfig, "create", "the size is unknown").retry(Retry::Never);
    let world = World::start_failing(error).await;
    let texts = ["the size is unknown", "not retried until the Service or the nodes change"];
    assert_health(world.service_health("web"), Level::Error, "InvalidConfig", &texts);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_fails_for_a_while_is_a_warning_of_the_service_and_of_the_cloud() {
    let world = World::start_failing(Error::new(ErrorKind::Unavailable, "create", "HTTP 503")).await;
    assert_health(world.service_health("web"), Level::Warning, "Unavailable", &["HTTP 503", "Next try at 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_cloud_is_at_work_is_in_progress_and_shows_the_plan() {
    let (mut world, _cloud) = SlowCloud::world(&["a"], 10 * MINUTE).await;
    world.start();
    world.create_service("web").await;
    world.sleep(10 * SECOND).await;
    assert_health(world.service_health("web"), Level::Progressing, "InProgress", &["The cloud is at work: "]);
    let plan = world.document().service["default/web"].plan.clone().unwrap();
    assert_eq!((plan.outcome.as_str(), plan.ended), ("inProgress", None));
    assert_eq!(plan.steps.iter().filter(|step| step.done).count(), 1, "{plan:?}");
    assert_eq!(plan.steps.len(), plan.step_count);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_a_lock_says_so() {
    let (mut world, _cloud) = SlowCloud::world(&["a"], 10 * MINUTE).await;
    world.start();
    for name in ["one", "two"] {
        world.create_service_with(name, json!({"metadata": {"annotations": {BERTH: "3"}}})).await;
        world.sleep(SECOND).await;
    }
    assert_health(world.service_health("two"), Level::Progressing, "WaitingForLock", &["Another Service"]);
    assert_eq!(world.document().service["default/two"].plan.as_ref().unwrap().outcome, "waitingForLock");
}

#[tokio::test(start_paused = true)]
async fn a_paused_service_says_how_to_end_the_pause() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("web", json!({"metadata": {"annotations": {"bowline.dev/paused": "true"}}})).await;
    world.sleep(MINUTE).await;
    assert_health(world.service_health("web"), Level::Warning, "Paused", &["until the annotation is removed"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_cloud_serves_says_why() {
    let mut world = World::with_nodes(&["a"]).await;
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.start();
    world.create_service("none").await;
    world.create_service_with("typo", json!({"spec": {"loadBalancerClass": "bowline.dev/lokal"}})).await;
    world.create_service_with("other", json!({"spec": {"loadBalancerClass": "example.com/lb"}})).await;
    world.sleep(SECOND).await;
    assert_health(world.service_health("none"), Level::Warning, "NoCloud", &["--load-balancer-default-cloud"]);
    let texts = ["did you mean bowline.dev/local?"];
    assert_health(world.service_health("typo"), Level::Warning, "UnknownLoadBalancerClass", &texts);
    let texts = ["belongs to another controller"];
    assert_health(world.service_health("other"), Level::Unknown, "OtherController", &texts);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_that_its_plan_is_not_applied() {
    let mut world = World::with_nodes(&["a"]).await;
    (world.options.dry_run, world.layers.dry_run) = (true, true);
    world.start();
    world.create_service("web").await;
    world.sleep(MINUTE).await;
    assert_health(world.service_health("web"), Level::Warning, "DryRun", &["--dry-run"]);
    let document = world.document();
    assert!(document.manager["self"].dry_run);
    assert_eq!(document.service["default/web"].plan.as_ref().unwrap().outcome, "dryRun");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_kept_by_its_policy_says_how_to_let_it_go() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("web", json!({"metadata": {"annotations": {"bowline.dev/policy": "protect"}}})).await;
    world.wait_for_address("web").await;
    world.delete_service("web").await;
    world.sleep(MINUTE).await;
    assert_health(world.service_health("web"), Level::Error, "Protected", &["set it to delete or retain"]);
}

#[tokio::test(start_paused = true)]
async fn the_plan_of_a_deleted_service_is_dropped_with_it() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    world.sleep(MINUTE).await;
    assert!(world.document().service.is_empty());
    world.create_service_with("web", json!({"spec": {"loadBalancerClass": "example.com/lb"}})).await;
    world.sleep(SECOND).await;
    assert_eq!(world.document().service["default/web"].plan, None);
}

// ---- what does this Node wait for?

#[tokio::test(start_paused = true)]
async fn an_uninitialised_node_says_what_it_waits_for() {
    let mut world = World::new().await;
    world.register("unclaimed").await;
    world.register_with("missing", json!({"spec": {"providerID": "local://none"}})).await;
    world.register_with("foreign", json!({"spec": {"providerID": "other://1"}})).await;
    world.start();
    world.sleep(MINUTE).await;
    let texts = ["has a machine for this node", "Set --provider-id on the kubelet", "Next try at 20"];
    assert_health(world.node_health("unclaimed"), Level::Warning, "NotOurNode", &texts);
    let texts = ["has no machine local://none", "check that the provider's credentials can list it"];
    assert_health(world.node_health("missing"), Level::Warning, "InstanceNotFound", &texts);
    assert_health(world.node_health("foreign"), Level::Warning, "NotOurNode", &["belongs to none of the configured"]);
    let node = &world.document().node["unclaimed"];
    assert!(node.uninitialized && node.taints.iter().any(|taint| taint.starts_with(UNINITIALIZED)), "{node:?}");
    let work = &node.work["cloud-node-controller"];
    assert!(work.failures > 3 && work.next.is_some() && work.error.is_some(), "{work:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_for_a_cloud_that_does_not_respond() {
    let mut world = World::new().await;
    world.cloud().add(machine("a", "i-a", &["I10.0.0.1"])).unwrap();
    world.cloud().inject(FaultSpec::always(Fault::Failing(503)));
    world.register("a").await;
    world.start();
    world.sleep(MINUTE).await;
    let texts = ["stays uninitialized until the cloud provider responds", "Next try at 20"];
    assert_health(world.node_health("a"), Level::Warning, "CloudUnavailable", &texts);
    let cloud = &world.document().cloud["local"];
    assert_eq!(
        (cloud.health.level, cloud.health.reason.as_str()),
        (Level::Warning, "Unavailable"),
        "{:?}",
        cloud.health
    );
    assert_eq!(cloud.calls.recent[0].outcome, "unavailable");
    assert!(cloud.calls.intervals.iter().all(|one| one.failed == one.calls && one.calls > 0), "{:?}", cloud.calls);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_controller_is_disabled_says_so() {
    let mut world = World::new().await;
    world.options.node = None;
    world.register("a").await;
    world.start();
    world.sleep(SECOND).await;
    let texts = ["cloud-node-controller is disabled in this manager (--controllers)"];
    assert_health(world.node_health("a"), Level::Warning, "NoController", &texts);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_held_back_has_the_command_that_releases_it() {
    let mut world = World::new().await;
    for index in 0..4 {
        world.join(&format!("node{index}"), &format!("local://i-{index}"), "Unknown").await;
    }
    world.start();
    world.sleep(5 * MINUTE).await;
    let node = &world.document().node["node0"];
    let held = node.held.as_ref().unwrap();
    let command = "kubectl annotate node node0 bowline.dev/allow-deletion=true";
    assert_eq!((held.reason.as_str(), held.command.as_deref()), ("Brake", Some(command)));
    assert_eq!(node.machine_state, "gone");
    assert_health(parts(&node.health), Level::Error, "DeletionHeldBack", &[command, "Check the credentials"]);
    world.patch("node0", json!({"metadata": {"annotations": {"bowline.dev/allow-deletion": "true"}}})).await;
    world.wait_until_deleted("node0").await;
    world.sleep(SECOND).await;
    assert!(!world.document().node.contains_key("node0"));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_the_cloud_lacks_is_shown_as_missing() {
    let mut world = World::with_nodes(&["a"]).await;
    world.with_everything();
    world.start();
    world.wait_until_reachable("a").await;
    world.cloud().inject(FaultSpec { call: "create-route".to_owned(), ..FaultSpec::always(Fault::Failing(503)) });
    world.join_machine("b", 1).await;
    world.sleep(MINUTE).await;
    let document = world.document();
    let missing: Vec<_> = document.route.values().filter(|route| route.health.reason == "Missing").collect();
    assert_eq!(missing.iter().map(|route| &*route.node).collect::<Vec<_>>(), ["b"], "{:?}", document.route);
    assert_eq!(missing[0].health.level, Level::Warning, "{missing:?}");
    assert!(document.node["b"].work["node-route-controller"].error.is_some());
}

// ---- what was done

#[tokio::test(start_paused = true)]
async fn events_and_calls_are_recorded_and_repeated_events_are_counted() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let document = world.document();
    let reasons: Vec<&str> = document.event.values().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
    let event = &document.event["1"];
    assert_eq!((event.object_kind.as_str(), event.object.as_str(), event.count), ("Service", "default/web", 1));
    let calls = &document.cloud["local"].calls;
    let total: u32 = calls.intervals.iter().map(|interval| interval.calls).sum();
    assert_eq!((calls.recent.len(), calls.in_progress), (total as usize, 0));
    assert!(calls.recent.iter().all(|call| call.outcome == "ok" && call.error.is_none()), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn hostile_texts_are_limited_and_change_no_key() {
    let message = format!("</script><img src=x onerror=alert(1)>\u{202e}{}", "long ".repeat(20_000));
    let world = World::start_failing(Error::new(ErrorKind::PermissionDenied, "create", message)).await;
    let changes = Publisher::new(world.sources.clone(), Clock::system()).changes(&Position::default()).unwrap();
    let item = changes.items["service/default/web"].get();
    assert!(item.contains("</script>") && item.len() < 20_000, "{}", item.len());
    assert!(changes.items.values().all(|item| item.get().len() < 100_000));
    let long = "x".repeat(60_000);
    world.patch("a", json!({"metadata": {"annotations": {"note": long}}})).await;
    let taints = json!([{"key": "k", "value": "v".repeat(63), "effect": "NoSchedule"}]);
    world.patch("a", json!({"spec": {"taints": taints}})).await;
    world.sleep(SECOND).await;
    assert!(serde_json::to_string(&world.document().node["a"]).unwrap().len() < 2_000);
}
