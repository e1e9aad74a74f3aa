#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use futures::future::join_all;

use super::*;
use crate::fake::{Call, Fake};
use crate::layers::{LayerOptions, Layered};

fn layers(fake: &Arc<Fake>) -> Layered {
    Layered::new(fake.clone(), "c", &LayerOptions::default(), &prometheus::Registry::new())
}

/// A cloud with this batch size, whose calls take one second.
fn fake(batch: usize, lock: Option<&str>) -> Arc<Fake> {
    let mut fake = Fake::new("c").latency(Duration::from_secs(1));
    fake.capabilities.routes.as_mut().unwrap().batch = batch;
    *fake.route_lock.lock().unwrap() = lock.map(str::to_owned);
    Arc::new(fake)
}

fn spec(number: usize) -> RouteSpec {
    RouteSpec {
        name_hint: "h".to_owned(),
        node: format!("n{number}").as_str().into(),
        provider_id: None,
        node_addresses: Vec::new(),
        destination: format!("10.0.{number}.0/24").parse().unwrap(),
        cluster_uid: None,
    }
}

fn cluster() -> ClusterName {
    ClusterName::from("k")
}

async fn create_all(layers: &Layered, specs: &[RouteSpec]) -> Vec<Result<Route>> {
    let cluster = cluster();
    join_all(specs.iter().map(|spec| layers.create_route(&cluster, spec))).await
}

/// Verb and number of routes of each call.
fn written(fake: &Fake) -> Vec<(&'static str, usize)> {
    let sizes = fake.calls().into_iter().map(|call| match call {
        Call::Routes(verb, destinations) => (verb, destinations.len()),
        other => panic!("{other:?}"),
    });
    sizes.collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_writes_are_batched_and_each_caller_gets_its_own_result() {
    let fake = fake(10, Some("router"));
    let layers = layers(&fake);
    let specs: Vec<_> = (0..12).map(spec).collect();
    let old: Vec<_> = (20..23).map(|number| Route::of(&spec(number))).collect();
    let cluster = cluster();
    let deletes = join_all(old.iter().map(|route| layers.delete_route(&cluster, route)));
    let (created, deleted) = tokio::join!(create_all(&layers, &specs), deletes);
    let destinations: Vec<_> = created.into_iter().map(|route| route.unwrap().destination).collect();
    assert_eq!(destinations, specs.iter().map(|spec| spec.destination).collect::<Vec<_>>());
    assert!(deleted.iter().all(Result::is_ok));
    assert_eq!(written(&fake), [("delete", 3), ("create", 10), ("create", 2)]);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 1, "serialised by the lock");
}

#[tokio::test(start_paused = true)]
async fn writes_that_arrive_while_the_lock_is_held_form_the_next_batch() {
    let fake = fake(10, Some("router"));
    let layers = layers(&fake);
    let late = async {
        sleep(Duration::from_millis(500)).await;
        create_all(&layers, &(1..5).map(spec).collect::<Vec<_>>()).await
    };
    let first = [spec(0)];
    tokio::join!(create_all(&layers, &first), late);
    assert_eq!(written(&fake), [("create", 1), ("create", 4)]);
    sleep(Duration::from_millis(10)).await;
    assert!(layers.routes.lock().is_empty(), "no task is left");
}

#[tokio::test(start_paused = true)]
async fn without_a_lock_batches_run_concurrently() {
    let fake = fake(2, None);
    assert!(create_all(&layers(&fake), &(0..6).map(spec).collect::<Vec<_>>()).await.iter().all(Result::is_ok));
    assert_eq!(written(&fake), [("create", 2); 3]);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 2, "max_parallel");
}

#[tokio::test(start_paused = true)]
async fn with_a_lock_single_writes_are_serialised() {
    let fake = fake(1, Some("router"));
    assert!(create_all(&layers(&fake), &(0..3).map(spec).collect::<Vec<_>>()).await.iter().all(Result::is_ok));
    assert_eq!(written(&fake), [("create", 1); 3]);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn writes_wait_while_a_plan_holds_their_lock() {
    let fake = fake(10, Some("router"));
    let layers = layers(&fake);
    let plan = layers.locks().take(&["router".to_owned()].into()).await;
    let release = async {
        sleep(Duration::from_secs(60)).await;
        assert_eq!(fake.calls(), []);
        drop(plan);
    };
    let specs: Vec<_> = (0..3).map(spec).collect();
    let (created, ()) = tokio::join!(create_all(&layers, &specs), release);
    assert!(created.iter().all(Result::is_ok));
    assert_eq!(written(&fake), [("create", 3)]);
}

#[tokio::test(start_paused = true)]
async fn two_writes_of_one_destination_are_in_different_batches() {
    let fake = fake(10, Some("router"));
    create_all(&layers(&fake), &[spec(0), spec(0), spec(1)]).await;
    assert_eq!(written(&fake), [("create", 2), ("create", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_route_does_not_fail_the_rest_of_its_batch() {
    let fake = fake(10, Some("router"));
    fake.fail_item("10.0.1.0/24", [Error::new(ErrorKind::InvalidConfig, "create", "refused")]);
    let created = create_all(&layers(&fake), &(0..3).map(spec).collect::<Vec<_>>()).await;
    assert_eq!(created.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_result_or_a_panic_fails_only_one_batch() {
    let fake = fake(10, Some("router"));
    let layers = layers(&fake);
    for fault in [&fake.loses_results, &fake.panics] {
        fault.store(true, Ordering::SeqCst);
        let created = create_all(&layers, &[spec(0), spec(1)]).await;
        assert!(created.iter().all(|route| route.as_ref().unwrap_err().kind() == ErrorKind::Unexpected), "{created:?}");
        fault.store(false, Ordering::SeqCst);
        assert!(create_all(&layers, &[spec(0)]).await[0].is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_waiting_caller_is_not_started() {
    let fake = fake(10, Some("router"));
    let layers = layers(&fake);
    let cluster = cluster();
    let abandoned = spec(0);
    let timed_out = tokio::time::timeout(Duration::from_millis(1), layers.create_route(&cluster, &abandoned)).await;
    assert!(timed_out.is_err());
    assert!(create_all(&layers, &[spec(1)]).await[0].is_ok());
    assert_eq!(fake.calls(), [Call::Routes("create", vec!["10.0.1.0/24".to_owned()])]);
}
