//! Tests of load balancer observation through the layers: results of callers and calls to the cloud.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bowline_core::Opaque;
use futures::future::join_all;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::fake::{Call, Fake};
use crate::layers::{LayerOptions, Layered};

const BATCH_WINDOW: Duration = Duration::from_millis(3);

fn layers(fake: &Arc<Fake>) -> Arc<Layered> {
    let options = LayerOptions { batch_window: BATCH_WINDOW, ..LayerOptions::default() };
    Arc::new(Layered::new(Arc::clone(fake) as _, "c", &options, &prometheus::Registry::new()))
}

/// A cloud with this batch size, whose calls take one second.
fn cloud(batch: usize) -> Arc<Fake> {
    Arc::new(Fake::new("c").batch_observe(batch).latency(Duration::from_secs(1)))
}

fn desired(service: &str) -> DesiredLoadBalancer {
    desired_with(service, "")
}

/// Desired states with different notes are different desired states of the same load balancer.
fn desired_with(service: &str, note: &str) -> DesiredLoadBalancer {
    let (namespace, service) = ("default".to_owned(), service.to_owned());
    let key = LoadBalancerKey { cluster: "k".into(), namespace, uid: format!("uid-of-{service}"), service };
    let annotations = Arc::new([("note".to_owned(), note.to_owned())].into());
    DesiredLoadBalancer { key, annotations, settings: Arc::default(), spec: None }
}

/// Returns the Service of the observed load balancer, or the kind of the error.
fn summary(result: Observed) -> String {
    match result {
        Ok(None) => "None".to_owned(),
        Ok(Some(state)) => state.resources.get::<Value>().unwrap()[0].as_str().unwrap().to_owned(),
        Err(error) => error.kind().as_str().to_owned(),
    }
}

async fn observe(layers: Arc<Layered>, service: &str) -> String {
    summary(layers.observe_load_balancer(&desired(service)).await)
}

/// Batches that reached the cloud.
fn batches(fake: &Fake) -> Vec<Vec<String>> {
    let services = |call| match call {
        Call::Observe(services) => Some(services),
        _ => None,
    };
    fake.calls().into_iter().filter_map(services).collect()
}

