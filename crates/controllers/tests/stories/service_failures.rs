//! Failing Services: reports, retries, and load balancers that must not be changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_local::{Fault, FaultSpec, NewBalancer};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::load_balancers::{FINALIZER, finalizers, ingress, ports};
use crate::test_providers::{ErrorSource, FailedPorts, FaultInjector, NeverCreated, Wrapped};
use crate::world::World;

const SETTLE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3 * 3600);

/// World whose load balancers have injected errors.
async fn world_with_fault(error_source: impl Fn(&'static str) -> Option<Error> + Send + Sync + 'static) -> World {
    let mut world = World::with_nodes(&["a"]).await;
    let error_source: ErrorSource = Arc::new(error_source);
    world.wrap = Box::new(move |inner| FaultInjector::wrap(inner, error_source.clone()));
    world.start();
    world
}

fn annotated(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

// ---- retries

#[tokio::test(start_paused = true)]
async fn s16_the_retry_delay_of_the_cloud_is_kept_for_creation_and_deletion() {
    let advised = Error::new(ErrorKind::RateLimited, "apply", "later").retry(Retry::After(Duration::from_secs(42)));
    let strikes = Arc::new(AtomicBool::new(true));
    let times = Arc::new(Mutex::new(Vec::new()));
    let world = {
        let (strikes, times) = (strikes.clone(), times.clone());
        world_with_fault(move |operation| {
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
    world.create_service("web").await;
    world.wait_for_address("web").await;
    let waited = gap();
    assert!(exact.contains(&waited), "{waited:?}");
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    strikes.store(true, Ordering::SeqCst);
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    let waited = gap();
    assert!(exact.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn svc20_the_back_off_starts_at_five_seconds_and_doubles() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let world = world_with_fault(move |operation| {
        (operation == "plan").then(|| {
            seen.lock().unwrap().push(Instant::now());
            Error::new(ErrorKind::Unavailable, "plan", "broken")
        })
    })
    .await;
    world.create_service("web").await;
    world.sleep(LONG).await;
    let times = times.lock().unwrap();
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect();
    assert_eq!(waits[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_cleanup_keeps_its_back_off_and_the_service_stays() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(400)).on("delete-balancer"));
    world.delete_service("web").await;
    world.sleep(Duration::from_secs(600)).await;
    // upstream: at least every thirty seconds, regardless of the back-off.
    assert!(world.call_count("delete-balancer") <= 8, "{}", world.call_count("delete-balancer"));
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.starts_with("Error syncing load balancer: failed to delete load balancer: "), "{message}");
    world.cloud().repair_all();
    world.wait_until_service_deleted("web").await;
    assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_before_cleanup_deletes_nothing() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(401)).on("observe-balancers"));
    world.delete_service("web").await;
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    let start = "Error syncing load balancer: failed to check if load balancer exists before cleanup: ";
    assert!(message.starts_with(start), "{message}");
    world.sleep(LONG).await;
    assert_eq!(finalizers(&world.service("web").await), [FINALIZER]);
    assert_eq!(world.cloud().balancers().len(), 1);
    world.cloud().repair_all();
    world.wait_until_service_deleted("web").await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_cloud_is_polled_without_a_warning() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_work_time(Duration::from_secs(7));
    world.start();
    world.create_service("web").await;
    world
        .eventually("the load balancer is being created", async || {
            (!world.cloud().balancers().is_empty()).then_some(())
        })
        .await;
    world.sleep(Duration::from_secs(2)).await;
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InProgress"));
    world.wait_for_address("web").await;
    assert_eq!(world.condition("web").await.unwrap().0, "True");
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"));
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    assert!(world.cloud().addresses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_does_not_end_is_polled_and_fails_the_sync_after_its_deadline() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_work_time(Duration::from_secs(3600));
    world.start();
    world.create_service("web").await;
    world.eventually("the address is created", async || (!world.cloud().addresses().is_empty()).then_some(())).await;
    world.sleep(Duration::from_secs(300)).await;
    assert!(!world.reasons("web").await.contains_key("SyncLoadBalancerFailed"));
    // One observation, then a poll every ten seconds.
    let observations = world.call_count("observe-balancers");
    assert!((25..=40).contains(&observations), "{observations} observations");
    assert_eq!(world.cloud().writes(), 1, "nothing is written while the cloud is busy");
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    let expected = "timed out after 600 s: an earlier change of this load balancer is still in progress";
    assert!(message.contains(expected), "{message}");
    world.cloud().set_work_time(Duration::ZERO);
    world.cloud().finish_work();
    world.wait_for_address("web").await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_progress_is_found_by_a_new_manager() {
    let mut world = World::with_nodes(&["a"]).await;
    world.cloud().set_work_time(Duration::from_secs(60));
    world.start();
    world.create_service("web").await;
    world.eventually("the address is created", async || (!world.cloud().addresses().is_empty()).then_some(())).await;
    world.stop().await;
    world.start();
    world.sleep(Duration::from_secs(20)).await;
    assert_eq!(world.cloud().writes(), 1, "the new manager waits for the operation of the old one");
    world.wait_for_address("web").await;
    assert_eq!((world.cloud().addresses().len(), world.cloud().balancers().len()), (1, 1));
}

// ---- permanent failures, reported once

#[tokio::test(start_paused = true)]
async fn an_unsupported_service_is_rejected_before_any_call_reported_once_and_rests_until_it_changes() {
    let mut world = World::with_nodes(&["a"]).await;
    let limits = &mut world.clouds[0].0.load_balancers;
    (limits.udp, limits.session_affinity, limits.source_ranges) = (false, false, false);
    world.start();
    let spec = json!({"spec": {
        "ports": [{"port": 53, "protocol": "UDP"}], "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    }});
    world.create_service_with("dns", spec).await;
    let event = world.wait_for_event("dns", "SyncLoadBalancerFailed").await;
    let message = event.message.unwrap();
    for field in ["protocol UDP", "spec.sessionAffinity", "spec.loadBalancerSourceRanges"] {
        assert!(message.contains(field), "{message}");
    }
    world.sleep(LONG).await;
    assert_eq!((world.call_count("observe-balancers"), world.cloud().writes()), (0, 0));
    assert_eq!(world.wait_for_event("dns", "SyncLoadBalancerFailed").await.count, Some(1), "reported once");
    let (status, reason, message) = world.condition("dns").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Unsupported"));
    assert!(message.ends_with("It is not retried until the Service or the nodes change."), "{message}");
    assert!(finalizers(&world.service("dns").await).is_empty(), "no sync began");
    let mended = json!({"spec": {
        "ports": [{"port": 53, "protocol": "TCP"}], "sessionAffinity": "None", "loadBalancerSourceRanges": null,
    }});
    world.services.patch("dns", &Default::default(), &kube::api::Patch::Merge(&mended)).await.unwrap();
    world.wait_for_address("dns").await;
    assert_eq!(world.condition("dns").await.unwrap().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_annotation_is_reported_with_a_suggestion() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("odd", annotated(json!({"bowline.dev/idle-timout": "5m"}))).await;
    let message = world.wait_for_event("odd", "UnknownAnnotation").await.message.unwrap();
    assert!(message.contains("bowline.dev/idle-timout") && message.contains("bowline.dev/idle-timeout"), "{message}");
    world.wait_for_address("odd").await;
    world
        .create_service_with(
            "wrong",
            annotated(json!({"bowline.dev/idle-timeout": "five", "bowline.dev/internal": "si"})),
        )
        .await;
    let message = world.wait_for_event("wrong", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains("bowline.dev/idle-timeout") && message.contains("bowline.dev/internal"), "{message}");
    assert!(finalizers(&world.service("wrong").await).is_empty());
    world.annotate("wrong", "bowline.dev/idle-timeout", Some("5m")).await;
    world.annotate("wrong", "bowline.dev/internal", None).await;
    world.wait_for_address("wrong").await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_source_range_is_rejected_and_the_load_balancer_is_unchanged() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.annotate("web", "bowline.dev/source-ranges", Some("10.0.0.0/33")).await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    world.sleep(SETTLE).await;
    assert_eq!(world.load_balancer().settings.source_ranges, []);
    assert_eq!(ingress(&world.service("web").await).len(), 1);
    world.annotate("web", "bowline.dev/source-ranges", Some("10.0.0.0/8")).await;
    world
        .eventually("the range", async || {
            (world.load_balancer().settings.source_ranges == ["10.0.0.0/8".parse().unwrap()]).then_some(())
        })
        .await;
}

// ---- ownership

#[tokio::test(start_paused = true)]
async fn a_foreign_load_balancer_of_the_name_is_not_changed_and_its_owner_is_reported() {
    let mut world = World::with_nodes(&["a"]).await;
    let service = world.create_service("web").await;
    let name = bowline_core::service::default_load_balancer_name(&service.metadata.uid.unwrap());
    let foreign = NewBalancer { name: name.clone(), ..NewBalancer::default() };
    let before = world.cloud().add_balancer(foreign).unwrap();
    world.start();
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains(&name), "{message}");
    world.sleep(SETTLE).await;
    assert_eq!(world.load_balancer(), before);
    // The deletion of the Service does not delete it, either.
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    assert_eq!(world.load_balancer(), before);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_adopted_by_annotation_and_retained_by_policy() {
    let mut world = World::with_nodes(&["a"]).await;
    let existing =
        world.cloud().add_balancer(NewBalancer { name: "by-hand".into(), ..NewBalancer::default() }).unwrap();
    world.start();
    let annotations = json!({"bowline.dev/adopt": "by-hand", "bowline.dev/policy": "retain"});
    world.create_service_with("web", annotated(annotations)).await;
    world.wait_for_address("web").await;
    let adopted = world.load_balancer();
    assert_eq!((adopted.id, ports(&world.load_balancer())), (existing.id.clone(), vec![("Tcp".to_owned(), 80)]));
    assert_eq!(adopted.owner.unwrap().service, "web");
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    assert_eq!((world.load_balancer().id, world.load_balancer().owner), (existing.id, None));
    assert_eq!(world.cloud().addresses().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_protected_load_balancer_keeps_its_service_until_the_policy_changes() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service_with("web", annotated(json!({"bowline.dev/policy": "protect"}))).await;
    world.wait_for_address("web").await;
    world.delete_service("web").await;
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.contains("bowline.dev/policy"), "{message}");
    world.annotate("web", "bowline.dev/policy", Some("deletee")).await;
    world.sleep(LONG).await;
    assert_eq!(world.cloud().balancers().len(), 1, "an unknown policy deletes nothing");
    world.annotate("web", "bowline.dev/policy", Some("delete")).await;
    world.wait_until_service_deleted("web").await;
    assert!(world.cloud().balancers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn services_of_a_share_group_have_one_address_until_the_last_is_deleted() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    let group = annotated(json!({"bowline.dev/share-group": "front"}));
    world.create_service_with("one", group.clone()).await;
    let mut other = group;
    other["spec"] = json!({"ports": [{"port": 81}]});
    world.create_service_with("two", other).await;
    assert_eq!(world.wait_for_address("one").await, world.wait_for_address("two").await);
    assert_eq!(world.cloud().addresses().len(), 1);
    world.delete_service("one").await;
    world.wait_until_service_deleted("one").await;
    assert_eq!((world.cloud().balancers().len(), world.cloud().addresses().len()), (1, 1));
    world.delete_service("two").await;
    world.wait_until_service_deleted("two").await;
    assert!(world.cloud().addresses().is_empty());
}

// ---- resources of another Service

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_a_resource_gets_it_when_another_service_releases_it() {
    let mut world = World::with_nodes(&["a"]).await;
    world.options.service.as_mut().unwrap().refresh = Duration::ZERO;
    world.start();
    world.create_service("one").await;
    let address = world.wait_for_address("one").await;
    world.create_service_with("two", json!({"spec": {"loadBalancerIP": address}})).await;
    world.wait_for_event("two", "SyncLoadBalancerFailed").await;
    world.sleep(SETTLE).await;
    let (_, reason, message) = world.condition("two").await.unwrap();
    assert_eq!(reason, "AlreadyExists");
    assert!(message.ends_with("It is not retried until the missing resource is released."), "{message}");
    world.delete_service("one").await;
    assert_eq!(world.wait_for_address("two").await, address);
    // A change releases the resource as well as a deletion.
    world.create_service_with("three", json!({"spec": {"loadBalancerIP": address}})).await;
    world.wait_for_event("three", "SyncLoadBalancerFailed").await;
    world.sleep(SETTLE).await;
    let elsewhere =
        json!({"metadata": {"annotations": {"bowline.dev/internal": "true"}}, "spec": {"loadBalancerIP": null}});
    world.patch_service("two", elsewhere).await;
    assert_eq!(world.wait_for_address("three").await, address);
}

#[tokio::test(start_paused = true)]
async fn freed_capacity_goes_to_the_service_that_has_waited_longest() {
    let full = Arc::new(AtomicBool::new(false));
    let mut world = World::with_nodes(&["a"]).await;
    world.options.service.as_mut().unwrap().refresh = Duration::ZERO;
    let error_source: ErrorSource = {
        let full = full.clone();
        // Without retries of their own, the Services sync only when they are woken.
        let error = Error::new(ErrorKind::QuotaExceeded, "apply", "no address is left").retry(Retry::Never);
        Arc::new(move |operation| (operation == "apply" && full.load(Ordering::SeqCst)).then(|| error.clone()))
    };
    world.wrap = Box::new(move |inner| FaultInjector::wrap(inner, error_source.clone()));
    world.start();
    world.create_service("one").await;
    world.wait_for_address("one").await;
    full.store(true, Ordering::SeqCst);
    for name in ["early", "late"] {
        world.create_service(name).await;
        world.wait_for_event(name, "SyncLoadBalancerFailed").await;
    }
    full.store(false, Ordering::SeqCst);
    world.delete_service("one").await;
    world.wait_for_address("early").await;
    world.sleep(LONG).await;
    assert!(ingress(&world.service("late").await).is_empty());
    world.delete_service("early").await;
    world.wait_for_address("late").await;
}

#[tokio::test(start_paused = true)]
async fn failed_ports_are_reported_once_with_their_cause() {
    let mut world = World::with_nodes(&["a"]).await;
    let is_failing = Arc::new(AtomicBool::new(true));
    let switch = is_failing.clone();
    world.wrap = Box::new(move |inner| FailedPorts::wrap(inner, switch.clone()));
    world.options.service.as_mut().unwrap().refresh = Duration::ZERO;
    world.start();
    world.create_service("web").await;
    let message = world.wait_for_event("web", "PortsFailed").await.message.unwrap();
    assert_eq!(message, "Not all ports work: port 80/TCP: no permission to listen.");
    let condition = world.condition("web").await.unwrap();
    let next = format!("{message} The load balancer is checked again every 30 s.");
    assert_eq!(condition, ("False".to_owned(), "PortsFailed".to_owned(), next));
    world.sleep(LONG).await;
    assert_eq!(world.reasons("web").await["PortsFailed"], 1);
    is_failing.store(false, Ordering::SeqCst);
    let works = async || world.condition("web").await.filter(|(status, ..)| status == "True");
    world.eventually("all ports work", works).await;
}

// ---- other results

#[tokio::test(start_paused = true)]
async fn s24_s25_implemented_elsewhere_is_a_success_without_a_status() {
    let world = world_with_fault(|operation| {
        (operation == "plan").then(|| Error::new(ErrorKind::ImplementedElsewhere, "plan", "elsewhere"))
    })
    .await;
    world.create_service("web").await;
    world
        .eventually("the finalizer", async || (!finalizers(&world.service("web").await).is_empty()).then_some(()))
        .await;
    world.sleep(SETTLE).await;
    assert_eq!(world.patches(), 1);
    let reasons: Vec<_> = world.reasons("web").await.into_keys().collect();
    assert_eq!(reasons, ["EnsuringLoadBalancer"]);
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
}

#[tokio::test(start_paused = true)]
async fn s26_a_load_balancer_that_is_missing_after_its_creation_is_an_error() {
    let mut world = World::with_nodes(&["a"]).await;
    world.wrap = Box::new(|inner| Wrapped::balancers(inner, NeverCreated));
    world.start();
    world.create_service("web").await;
    let message = world.wait_for_event("web", "SyncLoadBalancerFailed").await.message.unwrap();
    assert!(message.starts_with("Error syncing load balancer: failed to ensure load balancer: "), "{message}");
    assert!(ingress(&world.service("web").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn svc01_without_a_cloud_with_load_balancers_the_controller_does_not_run() {
    let mut world = World::with_nodes(&["a"]).await;
    world.clouds[0].0.load_balancers.enabled = false;
    world.start();
    world.create_service("web").await;
    world.sleep(SETTLE).await;
    assert_eq!(world.patches(), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_services_are_counted_by_reason_until_they_have_their_load_balancer() {
    let mut world = World::new().await;
    world.join_machine("a", 0).await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(507)).on("create-balancer"));
    world.create_service("web").await;
    world.start();
    world.sleep(Duration::from_secs(120)).await;
    assert_eq!(world.metric("bowline_services_waiting"), [("local QuotaExceeded".to_owned(), 1.0)].into());
    world.cloud().repair_all();
    world.wait_for_address("web").await;
    let none_waits = async || world.metric("bowline_services_waiting").is_empty().then_some(());
    world.eventually("no Service waits", none_waits).await;
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_class_is_reported_with_the_nearest_one_and_a_foreign_class_is_not() {
    let mut world = World::new().await;
    world.create_service_with("typo", json!({"spec": {"loadBalancerClass": "bowline.dev/locla"}})).await;
    world.create_service_with("foreign", json!({"spec": {"loadBalancerClass": "service.example.com/nlb"}})).await;
    world.create_service_with("other", json!({"spec": {"loadBalancerClass": "bowline.dev/aws"}})).await;
    world.start();
    let reported = async || world.event("typo", "UnknownLoadBalancerClass").await;
    let message = world.eventually("a warning", reported).await.message.unwrap();
    assert!(message.contains("Did you mean bowline.dev/local?"), "{message}");
    for name in ["foreign", "other"] {
        assert!(world.event(name, "UnknownLoadBalancerClass").await.is_none(), "{name}");
    }
}
