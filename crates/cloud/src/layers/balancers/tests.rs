//! Questions about balancers from outside: what the callers get, and what reaches the cloud.

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

const GATHER: Duration = Duration::from_millis(3);

fn layers(fake: &Arc<Fake>) -> Arc<Layered> {
    let options = LayerOptions { gather: GATHER, ..LayerOptions::default() };
    Arc::new(Layered::new(Arc::clone(fake) as _, "c", &options, &prometheus::Registry::new()))
}

/// A cloud that takes a second, and likes to be asked about this many balancers at once.
fn cloud(batch: usize) -> Arc<Fake> {
    Arc::new(Fake::new("c").batch_observe(batch).latency(Duration::from_secs(1)))
}

fn desired(service: &str) -> DesiredLoadBalancer {
    wish_with(service, "")
}

/// Wishes with different notes are different wishes for the same balancer.
fn wish_with(service: &str, note: &str) -> DesiredLoadBalancer {
    let (namespace, service) = ("default".to_owned(), service.to_owned());
    let key = LoadBalancerKey { cluster: "k".into(), namespace, uid: format!("uid-of-{service}"), service };
    let annotations = Arc::new([("note".to_owned(), note.to_owned())].into());
    DesiredLoadBalancer { key, annotations, settings: Arc::default(), spec: None }
}

/// Whose balancer was seen, or why none was.
fn told(answer: Answer) -> String {
    match answer {
        Ok(None) => "None".to_owned(),
        Ok(Some(state)) => state.resources.get::<Value>().unwrap()[0].as_str().unwrap().to_owned(),
        Err(error) => error.kind().as_str().to_owned(),
    }
}

async fn ask(layers: Arc<Layered>, service: &str) -> String {
    told(layers.observe_load_balancer(&desired(service)).await)
}

