//! Balancers of a cloud that takes its time, notes, remarks and refuses.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::balancing::{FINALIZER, finalizers, ingress};
use crate::shipyard::{BERTH, ID, NODES, REMARK, Shipyard};
use crate::world::World;

/// How long a change takes: two looks find it busy.
const BUSY: Duration = Duration::from_secs(5);
const WHILE: Duration = Duration::from_secs(60);

fn note(service: &Service) -> Option<String> {
    service.metadata.annotations.as_ref()?.get(ID).cloned()
}

/// Waits until the Service says where its balancer is.
async fn noted(world: &World, name: &str) -> String {
    world.eventually(&format!("{name} says where"), async || note(&world.service(name).await)).await
}

fn quota() -> Error {
    Error::new(ErrorKind::QuotaExceeded, "create address", "no floating IPs are left")
}

#[tokio::test(start_paused = true)]
async fn a_plan_goes_on_after_each_step_and_the_cloud_is_looked_at_before_and_after() {
    let (mut world, yard) = Shipyard::world(&["a"], BUSY).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    assert_eq!(yard.inside().written, ["create ship", "update crew", "create address", "create flag"]);
    // Before; right after the last step, when it is busy once more; and when that is over.
    let (looks, writes) = yard.counts();
    assert!((3..=5).contains(&looks), "{looks} looks");
    assert_eq!(writes, 4);
    let applied = yard.inside().applied.clone();
    assert!(applied.len() >= 4 + 3 * 2, "a step that was told to wait came again: {applied:?}");
    world.told("web", "EnsuredLoadBalancer").await;
    let told = [("EnsuredLoadBalancer".to_owned(), 1), ("EnsuringLoadBalancer".to_owned(), 1)];
    assert_eq!(world.reasons("web").await, told.into(), "that it takes a while is nobody's trouble");
    // Nothing calls for another look: not even what we have written to the Service ourselves.
    world.pass(WHILE).await;
    assert_eq!(yard.counts(), (looks, writes));
    assert_eq!(noted(&world, "web").await, "ship-1");
    // The finalizer; that it is in progress, with the note; the end.
    assert_eq!(world.patches(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_at_work_holds_nobody_up() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::from_secs(100)).await;
    world.options.service.as_mut().unwrap().concurrency = 1;
    world.start();
    for name in ["one", "two", "three"] {
        world.serve(name).await;
    }
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(yard.inside().written, ["create ship"; 3], "all of them are begun before the first is done");
}

/// Two Services whose plans have a common lock; the first is begun, and the cloud is at work on it.
async fn sharing(takes: Duration) -> (World, std::sync::Arc<Shipyard>) {
    let (mut world, yard) = Shipyard::world(&["a"], takes).await;
    world.start();
    for name in ["one", "two"] {
        world.serve_with(name, json!({"metadata": {"annotations": {BERTH: "3"}}})).await;
        world.pass(Duration::from_secs(1)).await;
    }
    (world, yard)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_until_the_last_operation_of_the_plan_has_ended() {
    let (world, yard) = sharing(BUSY).await;
    world.addressed("one").await;
    let one = ["create ship", "update crew", "create address", "create flag"];
    assert_eq!(yard.inside().written.get(..4), Some(one.map(str::to_owned).as_slice()), "one after the other");
    world.addressed("two").await;
    assert_eq!(yard.counts().1, 8);
    for name in ["one", "two"] {
        world.delete_service(name).await;
    }
    for name in ["one", "two"] {
        world.service_gone(name).await;
    }
    assert_eq!(yard.ids(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_not_continued_releases_its_locks() {
    let (world, yard) = sharing(Duration::from_secs(100)).await;
    assert_eq!(yard.counts().1, 1);
    // Nothing can be made of this: the Service waits for its owner, and another one does not wait for both.
    world.annotate("one", NODES, Some("a=b=c")).await;
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(yard.inside().written, ["create ship", "create ship"]);
    world.delete_service("two").await;
    world.service_gone("two").await;
    world.annotate("one", NODES, None).await;
    world.addressed("one").await;
    assert_eq!(yard.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_changes_meanwhile_is_planned_anew() {
    let (mut world, yard) = Shipyard::world(&["a"], BUSY).await;
    world.start();
    world.serve("web").await;
    noted(&world, "web").await;
    let before = yard.counts().0;
    let ports = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    world.patch_service("web", ports).await;
    world.addressed("web").await;
    let crews: Vec<_> = yard.inside().written.iter().filter(|write| *write == "update crew").cloned().collect();
    assert_eq!(crews.len(), 1, "what was planned for the old wish is not done: {crews:?}");
    assert_eq!(yard.inside().ships.values().next().unwrap().crew, "a:2");
    assert!(yard.counts().0 > before + 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_an_old_plan_is_not_gone_on_with() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::from_secs(400)).await;
    world.start();
    world.serve("web").await;
    noted(&world, "web").await;
    let begun = yard.counts().0;
    world.pass(Duration::from_secs(250)).await;
    assert_eq!(yard.counts().0, begun, "it goes on with the same plan");
    world.pass(Duration::from_secs(100)).await;
    assert!(yard.counts().0 > begun, "by now that plan is too old");
    yard.inside().takes = Duration::ZERO;
    world.addressed("web").await;
    assert_eq!(yard.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_middle_ends_the_plan() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    yard.inside().wrong.insert("address", Error::new(ErrorKind::Conflict, "create address", "somebody was faster"));
    world.start();
    world.serve("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    let looks = yard.counts().0;
    yard.inside().wrong.clear();
    world.addressed("web").await;
    assert!(yard.counts().0 > looks, "what is there now is looked at");
    assert_eq!(yard.inside().written, ["create ship", "update crew", "create address", "create flag"]);
}

#[tokio::test(start_paused = true)]
async fn openstack_158_what_was_noted_is_saved_although_the_pass_fails() {
    for notes_late in [false, true] {
        what_was_noted_is_saved_although_the_pass_fails(notes_late).await;
    }
}

async fn what_was_noted_is_saved_although_the_pass_fails(notes_late: bool) {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    yard.inside().wrong.insert("address", quota());
    yard.inside().notes_late = notes_late;
    world.start();
    world.serve("web").await;
    let event = world.told("web", "SyncLoadBalancerFailed").await;
    assert!(event.message.unwrap().contains("no floating IPs are left"));
    assert_eq!(noted(&world, "web").await, "ship-1");
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuotaExceeded"));
    assert_eq!(world.patches(), 2, "the finalizer; the condition with the note");
    yard.inside().wrong.clear();
    world.addressed("web").await;
    assert_eq!(yard.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn openstack_159_a_note_that_cannot_be_saved_is_told_with_what_else_went_wrong() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    yard.inside().wrong.insert("address", quota());
    world.serve_with("web", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.fail("patch", "services", 403, None);
    world.start();
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    for cause in ["no floating IPs are left", "as the story has it"] {
        assert!(message.contains(cause), "{message}");
    }
    assert_eq!(note(&world.service("web").await), None);
    // It is not forgotten.
    world.server.faults().clear();
    assert_eq!(noted(&world, "web").await, "ship-1");
}

#[tokio::test(start_paused = true)]
async fn a_note_is_saved_when_the_manager_stops_in_the_middle() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    yard.inside().call_takes = Duration::from_secs(3);
    world.start();
    world.serve("web").await;
    world.eventually("a ship", async || (!yard.ids().is_empty()).then_some(())).await;
    assert_eq!(note(&world.service("web").await), None);
    world.stop().await;
    assert_eq!(yard.inside().written, ["create ship", "update crew"], "the step in hand is finished");
    assert_eq!(note(&world.service("web").await).as_deref(), Some("ship-1"));
    world.start();
    world.addressed("web").await;
    assert_eq!(yard.ids(), ["ship-1"]);
}

#[tokio::test(start_paused = true)]
async fn remarks_are_told_once_by_whoever_makes_them() {
    let (mut world, yard) = Shipyard::world(&["a"], BUSY).await;
    world.start();
    world.serve_with("web", json!({"metadata": {"annotations": {REMARK: "the zone is ignored"}}})).await;
    world.addressed("web").await;
    let event = world.told("web", "ShipRemark").await;
    assert_eq!((event.type_.as_deref(), event.message.as_deref()), (Some("Warning"), Some("the zone is ignored")));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("shipyard"));
    world.pass(Duration::from_secs(1500)).await;
    assert_eq!(world.reasons("web").await["ShipRemark"], 1, "it was looked at again and again: {:?}", yard.counts());
    world.annotate("web", REMARK, Some("the flavour is ignored")).await;
    world.eventually("another", async || (world.reasons("web").await["ShipRemark"] == 2).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_needs_may_be_refused() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    yard.inside().wrong.insert("flag", Error::new(ErrorKind::InvalidConfig, "raise the flag", "no such colour"));
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    let message = world.told("web", "FlagRefused").await.message.unwrap();
    assert!(message.contains("no such colour"), "{message}");
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Ensured"));
    let tries = || yard.inside().applied.iter().filter(|kind| *kind == "flag").count();
    assert_eq!(tries(), 1, "it is not tried again in the same pass");
    // Later passes do, and say nothing new.
    world.pass(Duration::from_secs(1300)).await;
    assert_eq!(tries(), 3);
    assert_eq!(world.reasons("web").await["FlagRefused"], 1);
    assert_eq!(world.reasons("web").await["EnsuredLoadBalancer"], 1, "nothing was done that could be told");
    // A cloud that does not answer has refused nothing.
    let silent = Error::new(ErrorKind::Conflict, "raise the flag", "somebody else is at it");
    yard.inside().wrong.insert("flag", silent);
    world.told("web", "SyncLoadBalancerFailed").await;
}

#[tokio::test(start_paused = true)]
async fn openstack_067_160_a_type_that_changes_takes_the_balancer_and_back_does_not_look_for_what_is_gone() {
    let (mut world, _) = Shipyard::world(&["a"], BUSY).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    assert_eq!(noted(&world, "web").await, "ship-1");
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world.eventually("it is gone", async || finalizers(&world.service("web").await).is_empty().then_some(())).await;
    assert_eq!(note(&world.service("web").await), None);
    world.told("web", "DeletedLoadBalancer").await;
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    assert_eq!(noted(&world, "web").await, "ship-2");
    world.addressed("web").await;
}

#[tokio::test(start_paused = true)]
async fn what_leads_to_a_balancer_goes_before_it_does() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    yard.inside().wrong.insert("flag", Error::new(ErrorKind::Conflict, "lower the flag", "it is stuck"));
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world.told("web", "SyncLoadBalancerFailed").await;
    assert_eq!(note(&world.service("web").await), None);
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
    // A new process, and another wish: the balancer is found by its name.
    world.kill().await;
    yard.inside().wrong.clear();
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    world.start();
    assert_eq!(noted(&world, "web").await, "ship-1");
    world.addressed("web").await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_keeps_its_annotations_to_the_end() {
    let (mut world, yard) = Shipyard::world(&["a"], BUSY).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    let patches = world.patches();
    world.delete_service("web").await;
    world.service_gone("web").await;
    assert!(yard.ids().is_empty());
    assert!(world.patches() - patches <= 2, "that it is in progress; the finalizer");
    world.told("web", "DeletedLoadBalancer").await;
}

#[tokio::test(start_paused = true)]
async fn the_clouds_own_annotation_chooses_targets_and_its_labels_are_watched() {
    let (mut world, yard) = Shipyard::world(&["a", "b"], Duration::ZERO).await;
    world.start();
    world.serve_with("web", json!({"metadata": {"annotations": {NODES: "edge=yes"}}})).await;
    world.addressed("web").await;
    let crew = || yard.inside().ships.values().next().unwrap().crew.clone();
    assert_eq!(crew(), ":1");
    world.patch("b", json!({"metadata": {"labels": {"edge": "yes"}}})).await;
    world.eventually("b is aboard", async || (crew() == "b:1").then_some(())).await;
    // What is wrong with it is told like any other mistake.
    world.annotate("web", NODES, Some("edge in")).await;
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains(NODES), "{message}");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_move_are_told_when_a_slow_cloud_has_them() {
    let (mut world, yard) = Shipyard::world(&["a"], BUSY).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    let patches = world.patches();
    world.join_machine("b", 7).await;
    world.told("web", "UpdatedLoadBalancer").await;
    assert_eq!(world.patches(), patches, "a balancer that is ready stays so while it is updated");
    assert_eq!(yard.inside().ships.values().next().unwrap().crew, "a+b:1");
}

#[tokio::test(start_paused = true)]
async fn where_no_uid_is_marked_a_new_service_of_the_name_inherits_the_balancer() {
    let (mut world, yard) = Shipyard::world(&["a"], Duration::ZERO).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    // By force: the manager hears of the old one's end and of the new one at once.
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.delete_service("web").await;
    world.serve("web").await;
    world.addressed("web").await;
    world.pass(WHILE).await;
    assert_eq!(yard.ids(), ["ship-1"], "{:?}", yard.inside().written);
    assert!(!ingress(&world.service("web").await).is_empty());
}