fn sizes(fake: &Fake) -> Vec<usize> {
    batches(fake).iter().map(Vec::len).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_are_combined_into_batches_that_run_concurrently() {
    let (fake, begun) = (cloud(40), Instant::now());
    let layers = layers(&fake);
    let services: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
    let results = join_all(services.iter().map(|service| observe(layers.clone(), service))).await;
    assert_eq!(results, services);
    assert_eq!(sizes(&fake), [40, 40, 20]);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 3);
    assert_eq!(begun.elapsed(), BATCH_WINDOW + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_response_is_too_large_is_split() {
    let fake = cloud(100);
    fake.largest_observation.store(30, Ordering::SeqCst);
    let layers = layers(&fake);
    let services: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
    for (count, expected) in [(100, vec![100, 50, 25, 25, 50, 25, 25]), (100, vec![26, 26, 26, 22]), (28, vec![27, 1])]
    {
        let before = sizes(&fake).len();
        let services = &services[..count];
        let results = join_all(services.iter().map(|service| observe(layers.clone(), service))).await;
        assert_eq!(results, services);
        assert_eq!(sizes(&fake)[before..], expected);
    }
    fake.largest_observation.store(0, Ordering::SeqCst);
    assert_eq!(observe(layers.clone(), "a").await, "unexpected", "a single load balancer that is too large fails");
}

#[tokio::test(start_paused = true)]
async fn without_batches_requests_are_sent_immediately() {
    for batch in [0, 1] {
        let (fake, begun) = (cloud(batch), Instant::now());
        let layers = layers(&fake);
        let results = join_all(["a", "b", "a"].map(|service| observe(layers.clone(), service))).await;
        assert_eq!(results, ["a", "b", "a"]);
        assert_eq!(sizes(&fake), [1, 1, 1]);
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "there is no batch window");
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_request_does_not_wait_for_the_call_in_progress() {
    let (fake, begun) = (cloud(10), Instant::now());
    let layers = layers(&fake);
    let later = async {
        sleep(BATCH_WINDOW * 2).await;
        observe(layers.clone(), "a").await
    };
    let results = tokio::join!(observe(layers.clone(), "a"), later);
    assert_eq!(results, ("a".to_owned(), "a".to_owned()));
    assert_eq!(sizes(&fake), [1, 1], "an observation must start after its request");
    assert_eq!(begun.elapsed(), BATCH_WINDOW * 3 + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn requests_that_follow_each_other_closely_are_one_batch_up_to_a_limit() {
    let gap = BATCH_WINDOW * 2 / 3;
    for (count, batches) in [(4, 1), (20, 1), (60, 2)] {
        let (fake, names) = (cloud(100), (0..count).map(|number| number.to_string()).collect::<Vec<_>>());
        let layers = layers(&fake);
        let late = names.iter().zip(0..).map(|(name, number)| {
            let layers = layers.clone();
            async move {
                sleep(gap * number).await;
                observe(layers, name).await
            }
        });
        assert_eq!(join_all(late).await, names);
        assert_eq!(sizes(&fake).len(), batches, "{count} requests");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_affect_other_callers() {
    // The first caller started the batch window. It gives up before the call, or during it.
    for timeout_after in [BATCH_WINDOW / 2, BATCH_WINDOW * 2] {
        let fake = cloud(10);
        let layers = layers(&fake);
        let impatient = timeout(timeout_after, observe(layers.clone(), "a"));
        let (impatient, same, other) =
            tokio::join!(impatient, observe(layers.clone(), "a"), observe(layers.clone(), "b"));
        assert!(impatient.is_err());
        assert_eq!((same, other), ("a".to_owned(), "b".to_owned()));
        assert_eq!(batches(&fake), [["a", "b"]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_waiting_callers_is_dropped() {
    let fake = cloud(10);
    let layers = layers(&fake);
    assert!(timeout(BATCH_WINDOW / 2, observe(layers.clone(), "a")).await.is_err());
    assert_eq!(observe(layers.clone(), "b").await, "b");
    assert_eq!(batches(&fake), [["b"]]);
}

#[tokio::test(start_paused = true)]
async fn equal_requests_share_a_result_and_different_ones_of_a_load_balancer_get_separate_calls() {
    let fake = cloud(10);
    let layers = layers(&fake);
    let desired = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("a", "3"), ("b", "2")];
    let desired = desired.map(|(service, note)| desired_with(service, note));
    let expected = |desired: &DesiredLoadBalancer| Opaque::new(json!([desired.key.service, desired.annotations]));
    let results = join_all(desired.iter().map(|desired| layers.observe_load_balancer(desired))).await;
    for (desired, result) in desired.iter().zip(results) {
        assert_eq!(result.unwrap().map(|state| state.resources), Some(expected(desired)));
    }
    assert_eq!(batches(&fake), [vec!["a", "b"], vec!["a", "b"], vec!["a"]]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_split_into_batches_and_results_keep_their_order() {
    for (batch, size) in [(0, 1), (1, 1), (30, 30), (1000, 100)] {
        let (fake, begun) = (cloud(batch), Instant::now());
        let services: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
        let desired: Vec<_> = services.iter().map(|service| desired(service)).collect();
        let results = layers(&fake).observe_load_balancers(&desired).await;
        assert_eq!(results.into_iter().map(summary).collect::<Vec<_>>(), services);
        assert_eq!((sizes(&fake).iter().max(), sizes(&fake).iter().sum()), (Some(&size), 100));
        assert!(fake.max_concurrent.load(Ordering::SeqCst) <= MAX_CONCURRENT);
        let rounds = 100_usize.div_ceil(size).div_ceil(MAX_CONCURRENT) as u64;
        assert_eq!(begun.elapsed(), Duration::from_secs(rounds), "a list does not wait for the batch window");
    }
    assert!(layers(&cloud(10)).observe_load_balancers(&[]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_results_fails_the_whole_batch() {
    let fake = cloud(3);
    let layers = layers(&fake);
    fake.loses_results.store(true, Ordering::SeqCst);
    let results = join_all(["a", "b"].map(|service| observe(layers.clone(), service))).await;
    assert_eq!(results, ["unexpected"; 2]);
    let results = layers.observe_load_balancers(&["a", "b", "c", "d"].map(desired)).await;
    assert_eq!(results.into_iter().map(summary).collect::<Vec<_>>(), ["unexpected"; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_provider_is_an_error_and_the_next_call_works() {
    let fake = cloud(10);
    let layers = layers(&fake);
    fake.panics.store(true, Ordering::SeqCst);
    let results = join_all(["a", "b"].map(|service| observe(layers.clone(), service))).await;
    assert_eq!(results, ["unexpected"; 2]);
    fake.panics.store(false, Ordering::SeqCst);
    assert_eq!(observe(layers.clone(), "a").await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_load_balancers_is_unsupported() {
    let mut fake = Fake::new("c");
    fake.capabilities.load_balancers = None;
    assert_eq!(observe(layers(&Arc::new(fake)), "a").await, "unsupported");
}

/// Callers request these observations at different times.
async fn observes_in_valid_batches(batch: usize, requests: Vec<(u64, u8, u8)>) {
    let fake = cloud(batch);
    let layers = layers(&fake);
    let observations = requests.into_iter().map(|(pause, service, note)| {
        let (layers, desired) = (layers.clone(), desired_with(&format!("s{service}"), &note.to_string()));
        async move {
            sleep(Duration::from_millis(pause)).await;
            let state = layers.observe_load_balancer(&desired).await.unwrap().unwrap();
            assert_eq!(state.resources, Opaque::new(json!([desired.key.service, desired.annotations])));
        }
    });
    join_all(observations).await;
    for services in batches(&fake) {
        assert!(services.len() <= batch.max(1), "{services:?}");
        assert_eq!(services.iter().collect::<BTreeSet<_>>().len(), services.len(), "{services:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_caller_gets_its_result_and_every_batch_is_valid(
        batch in 0..6_usize,
        requests in prop::collection::vec((0..8_u64, 0..6_u8, 0..3_u8), 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(observes_in_valid_batches(batch, requests));
    }
}