/// The batches that reached the cloud.
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
async fn questions_of_one_moment_are_asked_together_in_batches_that_run_side_by_side() {
    let (fake, begun) = (cloud(40), Instant::now());
    let layers = layers(&fake);
    let services: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
    let answers = join_all(services.iter().map(|service| ask(layers.clone(), service))).await;
    assert_eq!(answers, services);
    assert_eq!(sizes(&fake), [40, 40, 20]);
    assert_eq!(fake.most_at_once.load(Ordering::SeqCst), 3);
    assert_eq!(begun.elapsed(), GATHER + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_answer_is_too_large_is_read_in_halves() {
    let fake = cloud(100);
    fake.largest_observation.store(30, Ordering::SeqCst);
    let layers = layers(&fake);
    let services: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
    for (asked, expected) in [(100, vec![100, 50, 25, 25, 50, 25, 25]), (100, vec![26, 26, 26, 22]), (28, vec![27, 1])]
    {
        let before = sizes(&fake).len();
        let services = &services[..asked];
        let answers = join_all(services.iter().map(|service| ask(layers.clone(), service))).await;
        assert_eq!(answers, services);
        assert_eq!(sizes(&fake)[before..], expected);
    }
    fake.largest_observation.store(0, Ordering::SeqCst);
    assert_eq!(ask(layers.clone(), "a").await, "unexpected", "one that is too large alone fails");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_answers_one_by_one_is_asked_at_once() {
    for batch in [0, 1] {
        let (fake, begun) = (cloud(batch), Instant::now());
        let layers = layers(&fake);
        let answers = join_all(["a", "b", "a"].map(|service| ask(layers.clone(), service))).await;
        assert_eq!(answers, ["a", "b", "a"]);
        assert_eq!(sizes(&fake), [1, 1, 1]);
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "nobody waits for others");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_comes_later_does_not_wait_for_the_call_under_way() {
    let (fake, begun) = (cloud(10), Instant::now());
    let layers = layers(&fake);
    let later = async {
        sleep(GATHER * 2).await;
        ask(layers.clone(), "a").await
    };
    let answers = tokio::join!(ask(layers.clone(), "a"), later);
    assert_eq!(answers, ("a".to_owned(), "a".to_owned()));
    assert_eq!(sizes(&fake), [1, 1], "what was seen before the question is no answer to it");
    assert_eq!(begun.elapsed(), GATHER * 3 + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_nobodys_answer_away() {
    // The first caller is the one that began to gather; it gives up before the call, or during it.
    for patience in [GATHER / 2, GATHER * 2] {
        let fake = cloud(10);
        let layers = layers(&fake);
        let hasty = timeout(patience, ask(layers.clone(), "a"));
        let (hasty, same, other) = tokio::join!(hasty, ask(layers.clone(), "a"), ask(layers.clone(), "b"));
        assert!(hasty.is_err());
        assert_eq!((same, other), ("a".to_owned(), "b".to_owned()));
        assert_eq!(batches(&fake), [["a", "b"]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_any_more_is_not_asked() {
    let fake = cloud(10);
    let layers = layers(&fake);
    assert!(timeout(GATHER / 2, ask(layers.clone(), "a")).await.is_err());
    assert_eq!(ask(layers.clone(), "b").await, "b");
    assert_eq!(batches(&fake), [["b"]]);
}

#[tokio::test(start_paused = true)]
async fn equal_wishes_share_an_answer_and_other_wishes_of_the_same_balancer_have_a_call_of_their_own() {
    let fake = cloud(10);
    let layers = layers(&fake);
    let wanted = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("a", "3"), ("b", "2")];
    let wanted = wanted.map(|(service, note)| wish_with(service, note));
    let seen = |desired: &DesiredLoadBalancer| Opaque::new(json!([desired.key.service, desired.annotations]));
    let answers = join_all(wanted.iter().map(|desired| layers.observe_load_balancer(desired))).await;
    for (desired, answer) in wanted.iter().zip(answers) {
        assert_eq!(answer.unwrap().map(|state| state.resources), Some(seen(desired)));
    }
    assert_eq!(batches(&fake), [vec!["a", "b"], vec!["a", "b"], vec!["a"]]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_cut_to_the_size_of_a_batch_and_answered_in_its_order() {
    for (batch, size) in [(0, 1), (1, 1), (30, 30), (1000, 100)] {
        let (fake, begun) = (cloud(batch), Instant::now());
        let services: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
        let wanted: Vec<_> = services.iter().map(|service| desired(service)).collect();
        let answers = layers(&fake).observe_load_balancers(&wanted).await;
        assert_eq!(answers.into_iter().map(told).collect::<Vec<_>>(), services);
        assert_eq!((sizes(&fake).iter().max(), sizes(&fake).iter().sum()), (Some(&size), 100));
        assert!(fake.most_at_once.load(Ordering::SeqCst) <= AT_ONCE);
        let rounds = 100_usize.div_ceil(size).div_ceil(AT_ONCE) as u64;
        assert_eq!(begun.elapsed(), Duration::from_secs(rounds), "a list has no reason to wait for others");
    }
    assert!(layers(&cloud(10)).observe_load_balancers(&[]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_answers_is_an_error_for_all_that_were_asked() {
    let fake = cloud(3);
    let layers = layers(&fake);
    fake.loses_answers.store(true, Ordering::SeqCst);
    let answers = join_all(["a", "b"].map(|service| ask(layers.clone(), service))).await;
    assert_eq!(answers, ["unexpected"; 2]);
    let answers = layers.observe_load_balancers(&["a", "b", "c", "d"].map(desired)).await;
    assert_eq!(answers.into_iter().map(told).collect::<Vec<_>>(), ["unexpected"; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_gives_errors_and_is_asked_again() {
    let fake = cloud(10);
    let layers = layers(&fake);
    fake.panics.store(true, Ordering::SeqCst);
    let answers = join_all(["a", "b"].map(|service| ask(layers.clone(), service))).await;
    assert_eq!(answers, ["unexpected"; 2]);
    fake.panics.store(false, Ordering::SeqCst);
    assert_eq!(ask(layers.clone(), "a").await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_balancers_is_unsupported() {
    let mut fake = Fake::new("c");
    fake.capabilities.load_balancers = None;
    assert_eq!(ask(layers(&Arc::new(fake)), "a").await, "unsupported");
}

/// Callers with these wishes come one after the other.
async fn truth_in_fit_batches(batch: usize, questions: Vec<(u64, u8, u8)>) {
    let fake = cloud(batch);
    let layers = layers(&fake);
    let asked = questions.into_iter().map(|(pause, service, note)| {
        let (layers, desired) = (layers.clone(), wish_with(&format!("s{service}"), &note.to_string()));
        async move {
            sleep(Duration::from_millis(pause)).await;
            let state = layers.observe_load_balancer(&desired).await.unwrap().unwrap();
            assert_eq!(state.resources, Opaque::new(json!([desired.key.service, desired.annotations])));
        }
    });
    join_all(asked).await;
    for services in batches(&fake) {
        assert!(services.len() <= batch.max(1), "{services:?}");
        assert_eq!(services.iter().collect::<BTreeSet<_>>().len(), services.len(), "{services:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn everybody_gets_their_answer_and_no_batch_is_too_large_or_ambiguous(
        batch in 0..6_usize,
        questions in prop::collection::vec((0..8_u64, 0..6_u8, 0..3_u8), 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(truth_in_fit_batches(batch, questions));
    }
}
