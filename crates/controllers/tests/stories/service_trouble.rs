//! Services that something is in the way of: what is told, what is tried again and when, and what is never touched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_local::{Fault, FaultSpec, NewBalancer};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::balancing::{FINALIZER, finalizers, ingress, ports};
use crate::world::World;
use crate::wrappers::{Ailing, Forgetful, Steer, Steered, Wrapped};

const WHILE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3 * 3600);

/// A world whose balancers are steered.
async fn steered(steer: impl Fn(&'static str) -> Option<Error> + Send + Sync + 'static) -> World {
    let mut world = World::with_nodes(&["a"]).await;
    let steer: Steer = Arc::new(steer);
    world.wrap = Box::new(move |inner| Steered::around(inner, steer.clone()));
    world.start();
    world
}

fn annotated(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

// ---- when there is another try

#[tokio::test(start_paused = true)]
async fn s16_a_delay_that_the_cloud_asks_for_is_kept_exactly_for_making_and_for_removing() {
    let advised = Error::new(ErrorKind::RateLimited, "apply", "later").retry(Retry::After(Duration::from_secs(42)));
    let strikes = Arc::new(AtomicBool::new(true));
    let times = Arc::new(Mutex::new(Vec::new()));
    let world = {
        let (strikes, times) = (strikes.clone(), times.clone());
        steered(move |operation| {
            let applies = operation == "apply";
            if applies {
                times.lock().unwrap().push(Instant::now());
            }
            (applies && strikes.swap(false, Ordering::SeqCst)).then(|| advised.clone())
        })
        .await
    };
    let gap = || {
        let times = std::mem::take(&mut *times.lock().unwrap());
        times[1].duration_since(times[0])
    };
    let exact = Duration::from_secs(42)..Duration::from_millis(42_200);
    world.serve("web").await;
    world.addressed("web").await;
    let waited = gap();
    assert!(exact.contains(&waited), "{waited:?}");
    world.told("web", "SyncLoadBalancerFailed").await;
    strikes.store(true, Ordering::SeqCst);
    world.delete_service("web").await;
    world.service_gone("web").await;
    let waited = gap();
    assert!(exact.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn svc20_a_failure_waits_five_seconds_and_twice_as_long_each_time() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let world = steered(move |operation| {
        (operation == "plan").then(|| {
            seen.lock().unwrap().push(Instant::now());
            Error::new(ErrorKind::Unavailable, "plan", "broken")
        })
    })
    .await;
    world.serve("web").await;
    world.pass(LONG).await;
    let times = times.lock().unwrap();
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect();
    assert_eq!(waits[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_fails_keeps_to_its_back_off_and_the_service_stays() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(400)).on("delete-balancer"));
    world.delete_service("web").await;
    world.pass(Duration::from_secs(600)).await;
    // upstream: every thirty seconds at least, whatever the back-off says.
    assert!(world.called("delete-balancer") <= 8, "{}", world.called("delete-balancer"));
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.starts_with("Error syncing load balancer: failed to delete load balancer: "), "{message}");
    world.cloud().repair_all();
    world.service_gone("web").await;
    assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_fails_before_cleanup_removes_nothing() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(401)).on("observe-balancers"));
    world.delete_service("web").await;
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    let start = "Error syncing load balancer: failed to check if load balancer exists before cleanup: ";
    assert!(message.starts_with(start), "{message}");
    world.pass(LONG).await;
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
    assert_eq!(world.cloud().balancers().len(), 1);
    world.cloud().repair_all();
    world.service_gone("web").await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_takes_its_time_is_waited_for_without_alarm() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_work_time(Duration::from_secs(7));
    world.start();
    world.serve("web").await;
    world.eventually("it is being made", async || (!world.cloud().balancers().is_empty()).then_some(())).await;
    world.pass(Duration::from_secs(2)).await;
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InProgress"));
    world.addressed("web").await;
    assert_eq!(world.condition("web").await.unwrap().0, "True");
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"));
    world.delete_service("web").await;
    world.service_gone("web").await;
    assert!(world.cloud().addresses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_does_not_end_is_polled_and_fails_the_sync_after_its_deadline() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_work_time(Duration::from_secs(3600));
    world.start();
    world.serve("web").await;
    world.eventually("an address is made", async || (!world.cloud().addresses().is_empty()).then_some(())).await;
    world.pass(Duration::from_secs(300)).await;
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"));
    // One observation, and from then on a poll every ten seconds.
    let looks = world.called("observe-balancers");
    assert!((25..=40).contains(&looks), "{looks} looks");
    assert_eq!(world.cloud().writes(), 1, "nothing is written while the cloud is at work");
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    let expected = "timed out: the cloud is still at work on an earlier change of this balancer, for 600 s and longer";
    assert!(message.contains(expected), "{message}");
    world.cloud().set_work_time(Duration::ZERO);
    world.cloud().finish_work();
    world.addressed("web").await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_found_by_a_manager_that_starts_while_it_is_under_way() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_work_time(Duration::from_secs(60));
    world.start();
    world.serve("web").await;
    world.eventually("an address is made", async || (!world.cloud().addresses().is_empty()).then_some(())).await;
    world.stop().await;
    world.start();
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.cloud().writes(), 1, "the new manager waits for what the old one has begun");
    world.addressed("web").await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 1));
}

