//! Load balancers of a slow cloud that returns annotations and warnings and rejects steps.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers, ingress};
use crate::slow_cloud::{BERTH, ID, NODES, SlowCloud, WARNING};
use crate::world::World;

/// Duration of a change: two polls find the load balancer busy.
const BUSY: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(60);

fn annotation(service: &Service) -> Option<String> {
    service.metadata.annotations.as_ref()?.get(ID).cloned()
}

/// Waits until the Service has the annotation with the ID of its load balancer.
async fn wait_for_annotation(world: &World, name: &str) -> String {
    world.eventually(&format!("{name} is annotated"), async || annotation(&world.service(name).await)).await
}

fn quota() -> Error {
    Error::new(ErrorKind::QuotaExceeded, "create address", "no floating IPs are left")
}

#[tokio::test(start_paused = true)]
async fn a_plan_continues_after_each_step_and_the_cloud_is_observed_before_and_after() {
    let (mut world, cloud) = SlowCloud::world(&["a"], BUSY).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    assert_eq!(cloud.inside().written, ["create ship", "update crew", "create address", "create flag"]);
    // Before the plan; right after the last step, while the cloud is busy; and when it is done.
    let (observations, writes) = cloud.counts();
    assert!((3..=5).contains(&observations), "{observations} observations");
    assert_eq!(writes, 4);
    let applied = cloud.inside().applied.clone();
    assert!(applied.len() >= 4 + 3 * 2, "a step that found the cloud busy is retried: {applied:?}");
    world.wait_for_event("web", "EnsuredLoadBalancer").await;
    let expected = [("EnsuredLoadBalancer".to_owned(), 1), ("EnsuringLoadBalancer".to_owned(), 1)];
    assert_eq!(world.reasons("web").await, expected.into(), "a cloud cloud is no failure");
    // Nothing triggers another observation, not even our own writes to the Service.
    world.sleep(SETTLE).await;
    assert_eq!(cloud.counts(), (observations, writes));
    assert_eq!(wait_for_annotation(&world, "web").await, "ship-1");
    // The finalizer; the condition in progress with the annotation; the final status.
    assert_eq!(world.patches(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_busy_cloud_blocks_no_other_service() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::from_secs(100)).await;
    world.options.service.as_mut().unwrap().concurrency = 1;
    world.start();
    for name in ["one", "two", "three"] {
        world.create_service(name).await;
    }
    world.sleep(Duration::from_secs(30)).await;
    assert_eq!(cloud.inside().written, ["create ship"; 3], "all of them begin before the first one is done");
}

/// World with two Services whose plans share a lock; the cloud is busy with the first.
async fn sharing(takes: Duration) -> (World, std::sync::Arc<SlowCloud>) {
    let (mut world, cloud) = SlowCloud::world(&["a"], takes).await;
    world.start();
    for name in ["one", "two"] {
        world.create_service_with(name, json!({"metadata": {"annotations": {BERTH: "3"}}})).await;
        world.sleep(Duration::from_secs(1)).await;
    }
    (world, cloud)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_until_the_last_operation_of_the_plan_has_ended() {
    let (world, cloud) = sharing(BUSY).await;
    world.wait_for_address("one").await;
    let one = ["create ship", "update crew", "create address", "create flag"];
    assert_eq!(cloud.inside().written.get(..4), Some(one.map(str::to_owned).as_slice()), "in sequence");
    world.wait_for_address("two").await;
    assert_eq!(cloud.counts().1, 8);
    for name in ["one", "two"] {
        world.delete_service(name).await;
    }
    for name in ["one", "two"] {
        world.wait_until_service_deleted(name).await;
    }
    assert_eq!(cloud.ids(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_not_continued_releases_its_locks() {
    let (world, cloud) = sharing(Duration::from_secs(100)).await;
    assert_eq!(cloud.counts().1, 1);
    // The invalid Service rests, and its lock is released for the other one.
    world.annotate("one", NODES, Some("a=b=c")).await;
    world.sleep(Duration::from_secs(30)).await;
    assert_eq!(cloud.inside().written, ["create ship", "create ship"]);
    world.delete_service("two").await;
    world.wait_until_service_deleted("two").await;
    world.annotate("one", NODES, None).await;
    world.wait_for_address("one").await;
    assert_eq!(cloud.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_desired_state_is_planned_again() {
    let (mut world, cloud) = SlowCloud::world(&["a"], BUSY).await;
    world.start();
    world.create_service("web").await;
    wait_for_annotation(&world, "web").await;
    let before = cloud.counts().0;
    let ports = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    world.patch_service("web", ports).await;
    world.wait_for_address("web").await;
    let crews: Vec<_> = cloud.inside().written.iter().filter(|write| *write == "update crew").cloned().collect();
    assert_eq!(crews.len(), 1, "steps for the old desired state are not applied: {crews:?}");
    assert_eq!(cloud.inside().ships.values().next().unwrap().crew, "a:2");
    assert!(cloud.counts().0 > before + 1);
}

#[tokio::test(start_paused = true)]
async fn the_remaining_steps_of_an_old_plan_are_not_applied() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::from_secs(400)).await;
    world.start();
    world.create_service("web").await;
    wait_for_annotation(&world, "web").await;
    let begun = cloud.counts().0;
    world.sleep(Duration::from_secs(250)).await;
    assert_eq!(cloud.counts().0, begun, "the same plan continues");
    world.sleep(Duration::from_secs(100)).await;
    assert!(cloud.counts().0 > begun, "the plan is too old");
    cloud.inside().takes = Duration::ZERO;
    world.wait_for_address("web").await;
    assert_eq!(cloud.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_middle_ends_the_plan() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    cloud
        .inside()
        .errors
        .insert("address", Error::new(ErrorKind::Conflict, "create address", "another client was faster"));
    world.start();
    world.create_service("web").await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    let observations = cloud.counts().0;
    cloud.inside().errors.clear();
    world.wait_for_address("web").await;
    assert!(cloud.counts().0 > observations, "the cloud is observed again");
    assert_eq!(cloud.inside().written, ["create ship", "update crew", "create address", "create flag"]);
}

#[tokio::test(start_paused = true)]
async fn openstack_158_annotations_are_saved_although_the_sync_fails() {
    for notes_late in [false, true] {
        annotations_are_saved_although_the_sync_fails(notes_late).await;
    }
}

async fn annotations_are_saved_although_the_sync_fails(notes_late: bool) {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    cloud.inside().errors.insert("address", quota());
    cloud.inside().notes_late = notes_late;
    world.start();
    world.create_service("web").await;
    let event = world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    assert!(event.message.unwrap().contains("no floating IPs are left"));
    assert_eq!(wait_for_annotation(&world, "web").await, "ship-1");
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuotaExceeded"));
    assert_eq!(world.patches(), 2, "the finalizer; the condition with the annotation");
    cloud.inside().errors.clear();
    world.wait_for_address("web").await;
    assert_eq!(cloud.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn openstack_159_a_failed_annotation_write_is_reported_with_the_cause_of_the_sync() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    cloud.inside().errors.insert("address", quota());
    world.create_service_with("web", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.fail("patch", "services", 403, None);
    world.start();
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    for cause in ["no floating IPs are left", "injected fault"] {
        assert!(message.contains(cause), "{message}");
    }
    assert_eq!(annotation(&world.service("web").await), None);
    // The annotation is written later.
    world.server.faults().clear();
    assert_eq!(wait_for_annotation(&world, "web").await, "ship-1");
}

#[tokio::test(start_paused = true)]
async fn annotations_are_saved_at_shutdown() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    cloud.inside().call_takes = Duration::from_secs(3);
    world.start();
    world.create_service("web").await;
    world.eventually("a ship", async || (!cloud.ids().is_empty()).then_some(())).await;
    assert_eq!(annotation(&world.service("web").await), None);
    world.stop().await;
    assert_eq!(cloud.inside().written, ["create ship", "update crew"], "the step in progress is finished");
    assert_eq!(annotation(&world.service("web").await).as_deref(), Some("ship-1"));
    world.start();
    world.wait_for_address("web").await;
    assert_eq!(cloud.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn warnings_are_reported_once_by_the_component_of_the_provider() {
    let (mut world, cloud) = SlowCloud::world(&["a"], BUSY).await;
    world.start();
    world.create_service_with("web", json!({"metadata": {"annotations": {WARNING: "the zone is ignored"}}})).await;
    world.wait_for_address("web").await;
    let event = world.wait_for_event("web", "ShipWarning").await;
    assert_eq!((event.type_.as_deref(), event.message.as_deref()), (Some("Warning"), Some("the zone is ignored")));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("shipyard"));
    world.sleep(Duration::from_secs(1500)).await;
    assert_eq!(world.reasons("web").await["ShipWarning"], 1, "it was observed repeatedly: {:?}", cloud.counts());
    world.annotate("web", WARNING, Some("the flavour is ignored")).await;
    world.eventually("another", async || (world.reasons("web").await["ShipWarning"] == 2).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_best_effort_step_may_be_rejected() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    cloud.inside().errors.insert("flag", Error::new(ErrorKind::InvalidConfig, "raise the flag", "no such colour"));
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let message = world.wait_for_event("web", "FlagRefused").await.message.unwrap();
    assert!(message.contains("no such colour"), "{message}");
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Ensured"));
    let attempts = || cloud.inside().applied.iter().filter(|kind| *kind == "flag").count();
    assert_eq!(attempts(), 1, "no retry in the same sync");
    // Later syncs retry, and report nothing new.
    world.sleep(Duration::from_secs(1300)).await;
    assert_eq!(attempts(), 3);
    assert_eq!(world.reasons("web").await["FlagRefused"], 1);
    assert_eq!(world.reasons("web").await["EnsuredLoadBalancer"], 1, "no other change was made");
    // A conflict is no rejection.
    let conflict = Error::new(ErrorKind::Conflict, "raise the flag", "another client writes");
    cloud.inside().errors.insert("flag", conflict);
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
}

#[tokio::test(start_paused = true)]
async fn openstack_067_160_changing_the_type_and_back_creates_a_new_load_balancer() {
    let (mut world, _) = SlowCloud::world(&["a"], BUSY).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    assert_eq!(wait_for_annotation(&world, "web").await, "ship-1");
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world.eventually("it is gone", async || finalizers(&world.service("web").await).is_empty().then_some(())).await;
    assert_eq!(annotation(&world.service("web").await), None);
    world.wait_for_event("web", "DeletedLoadBalancer").await;
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    assert_eq!(wait_for_annotation(&world, "web").await, "ship-2");
    world.wait_for_address("web").await;
}

#[tokio::test(start_paused = true)]
async fn the_annotations_are_removed_before_the_load_balancer_is_deleted() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    cloud.inside().errors.insert("flag", Error::new(ErrorKind::Conflict, "lower the flag", "it is stuck"));
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    assert_eq!(annotation(&world.service("web").await), None);
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
    // A new process with another desired state finds the load balancer by its name.
    world.kill().await;
    cloud.inside().errors.clear();
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    world.start();
    assert_eq!(wait_for_annotation(&world, "web").await, "ship-1");
    world.wait_for_address("web").await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_keeps_its_annotations_until_the_end() {
    let (mut world, cloud) = SlowCloud::world(&["a"], BUSY).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let patches = world.patches();
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    assert!(cloud.ids().is_empty());
    assert!(world.patches() - patches <= 2, "the condition in progress; the finalizer");
    world.wait_for_event("web", "DeletedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn the_annotation_of_the_provider_selects_targets_and_its_labels_are_watched() {
    let (mut world, cloud) = SlowCloud::world(&["a", "b"], Duration::ZERO).await;
    world.start();
    world.create_service_with("web", json!({"metadata": {"annotations": {NODES: "edge=yes"}}})).await;
    world.wait_for_address("web").await;
    let crew = || cloud.inside().ships.values().next().unwrap().crew.clone();
    assert_eq!(crew(), ":1");
    world.patch("b", json!({"metadata": {"labels": {"edge": "yes"}}})).await;
    world.eventually("b is a target", async || (crew() == "b:1").then_some(())).await;
    // An error in it is reported like any other.
    world.annotate("web", NODES, Some("edge in")).await;
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains(NODES), "{message}");
}

#[tokio::test(start_paused = true)]
async fn target_changes_are_reported_when_a_slow_cloud_has_applied_them() {
    let (mut world, cloud) = SlowCloud::world(&["a"], BUSY).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let patches = world.patches();
    world.join_machine("b", 7).await;
    world.wait_for_event("web", "UpdatedLoadBalancer").await;
    assert_eq!(world.patches(), patches, "a ready load balancer stays ready during an update");
    assert_eq!(cloud.inside().ships.values().next().unwrap().crew, "a+b:1");
}

#[tokio::test(start_paused = true)]
async fn without_uid_marks_a_recreated_service_inherits_the_load_balancer() {
    let (mut world, cloud) = SlowCloud::world(&["a"], Duration::ZERO).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    // Without the finalizer, the manager observes the deletion and the new Service at the same time.
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.delete_service("web").await;
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.sleep(SETTLE).await;
    assert_eq!(cloud.ids(), ["ship-1"], "{:?}", cloud.inside().written);
    assert!(!ingress(&world.service("web").await).is_empty());
}