// ---- what is said once, and rests

#[tokio::test(start_paused = true)]
async fn what_the_cloud_cannot_do_is_refused_before_any_call_said_once_and_rests_until_it_changes() {
    let mut world = World::with_nodes(&["a"]).await;
    let limits = &mut world.clouds[0].0.load_balancers;
    (limits.udp, limits.session_affinity, limits.source_ranges) = (false, false, false);
    world.start();
    let spec = json!({"spec": {
        "ports": [{"port": 53, "protocol": "UDP"}], "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    }});
    world.serve_with("dns", spec).await;
    let event = world.told("dns", "SyncLoadBalancerFailed").await;
    let message = event.message.unwrap();
    for field in ["protocol UDP", "spec.sessionAffinity", "spec.loadBalancerSourceRanges"] {
        assert!(message.contains(field), "{message}");
    }
    world.pass(LONG).await;
    assert_eq!((world.called("observe-balancers"), world.cloud().writes()), (0, 0));
    assert_eq!(world.told("dns", "SyncLoadBalancerFailed").await.count, Some(1), "said once");
    let (status, reason, message) = world.condition("dns").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Unsupported"));
    assert!(message.ends_with("It rests until the Service or the nodes change."), "{message}");
    assert!(finalizers(&world.service("dns").await).is_empty(), "nothing was begun");
    let mended = json!({"spec": {
        "ports": [{"port": 53, "protocol": "TCP"}], "sessionAffinity": "None", "loadBalancerSourceRanges": null,
    }});
    world.services.patch("dns", &Default::default(), &kube::api::Patch::Merge(&mended)).await.unwrap();
    world.addressed("dns").await;
    assert_eq!(world.condition("dns").await.unwrap().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_slip_in_an_annotation_is_told_with_what_was_probably_meant() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve_with("odd", annotated(json!({"bowline.dev/idle-timout": "5m"}))).await;
    let message = world.told("odd", "UnknownAnnotation").await.message.unwrap();
    assert!(message.contains("bowline.dev/idle-timout") && message.contains("bowline.dev/idle-timeout"), "{message}");
    world.addressed("odd").await;
    world
        .serve_with("wrong", annotated(json!({"bowline.dev/idle-timeout": "five", "bowline.dev/internal": "si"})))
        .await;
    let message = world.told("wrong", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains("bowline.dev/idle-timeout") && message.contains("bowline.dev/internal"), "{message}");
    assert!(finalizers(&world.service("wrong").await).is_empty());
    world.annotate("wrong", "bowline.dev/idle-timeout", Some("5m")).await;
    world.annotate("wrong", "bowline.dev/internal", None).await;
    world.addressed("wrong").await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_source_range_is_refused_and_what_was_there_stays() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve("web").await;
    world.addressed("web").await;
    world.annotate("web", "bowline.dev/source-ranges", Some("10.0.0.0/33")).await;
    world.told("web", "SyncLoadBalancerFailed").await;
    world.pass(WHILE).await;
    assert_eq!(world.balancer().settings.source_ranges, []);
    assert_eq!(ingress(&world.service("web").await).len(), 1);
    world.annotate("web", "bowline.dev/source-ranges", Some("10.0.0.0/8")).await;
    world
        .eventually("the range", async || {
            (world.balancer().settings.source_ranges == ["10.0.0.0/8".parse().unwrap()]).then_some(())
        })
        .await;
}

// ---- whose it is

#[tokio::test(start_paused = true)]
async fn a_balancer_of_that_name_that_is_not_ours_is_not_touched_and_its_owner_is_named() {
    let mut world = World::with_nodes(&["a"]).await;
    let service = world.serve("web").await;
    let name = bowline_core::service::default_load_balancer_name(&service.metadata.uid.unwrap());
    let foreign = NewBalancer { name: name.clone(), ..NewBalancer::default() };
    let before = world.cloud().add_balancer(foreign).unwrap();
    world.start();
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains(&name), "{message}");
    world.pass(WHILE).await;
    assert_eq!(world.balancer(), before);
    // Deleting the Service leaves it, too.
    world.delete_service("web").await;
    world.service_gone("web").await;
    assert_eq!(world.balancer(), before);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_is_adopted_by_annotation_and_left_behind_by_policy() {
    let mut world = World::with_nodes(&["a"]).await;
    let existing =
        world.cloud().add_balancer(NewBalancer { name: "by-hand".into(), ..NewBalancer::default() }).unwrap();
    world.start();
    let annotations = json!({"bowline.dev/adopt": "by-hand", "bowline.dev/policy": "retain"});
    world.serve_with("web", annotated(annotations)).await;
    world.addressed("web").await;
    let adopted = world.balancer();
    assert_eq!((adopted.id, ports(&world.balancer())), (existing.id.clone(), vec![("Tcp".to_owned(), 80)]));
    assert_eq!(adopted.owner.unwrap().service, "web");
    world.delete_service("web").await;
    world.service_gone("web").await;
    assert_eq!((world.balancer().id, world.balancer().owner), (existing.id, None));
    assert_eq!(world.cloud().addresses().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_protected_balancer_keeps_its_service_until_the_policy_says_otherwise() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.serve_with("web", annotated(json!({"bowline.dev/policy": "protect"}))).await;
    world.addressed("web").await;
    world.delete_service("web").await;
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains("bowline.dev/policy"), "{message}");
    world.annotate("web", "bowline.dev/policy", Some("deletee")).await;
    world.pass(LONG).await;
    assert_eq!(world.cloud().balancers().len(), 1, "a policy that nobody knows deletes nothing");
    world.annotate("web", "bowline.dev/policy", Some("delete")).await;
    world.service_gone("web").await;
    assert!(world.cloud().balancers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn services_of_a_share_group_have_one_address_until_the_last_is_gone() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    let group = annotated(json!({"bowline.dev/share-group": "front"}));
    world.serve_with("one", group.clone()).await;
    let mut other = group;
    other["spec"] = json!({"ports": [{"port": 81}]});
    world.serve_with("two", other).await;
    assert_eq!(world.addressed("one").await, world.addressed("two").await);
    assert_eq!(world.cloud().addresses().len(), 1);
    world.delete_service("one").await;
    world.service_gone("one").await;
    assert_eq!((world.cloud().balancers().len(), world.cloud().addresses().len()), (1, 1));
    world.delete_service("two").await;
    world.service_gone("two").await;
    assert!(world.cloud().addresses().is_empty());
}

// ---- what another one has

#[tokio::test(start_paused = true)]
async fn who_waits_for_what_another_service_has_gets_it_when_that_one_lets_go() {
    let mut world = World::with_nodes(&["a"]).await;
    world.options.service.as_mut().unwrap().refresh = Duration::ZERO;
    world.start();
    world.serve("one").await;
    let address = world.addressed("one").await;
    world.serve_with("two", json!({"spec": {"loadBalancerIP": address}})).await;
    world.told("two", "SyncLoadBalancerFailed").await;
    world.pass(WHILE).await;
    let (_, reason, message) = world.condition("two").await.unwrap();
    assert_eq!(reason, "AlreadyExists");
    assert!(message.ends_with("It rests until what is in the way is gone."), "{message}");
    world.delete_service("one").await;
    assert_eq!(world.addressed("two").await, address);
    // And a change lets go as much as a deletion.
    world.serve_with("three", json!({"spec": {"loadBalancerIP": address}})).await;
    world.told("three", "SyncLoadBalancerFailed").await;
    world.pass(WHILE).await;
    let elsewhere =
        json!({"metadata": {"annotations": {"bowline.dev/internal": "true"}}, "spec": {"loadBalancerIP": null}});
    world.patch_service("two", elsewhere).await;
    assert_eq!(world.addressed("three").await, address);
}

#[tokio::test(start_paused = true)]
async fn room_that_is_freed_goes_to_who_has_waited_longest() {
    let full = Arc::new(AtomicBool::new(false));
    let mut world = World::with_nodes(&["a"]).await;
    world.options.service.as_mut().unwrap().refresh = Duration::ZERO;
    let steer: Steer = {
        let full = full.clone();
        // Without a try of their own, they have what they get from being woken.
        let error = Error::new(ErrorKind::QuotaExceeded, "apply", "no address is left").retry(Retry::Never);
        Arc::new(move |operation| (operation == "apply" && full.load(Ordering::SeqCst)).then(|| error.clone()))
    };
    world.wrap = Box::new(move |inner| Steered::around(inner, steer.clone()));
    world.start();
    world.serve("one").await;
    world.addressed("one").await;
    full.store(true, Ordering::SeqCst);
    for name in ["early", "late"] {
        world.serve(name).await;
        world.told(name, "SyncLoadBalancerFailed").await;
    }
    full.store(false, Ordering::SeqCst);
    world.delete_service("one").await;
    world.addressed("early").await;
    world.pass(LONG).await;
    assert!(ingress(&world.service("late").await).is_empty());
    world.delete_service("early").await;
    world.addressed("late").await;
}

#[tokio::test(start_paused = true)]
async fn ports_that_do_not_work_are_told_once_with_their_cause() {
    let mut world = World::with_nodes(&["a"]).await;
    let ails = Arc::new(AtomicBool::new(true));
    let switch = ails.clone();
    world.wrap = Box::new(move |inner| Ailing::around(inner, switch.clone()));
    world.options.service.as_mut().unwrap().refresh = Duration::ZERO;
    world.start();
    world.serve("web").await;
    let message = world.told("web", "PortsFailed").await.message.unwrap();
    assert_eq!(message, "Not all ports work: port 80/TCP: no permission to listen.");
    let condition = world.condition("web").await.unwrap();
    let next = format!("{message} It is looked at again every 30 s.");
    assert_eq!(condition, ("False".to_owned(), "PortsFailed".to_owned(), next));
    world.pass(LONG).await;
    assert_eq!(world.reasons("web").await["PortsFailed"], 1);
    ails.store(false, Ordering::SeqCst);
    let works = async || world.condition("web").await.filter(|(status, ..)| status == "True");
    world.eventually("all is well", works).await;
}

// ---- answers of other kinds

#[tokio::test(start_paused = true)]
async fn s24_s25_what_somebody_else_does_is_a_success_without_a_result() {
    let world = steered(|operation| {
        (operation == "plan").then(|| Error::new(ErrorKind::ImplementedElsewhere, "plan", "elsewhere"))
    })
    .await;
    world.serve("web").await;
    world
        .eventually("the finalizer", async || (!finalizers(&world.service("web").await).is_empty()).then_some(()))
        .await;
    world.pass(WHILE).await;
    assert_eq!(world.patches(), 1);
    let reasons: Vec<_> = world.reasons("web").await.into_keys().collect();
    assert_eq!(reasons, ["EnsuringLoadBalancer"]);
    world.delete_service("web").await;
    world.service_gone("web").await;
}

#[tokio::test(start_paused = true)]
async fn s26_a_balancer_that_is_not_there_after_it_was_made_is_an_error() {
    let mut world = World::with_nodes(&["a"]).await;
    world.wrap = Box::new(|inner| Wrapped::balancers(inner, Forgetful));
    world.start();
    world.serve("web").await;
    let message = world.told("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.starts_with("Error syncing load balancer: failed to ensure load balancer: "), "{message}");
    assert!(ingress(&world.service("web").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn svc01_without_a_cloud_that_balances_the_controller_does_not_run() {
    let mut world = World::with_nodes(&["a"]).await;
    world.clouds[0].0.load_balancers.enabled = false;
    world.start();
    world.serve("web").await;
    world.pass(WHILE).await;
    assert_eq!(world.patches(), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn services_that_wait_are_counted_by_reason_until_they_have_their_load_balancer() {
    let mut world = World::new().await;
    world.join_machine("a", 0).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(507)).on("create-balancer"));
    world.serve("web").await;
    world.start();
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(world.metric("bowline_services_waiting"), [("local QuotaExceeded".to_owned(), 1.0)].into());
    world.cloud().repair_all();
    world.addressed("web").await;
    let none_waits = async || world.metric("bowline_services_waiting").is_empty().then_some(());
    world.eventually("no Service waits", none_waits).await;
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_class_is_reported_with_the_nearest_one_and_a_foreign_class_is_not() {
    let mut world = World::new().await;
    world.serve_with("typo", json!({"spec": {"loadBalancerClass": "bowline.dev/locla"}})).await;
    world.serve_with("foreign", json!({"spec": {"loadBalancerClass": "service.example.com/nlb"}})).await;
    world.serve_with("other", json!({"spec": {"loadBalancerClass": "bowline.dev/aws"}})).await;
    world.start();
    let reported = async || world.event("typo", "UnknownLoadBalancerClass").await;
    let message = world.eventually("a warning", reported).await.message.unwrap();
    assert!(message.contains("Did you mean bowline.dev/local?"), "{message}");
    for name in ["foreign", "other"] {
        assert!(world.event(name, "UnknownLoadBalancerClass").await.is_none(), "{name}");
    }
}
