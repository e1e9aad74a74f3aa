//! Tests of the layers as a whole: results of callers and calls to the cloud.

use std::sync::atomic::Ordering;

use bowline_core::{
    LoadBalancerSpec, Opaque, PortSpec, Protocol, SessionAffinity, TargetNode, TargetSet, TrafficPolicy, Verb,
};
use futures::future::join_all;
use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use super::*;
use crate::fake::{Call, Fake, named, summary, with_id};
use crate::{Absence, LoadBalancerKind};

const MINUTE: Freshness = Freshness::Within(Duration::from_secs(60));

fn layers(fake: &Arc<Fake>) -> Arc<Layered> {
    layers_with(fake, LayerOptions::default())
}

fn layers_with(fake: &Arc<Fake>, options: LayerOptions) -> Arc<Layered> {
    Arc::new(Layered::new(Arc::clone(fake) as _, &fake.info().name, &options, &prometheus::Registry::new()))
}

async fn find(layers: &Layered, refs: &[InstanceRef], freshness: Freshness) -> Vec<String> {
    layers.find_instances(refs, freshness).await.iter().map(summary).collect()
}

fn ids(range: std::ops::Range<usize>) -> Vec<InstanceRef> {
    range.map(|n| with_id(&format!("n{n}"), &format!("c://id-n{n}"))).collect()
}

/// The cloud `c` with `count` machines `n0`, `n1`, …
fn cloud_with(count: usize) -> Fake {
    let fake = Fake::new("c");
    (0..count).for_each(|n| fake.add(&format!("n{n}"), &format!("id-n{n}")));
    fake
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "test", "injected")
}

fn finds(fake: &Fake) -> usize {
    fake.calls().iter().filter(|call| matches!(call, Call::Find(_))).count()
}

fn lists(fake: &Fake) -> usize {
    fake.calls().iter().filter(|call| matches!(call, Call::List(_))).count()
}

// ---- status

#[tokio::test(start_paused = true)]
async fn the_status_shows_the_last_results_of_the_provider() {
    let fake = Arc::new(cloud_with(1).latency(Duration::from_secs(2)));
    let layers = layers(&fake);
    let status = layers.status();
    assert_eq!((&status["lastSuccessSecondsAgo"], &status["lastError"]), (&().into(), &().into()));
    let (_, status) = tokio::join!(layers.check(), async {
        sleep(Duration::from_secs(1)).await;
        layers.status()
    });
    assert_eq!(status["operationsUnderWay"], 1);
    fake.fail([Some(error(ErrorKind::RateLimited))]);
    assert!(layers.check().await.is_err());
    sleep(Duration::from_secs(30)).await;
    let status = layers.status();
    assert_eq!((&status["operationsUnderWay"], &status["pausedForSeconds"]), (&0.into(), &0.0.into()));
    assert_eq!((&status["lastSuccessSecondsAgo"], &status["lastError"]["secondsAgo"]), (&32.0.into(), &30.0.into()));
    assert_eq!(
        (&status["lastError"]["kind"], &status["lastError"]["message"]),
        (&"rate_limited".into(), &"test: injected".into())
    );
    layers.start().await.unwrap();
    assert_eq!(layers.health(), Ok(()), "a restart would not help");
}

// ---- cache and reads in flight

#[tokio::test(start_paused = true)]
async fn results_are_cached_up_to_the_maximum_age() {
    let fake = Arc::new(cloud_with(1));
    let layers = layers(&fake);
    for (wait, calls) in [(0, 1), (30, 1), (29, 1), (2, 2), (60, 2)] {
        sleep(Duration::from_secs(wait)).await;
        assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["n0"]);
        assert_eq!(finds(&fake), calls, "after another {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_with_freshness_now_bypasses_and_fills_the_cache() {
    let fake = Arc::new(cloud_with(1));
    let layers = layers(&fake);
    for calls in 1..=3 {
        assert_eq!(find(&layers, &ids(0..1), Freshness::Now).await, ["n0"]);
        assert_eq!(finds(&fake), calls);
    }
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["n0"]);
    assert_eq!(finds(&fake), 3);
}

#[tokio::test(start_paused = true)]
async fn gone_not_mine_and_errors_are_never_cached() {
    let fake = Arc::new(cloud_with(1));
    let layers = layers(&fake);
    assert_eq!(find(&layers, &ids(5..6), MINUTE).await, ["Gone"]);
    fake.add("n5", "id-n5");
    assert_eq!(find(&layers, &ids(5..6), MINUTE).await, ["n5"]);
    fake.fail_item("n6", [error(ErrorKind::PermissionDenied)]);
    assert_eq!(find(&layers, &ids(6..7), MINUTE).await, ["permission_denied"]);
    assert_eq!(find(&layers, &ids(6..7), MINUTE).await, ["Gone"]);
    fake.declines.store(true, Ordering::SeqCst);
    assert_eq!(find(&layers, &ids(7..8), MINUTE).await, ["NotMine"]);
    fake.declines.store(false, Ordering::SeqCst);
    assert_eq!(find(&layers, &ids(7..8), MINUTE).await, ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_gone_is_removed_from_the_cache() {
    let fake = Arc::new(cloud_with(2));
    let layers = layers(&fake);
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["n0"]);
    fake.remove("n0");
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["n0"]);
    assert_eq!(find(&layers, &ids(0..1), Freshness::Now).await, ["Gone"]);
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_keeps_the_cached_result() {
    let fake = Arc::new(cloud_with(1));
    let layers = layers(&fake);
    find(&layers, &ids(0..1), MINUTE).await;
    fake.fail([Some(error(ErrorKind::PermissionDenied))]);
    assert_eq!(find(&layers, &ids(0..1), Freshness::Now).await, ["permission_denied"]);
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["n0"]);
}

#[tokio::test(start_paused = true)]
async fn only_a_lookup_with_a_maximum_age_joins_a_read_in_flight() {
    let fake = Arc::new(cloud_with(2).latency(Duration::from_secs(10)));
    let layers = layers(&fake);
    let first = tokio::spawn({
        let layers = Arc::clone(&layers);
        async move { find(&layers, &ids(0..1), MINUTE).await }
    });
    sleep(Duration::from_secs(2)).await;
    fake.remove("n0");
    let refs = ids(0..1);
    let second = find(&layers, &refs, MINUTE);
    let impatient = find(&layers, &refs, Freshness::Within(Duration::from_secs(1)));
    let now = find(&layers, &refs, Freshness::Now);
    let results = tokio::join!(first, second, now, impatient);
    assert_eq!(results.0.unwrap(), ["n0"]);
    assert_eq!(results.1, ["n0"], "joins the read in flight");
    assert_eq!(results.2, ["Gone"], "the read began before the lookup");
    assert_eq!(results.3, ["Gone"], "the read is older than the maximum age");
    assert_eq!(finds(&fake), 2, "the two that did not join share one read");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_concurrent_lookups_make_one_call() {
    let fake = Arc::new(cloud_with(100));
    let layers = layers(&fake);
    let callers = (0..100).map(|n| {
        let (layers, freshness) = (Arc::clone(&layers), if n % 2 == 0 { Freshness::Now } else { MINUTE });
        tokio::spawn(async move { find(&layers, &ids(n..n + 1), freshness).await })
    });
    for (n, result) in join_all(callers).await.into_iter().enumerate() {
        assert_eq!(result.unwrap(), [format!("n{n}")]);
    }
    assert_eq!(finds(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn equal_lookups_share_a_call_without_batch_lookups() {
    let fake = Arc::new(cloud_with(3).limits(|limits| limits.batch_lookup = 1));
    let layers = layers(&fake);
    let callers = (0..30).map(|n| {
        let layers = Arc::clone(&layers);
        async move { find(&layers, &ids(n % 3..n % 3 + 1), Freshness::Now).await }
    });
    join_all(callers).await;
    assert_eq!(finds(&fake), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_affect_other_callers() {
    let fake = Arc::new(cloud_with(1).latency(Duration::from_secs(10)));
    let layers = layers(&fake);
    let refs = ids(0..1);
    let impatient = tokio::time::timeout(Duration::from_secs(1), find(&layers, &refs, MINUTE));
    let (impatient, patient) = tokio::join!(impatient, find(&layers, &refs, MINUTE));
    assert!(impatient.is_err());
    assert_eq!(patient, ["n0"]);
    assert_eq!(finds(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_machine_of_the_same_name_does_not_get_the_cached_result() {
    let fake = Arc::new(cloud_with(1));
    let layers = layers(&fake);
    for (uuid, calls) in [("first", 1), ("first", 1), ("second", 2)] {
        let refs = InstanceRef { system_uuid: Some(uuid.to_owned()), ..named("n0") };
        find(&layers, &[refs], MINUTE).await;
        assert_eq!(finds(&fake), calls, "{uuid}");
    }
}

#[tokio::test(start_paused = true)]
async fn entries_older_than_the_largest_maximum_age_are_evicted() {
    let fake = Arc::new(cloud_with(200));
    let layers = layers(&fake);
    find(&layers, &ids(0..100), MINUTE).await;
    assert_eq!(layers.cache.len(), 100);
    sleep(Duration::from_secs(61)).await;
    find(&layers, &ids(100..101), MINUTE).await;
    assert_eq!(layers.cache.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_provider_is_an_error_and_the_next_call_works() {
    let fake = Arc::new(cloud_with(1).limits(|limits| limits.list_page = Some(10)));
    let layers = layers(&fake);
    fake.panics.store(true, Ordering::SeqCst);
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["unexpected"]);
    fake.panics.store(false, Ordering::SeqCst);
    assert_eq!(find(&layers, &ids(0..1), MINUTE).await, ["n0"]);
}

// ---- lookups

#[tokio::test(start_paused = true)]
async fn lookups_are_split_into_batches_that_run_in_parallel_up_to_the_limit() {
    let fake = cloud_with(25).latency(Duration::from_secs(1)).limits(|limits| {
        limits.batch_lookup = 4;
        limits.max_parallel = 3;
    });
    let fake = Arc::new(fake);
    let results = find(&layers(&fake), &ids(0..25), Freshness::Now).await;
    assert_eq!(results, (0..25).map(|n| format!("n{n}")).collect::<Vec<_>>());
    let sizes =
        fake.calls().iter().map(|call| matches!(call, Call::Find(names) if names.len() <= 4)).collect::<Vec<_>>();
    assert_eq!(sizes, [true; 7]);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn the_parallel_limit_applies_across_reads() {
    let fake = Arc::new(cloud_with(6).latency(Duration::from_secs(1)).limits(|limits| {
        limits.batch_lookup = 1;
        limits.max_parallel = 2;
    }));
    let layers = layers(&fake);
    let (early, late) = (ids(0..3), ids(3..6));
    let later = async {
        sleep(Duration::from_millis(500)).await;
        find(&layers, &late, MINUTE).await
    };
    tokio::join!(find(&layers, &early, MINUTE), later);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_results_fails_the_whole_batch() {
    let fake = Arc::new(cloud_with(3));
    fake.loses_results.store(true, Ordering::SeqCst);
    assert_eq!(find(&layers(&fake), &ids(0..3), Freshness::Now).await, ["unexpected"; 3]);
}

#[tokio::test(start_paused = true)]
async fn foreign_ids_and_unsupported_name_lookups_are_not_mine_without_a_call() {
    let fake = Arc::new(cloud_with(1).limits(|limits| limits.lookup_by_name = false));
    let refs = [with_id("n0", "d://id-n0"), with_id("n0", "id-n0"), named("n0")];
    assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, ["NotMine"; 3]);
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_instances_is_unsupported() {
    let mut fake = Fake::new("c");
    fake.capabilities.instances = None;
    let results = layers(&Arc::new(fake)).find_instances(&ids(0..2), Freshness::Now).await;
    let texts: Vec<_> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert_eq!(texts, ["find instances: the provider c has no instances"; 2]);
}

// ---- listings

#[test]
fn a_listing_is_used_only_if_it_is_cheaper_than_lookups() {
    let table = [
        // lookups, machines in the last listing, batch, page, listing?
        (10, None, 1, None, false),
        (10, None, 1, Some(100), true),
        (1, None, 1, Some(100), false),
        (2, None, 1, Some(100), true),
        (2, Some(1000), 1, Some(100), false),
        (10, Some(1000), 1, Some(100), false),
        (11, Some(1000), 1, Some(100), true),
        (500, Some(1000), 100, Some(200), false),
        (501, Some(1000), 100, Some(200), true),
        (0, None, 1, Some(100), false),
        (5, Some(5), 0, Some(0), false),
    ];
    for (lookups, machines, batch_lookup, list_page, expected) in table {
        let limits = crate::InstanceCapabilities { batch_lookup, list_page, ..Default::default() };
        assert_eq!(listing::is_cheaper(lookups, machines, &limits), expected, "{lookups} {machines:?} {limits:?}");
    }
}

#[test]
fn page_cost_is_respected() {
    let limits = crate::InstanceCapabilities { list_page: Some(1000), page_cost: Some(4), ..Default::default() };
    for (machines, few) in [(None, 4), (Some(1), 4), (Some(1000), 4), (Some(5000), 20)] {
        assert!(!listing::is_cheaper(few, machines, &limits), "{machines:?}");
        assert!(listing::is_cheaper(few + 1, machines, &limits), "{machines:?}");
    }
}

/// The cloud `c` without batch lookups, with `page` machines on a page.
fn lister(count: usize, page: usize) -> Arc<Fake> {
    Arc::new(cloud_with(count).limits(|limits| {
        limits.batch_lookup = 1;
        limits.list_page = Some(page);
    }))
}

#[tokio::test(start_paused = true)]
async fn a_listing_resolves_ids_names_and_absence() {
    let fake = lister(7, 3);
    let refs = [ids(0..9), vec![named("n3"), named("missing")]].concat();
    let results = find(&layers(&fake), &refs, Freshness::Now).await;
    assert_eq!(results, ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "Gone", "Gone", "n3", "Gone"]);
    assert_eq!((lists(&fake), finds(&fake)), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn the_size_of_the_last_listing_determines_the_cost_of_the_next() {
    let fake = lister(40, 2);
    let layers = layers(&fake);
    find(&layers, &ids(0..60), Freshness::Now).await;
    assert_eq!((lists(&fake), finds(&fake)), (20, 0), "unknown size: 60 machines on 30 pages are assumed");
    find(&layers, &ids(0..6), Freshness::Now).await;
    assert_eq!((lists(&fake), finds(&fake)), (20, 6), "40 machines are 20 pages");
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_abandoned_once_lookups_are_cheaper() {
    let fake = lister(100, 5);
    let layers = layers(&fake);
    let refs = [ids(0..4), ids(90..92)].concat();
    for (pages, lookups) in [(2, 2), (4, 4)] {
        assert_eq!(find(&layers, &refs, Freshness::Now).await, ["n0", "n1", "n2", "n3", "n90", "n91"]);
        assert_eq!((lists(&fake), finds(&fake)), (pages, lookups));
    }
}

/// Like [`lister`], with this meaning of absence.
fn lister_with(absence: Absence, count: usize) -> Arc<Fake> {
    Arc::new(cloud_with(count).limits(|limits| {
        (limits.batch_lookup, limits.list_page, limits.absence) = (1, Some(100), absence);
    }))
}

#[tokio::test(start_paused = true)]
async fn an_unlisted_id_is_gone_or_looked_up() {
    for (absence, expected, lookups) in
        [(Absence::Proof, "Gone", 0), (Absence::ProofForNames, "n3", 3), (Absence::Question, "n3", 3)]
    {
        let fake = lister_with(absence, 7);
        fake.unlisted.lock().unwrap().push("n3".to_owned());
        let results = find(&layers(&fake), &ids(0..9), Freshness::Now).await;
        assert_eq!(results, ["n0", "n1", "n2", expected, "n4", "n5", "n6", "Gone", "Gone"], "{absence:?}");
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlisted_name_is_gone_or_looked_up() {
    for (absence, lookups) in [(Absence::Proof, 0), (Absence::ProofForNames, 0), (Absence::Question, 2)] {
        let fake = lister_with(absence, 3);
        let refs = ["n0", "n1", "n2", "n7", "n8"].map(named);
        assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, ["n0", "n1", "n2", "Gone", "Gone"]);
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_differ_only_in_case_are_looked_up_unless_absence_is_proof() {
    for (absence, lookups) in [(Absence::Proof, 0), (Absence::ProofForNames, 2), (Absence::Question, 2)] {
        let fake = lister_with(absence, 3);
        fake.add("N1", "id-capital");
        let refs = ["n0", "n1", "n2", "N2"].map(named);
        assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, ["n0", "n1", "n2", "Gone"]);
        assert_eq!(
            (lists(&fake), finds(&fake)),
            (1, lookups),
            "{absence:?}: n1 matches N1 and N2 matches n2, ignoring case"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unread_machine_leaves_names_and_absence_unresolved() {
    let wrong = "unexpected";
    for (absence, expected, lookups) in
        [(Absence::Proof, ["n0", wrong, wrong, wrong], 0), (Absence::Question, ["n0", "Gone", "n1", "Gone"], 3)]
    {
        let fake = lister_with(absence, 3);
        fake.unread.store(1, Ordering::SeqCst);
        let refs = [ids(0..1), ids(7..8), vec![named("n1"), named("n8")]].concat();
        assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, expected, "{absence:?}");
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_empty_listing_all_machines_are_looked_up_unless_absence_is_proof() {
    let fake = lister_with(Absence::Question, 2);
    *fake.unlisted.lock().unwrap() = vec!["n0".to_owned(), "n1".to_owned()];
    let refs = [ids(0..3), vec![named("n1"), named("n8")]].concat();
    assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, ["n0", "n1", "Gone", "n1", "Gone"]);
    assert_eq!((lists(&fake), finds(&fake)), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn only_requested_machines_are_described() {
    let fake = lister_with(Absence::Question, 20);
    fake.lists_in_brief.store(true, Ordering::SeqCst);
    fake.unlisted.lock().unwrap().push("n7".to_owned());
    fake.fail_item("n2", [error(ErrorKind::PermissionDenied)]);
    let refs = [ids(0..3), vec![named("n5")], ids(7..8)].concat();
    let results = layers(&fake).find_instances(&refs, Freshness::Now).await;
    assert_eq!(results.iter().map(summary).collect::<Vec<_>>(), ["n0", "n1", "permission_denied", "n5", "n7"]);
    assert!(results[3].as_ref().unwrap().instance().unwrap().provider_id.is_some(), "{results:?}");
    let described = ["n0", "n1", "n2", "n5", "n7"].map(str::to_owned).to_vec();
    assert_eq!(
        fake.calls(),
        [Call::List(None), Call::Describe(described)],
        "unlisted machines are looked up in the same call"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listing_ends_early_when_all_ids_are_resolved() {
    let fake = lister(100, 5);
    find(&layers(&fake), &ids(0..10), Freshness::Now).await;
    assert_eq!(lists(&fake), 2);
}

#[tokio::test(start_paused = true)]
async fn ids_are_resolved_as_soon_as_their_page_arrives() {
    let fake = Arc::new(cloud_with(20).latency(Duration::from_secs(1)).limits(|limits| {
        limits.batch_lookup = 1;
        limits.list_page = Some(5);
    }));
    let layers = layers(&fake);
    let (all, first) = (ids(0..20), ids(0..1));
    let begun = Instant::now();
    let early = async {
        find(&layers, &first, MINUTE).await;
        begun.elapsed().as_secs()
    };
    let (early, _) = tokio::join!(early, find(&layers, &all, MINUTE));
    assert_eq!((early, begun.elapsed().as_secs()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_name_is_an_error_that_names_both_machines() {
    let fake = lister(5, 2);
    fake.add("n1", "id-twin");
    let results = layers(&fake).find_instances(&[named("n0"), named("n1"), named("n2")], Freshness::Now).await;
    assert_eq!(results.iter().map(summary).collect::<Vec<_>>(), ["n0", "invalid_config", "n2"]);
    let text = results[1].as_ref().unwrap_err().to_string();
    assert!(text.contains("id-n1") && text.contains("id-twin"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_listed_twice_counts_once() {
    let fake = lister(5, 2);
    fake.add("n1", "id-n1");
    let results = find(&layers(&fake), &["n0", "n1", "n2"].map(named), Freshness::Now).await;
    assert_eq!(results, ["n0", "n1", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_found_by_its_whole_provider_id_if_identify_splits_it_differently() {
    let fake = lister(0, 10);
    (0..3).for_each(|n| fake.add_as(&format!("n{n}"), &format!("{n}"), &format!("c:///{n}")));
    let refs: Vec<_> = (0..4).map(|n| with_id(&format!("n{n}"), &format!("c:///{n}"))).collect();
    assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, ["n0", "n1", "n2", "Gone"]);
    assert_eq!(lists(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_provider_id_is_an_error_without_a_call() {
    let fake = Arc::new(cloud_with(1));
    assert_eq!(find(&layers(&fake), &[with_id("n0", "c://")], Freshness::Now).await, ["invalid_config"]);
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failing_page_fails_all_unresolved_lookups() {
    let fake = lister(9, 3);
    fake.fail([None, Some(error(ErrorKind::PermissionDenied))]);
    let refs = [ids(0..4), ids(20..21), vec![named("n0")]].concat();
    let denied = "permission_denied";
    assert_eq!(find(&layers(&fake), &refs, Freshness::Now).await, ["n0", "n1", "n2", denied, denied, denied]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_listing_does_not_prove_absence() {
    let fake = lister(0, 100);
    let results = layers(&fake).find_instances(&ids(0..3), Freshness::Now).await;
    assert_eq!(results.iter().map(summary).collect::<Vec<_>>(), ["unexpected"; 3]);
    assert!(results[0].as_ref().unwrap_err().message().contains("lists no machines at all"));
    assert_eq!((lists(&fake), finds(&fake)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_repeats_pages_is_an_error() {
    let fake = lister(10, 3);
    fake.repeats_pages.store(true, Ordering::SeqCst);
    assert_eq!(find(&layers(&fake), &ids(20..30), Freshness::Now).await, ["unexpected"; 10]);
}

// ---- no retries in the layers

#[tokio::test(start_paused = true)]
async fn the_layers_do_not_retry() {
    let fake = Arc::new(cloud_with(4));
    let layers = layers(&fake);
    fake.fail([Some(error(ErrorKind::Unavailable))]);
    assert_eq!(layers.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    fake.fail_item("n1", [error(ErrorKind::RateLimited)]);
    assert_eq!(find(&layers, &ids(0..3), Freshness::Now).await, ["n0", "rate_limited", "n2"]);
    assert_eq!(fake.calls().len(), 2, "only the call layer retries");
}

// ---- writes

fn key() -> LoadBalancerKey {
    let (namespace, service, uid) = ("default".to_owned(), "web".to_owned(), "u1".to_owned());
    LoadBalancerKey { cluster: "k".into(), namespace, service, uid }
}

fn port(protocol: Protocol, node_port: Option<u16>) -> PortSpec {
    PortSpec { name: String::new(), protocol, port: 80, node_port, app_protocol: None }
}

fn desired(spec: Option<LoadBalancerSpec>) -> DesiredLoadBalancer {
    DesiredLoadBalancer { key: key(), annotations: Arc::default(), settings: Arc::default(), spec: spec.map(Arc::new) }
}

fn plain() -> LoadBalancerSpec {
    LoadBalancerSpec {
        ports: vec![port(Protocol::Tcp, Some(30080))],
        targets: TargetSet::default(),
        source_ranges: vec![],
        requested_address: None,
        ip_families: vec![bowline_core::IpFamily::IPv4],
        session_affinity: SessionAffinity::None,
        traffic_policy: TrafficPolicy::Cluster,
        health_check: None,
    }
}

fn with_every_feature() -> LoadBalancerSpec {
    let target = |name: &str| TargetNode { node: name.into(), provider_id: None, addresses: vec![], draining: false };
    LoadBalancerSpec {
        ports: vec![port(Protocol::Udp, None), port(Protocol::Sctp, Some(1))],
        targets: ["n1", "n2"].map(target).into_iter().collect(),
        source_ranges: vec!["10.0.0.0/8".parse().unwrap()],
        requested_address: Some("192.0.2.1".to_owned()),
        ip_families: vec![bowline_core::IpFamily::IPv4, bowline_core::IpFamily::IPv6],
        session_affinity: SessionAffinity::ClientIp { timeout_seconds: 10 },
        traffic_policy: TrafficPolicy::Local,
        ..plain()
    }
}

#[test]
fn all_unsupported_fields_are_reported_at_once() {
    let (max_ports, max_targets) = (Some(1), Some(1));
    let nothing = LoadBalancerKind { max_ports, max_targets, ..Default::default() };
    let error = capability::check_load_balancer("c", &desired(Some(with_every_feature())), &nothing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "plan load balancer: c does not support this: spec.ports: protocol UDP; spec.ports: protocol SCTP; \
         spec.ports: several protocols on one load balancer; spec.allocateLoadBalancerNodePorts: false; \
         spec.ipFamilies: IPv4; spec.ipFamilies: IPv6; spec.ipFamilies: two families on one load balancer; \
         spec.ports: 2, at most 1; nodes: 2, at most 1; spec.loadBalancerSourceRanges; \
         spec.sessionAffinity: ClientIP; spec.externalTrafficPolicy: Local; spec.loadBalancerIP: 192.0.2.1 \
         (service=default/web)"
    );
}

#[test]
fn a_cloud_with_all_capabilities_accepts_everything() {
    let all = LoadBalancerKind {
        tcp: true,
        udp: true,
        sctp: true,
        mixed_protocols: true,
        source_ranges: true,
        session_affinity: true,
        local_traffic_policy: true,
        requested_address: true,
        without_node_ports: true,
        ip_families: vec![bowline_core::IpFamily::IPv4, bowline_core::IpFamily::IPv6],
        dual_stack: true,
        ..Default::default()
    };
    for spec in [plain(), with_every_feature()] {
        assert!(capability::check_load_balancer("c", &desired(Some(spec)), &all).is_ok());
    }
}

fn route(cidr: &str) -> (RouteSpec, Route) {
    let destination: ipnet::IpNet = cidr.parse().unwrap();
    let spec = RouteSpec {
        name_hint: "u".into(),
        node: "n".into(),
        provider_id: None,
        node_addresses: vec![],
        destination,
        cluster_uid: None,
    };
    (
        spec,
        Route {
            id: "r".into(),
            node: None,
            provider_id: None,
            node_addresses: None,
            next_hop: None,
            destination,
            blackhole: false,
            stamped: false,
            cluster_uid: None,
        },
    )
}

/// Makes a plan and all kinds of writes.
async fn write_everything(layers: &Layered) {
    let plan = layers.plan_load_balancer(&desired(Some(plain())), None).unwrap();
    assert_eq!(plan.steps[0].verb, Verb::Create);
    layers.apply_load_balancer(&key(), &plan.steps[0], None).await.unwrap();
    let (spec, route) = route("10.1.0.0/24");
    layers.create_route(&"k".into(), &spec).await.unwrap();
    layers.delete_route(&"k".into(), &route).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_makes_reads_but_no_writes() {
    let fake = Arc::new(cloud_with(1));
    let layers = layers_with(&fake, LayerOptions { dry_run: true, ..LayerOptions::default() });
    write_everything(&layers).await;
    assert!(fake.calls().is_empty());
    assert!(layers.observe_load_balancers(&[desired(None)]).await[0].is_ok());
    assert!(layers.list_load_balancers(&"k".into()).await.is_ok());
    assert!(layers.list_routes(&"k".into()).await.is_ok());
    assert_eq!(find(&layers, &ids(0..1), Freshness::Now).await, ["n0"]);
    assert_eq!(fake.calls().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn writes_reach_the_cloud() {
    let fake = Arc::new(Fake::new("c"));
    write_everything(&layers(&fake)).await;
    let [create, delete] = ["create", "delete"].map(|verb| Call::Routes(verb, vec!["10.1.0.0/24".to_owned()]));
    assert_eq!(fake.calls(), [Call::Other("apply"), create, delete]);
}

#[tokio::test(start_paused = true)]
async fn a_created_route_is_returned_as_the_cloud_has_it_and_in_a_dry_run_as_requested() {
    let (spec, _) = route("10.1.0.7/24");
    let fake = Arc::new(Fake::new("c"));
    let created = layers(&fake).create_route(&"k".into(), &spec).await.unwrap();
    assert_eq!(created.id, "cloud-route-id");
    let dry = layers_with(&fake, LayerOptions { dry_run: true, ..LayerOptions::default() });
    let simulated = dry.create_route(&"k".into(), &spec).await.unwrap();
    assert_eq!(simulated, Route::of(&spec));
    assert_eq!((simulated.destination.to_string(), simulated.stamped), ("10.1.0.0/24".to_owned(), true));
    assert_eq!(fake.calls(), [Call::Routes("create", vec!["10.1.0.7/24".to_owned()])]);
}

#[tokio::test(start_paused = true)]
async fn max_routes_is_enforced_by_the_cloud_and_not_by_the_layers() {
    let mut fake = Fake::new("c");
    fake.capabilities.routes.iter_mut().for_each(|limits| limits.max_routes = Some(0));
    let fake = Arc::new(fake);
    let layers = layers(&fake);
    let (spec, _) = route("10.1.0.0/24");
    assert!(layers.create_route(&"k".into(), &spec).await.is_ok());
    fake.fail([Some(error(ErrorKind::QuotaExceeded))]);
    let full = layers.create_route(&"k".into(), &spec).await.unwrap_err();
    assert_eq!((full.kind(), fake.calls().len()), (ErrorKind::QuotaExceeded, 2));
}

#[tokio::test(start_paused = true)]
async fn concurrent_route_operations_are_limited() {
    let fake = Arc::new(Fake::new("c").latency(Duration::from_secs(1)));
    let layers = layers(&fake);
    let (cluster, (spec, old)) = ("k".into(), route("10.1.0.0/24"));
    let creations = join_all((0..5).map(|_| layers.create_route(&cluster, &spec)));
    let deletions = join_all((0..5).map(|_| layers.delete_route(&cluster, &old)));
    let (created, deleted, listed) = tokio::join!(creations, deletions, layers.list_routes(&cluster));
    assert!(created.iter().all(Result::is_ok) && deleted.iter().all(Result::is_ok) && listed.is_ok());
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 2);
}

// ---- pod CIDRs

const POD_CIDR: &str = "10.2.0.0/24";

/// Assigns [`POD_CIDR`], and returns the outcome.
async fn assign(layers: &Layered, machine: &InstanceRef) -> String {
    let assigned = layers.assign_pod_cidrs(machine, POD_CIDR.parse().unwrap()).await;
    assigned.map_or_else(|error| error.kind().as_str().to_owned(), |()| "ok".to_owned())
}

/// Returns the pod CIDRs of a machine from a lookup with a maximum age of one minute.
async fn pod_cidrs(layers: &Layered, machine: &InstanceRef) -> Vec<String> {
    let results = layers.find_instances(std::slice::from_ref(machine), MINUTE).await;
    let found = results.iter().flatten().filter_map(InstanceState::instance);
    found.flat_map(|found| &found.pod_cidrs).map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn an_assignment_is_made_and_counted_like_any_write() {
    let registry = prometheus::Registry::new();
    let fake = Arc::new(cloud_with(1).with_pod_cidr_assignment());
    let layers = Layered::new(Arc::clone(&fake) as _, "c", &LayerOptions::default(), &registry);
    assert_eq!(assign(&layers, &ids(0..1)[0]).await, "ok");
    assert_eq!(assign(&layers, &ids(5..6)[0]).await, "not_found");
    assert_eq!(fake.calls(), ["assign"; 2].map(Call::Other));
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"bowline_cloud_requests_total{operation="assign_pod_range",provider="c",result="ok"} 1"#,
        r#"bowline_cloud_requests_total{operation="assign_pod_range",provider="c",result="not_found"} 1"#,
        r#"bowline_cloud_request_duration_seconds_count{operation="assign_pod_range",provider="c"} 2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn assignments_and_lookups_share_a_concurrency_limit() {
    let limit = |limits: &mut crate::InstanceCapabilities| (limits.max_parallel, limits.batch_lookup) = (3, 1);
    let fake = Arc::new(cloud_with(9).with_pod_cidr_assignment().limits(limit).latency(Duration::from_secs(1)));
    let layers = layers(&fake);
    let refs = ids(0..9);
    let assignments = join_all(refs.iter().map(|machine| assign(&layers, machine)));
    let (assigned, found) = tokio::join!(assignments, find(&layers, &refs, Freshness::Now));
    assert!(assigned.iter().all(|one| one == "ok") && found.len() == 9);
    assert_eq!(fake.max_concurrent.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_assigns_nothing() {
    let fake = Arc::new(cloud_with(1).with_pod_cidr_assignment());
    let layers = layers_with(&fake, LayerOptions { dry_run: true, ..LayerOptions::default() });
    assert_eq!(assign(&layers, &ids(0..1)[0]).await, "ok");
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_assignment_is_rejected_without_a_call_even_in_a_dry_run() {
    let fake = Arc::new(cloud_with(1));
    for dry_run in [false, true] {
        let layers = layers_with(&fake, LayerOptions { dry_run, ..LayerOptions::default() });
        assert_eq!(assign(&layers, &ids(0..1)[0]).await, "unsupported");
    }
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_assigned_pod_cidr_is_visible_at_once_by_id_and_by_name() {
    let (by_id, by_name) = (ids(0..1).remove(0), named("n0"));
    for (cached, assigned) in [(&by_id, &by_id), (&by_name, &by_name), (&by_name, &by_id), (&by_id, &by_name)] {
        let fake = Arc::new(cloud_with(2).with_pod_cidr_assignment());
        let layers = layers(&fake);
        assert_eq!(pod_cidrs(&layers, cached).await, [""; 0]);
        find(&layers, &ids(1..2), MINUTE).await;
        assign(&layers, assigned).await;
        assert_eq!(pod_cidrs(&layers, cached).await, [POD_CIDR], "{cached:?} after {assigned:?}");
        let calls = finds(&fake);
        find(&layers, &ids(1..2), MINUTE).await;
        assert_eq!(finds(&fake), calls, "other machines stay cached");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_assignment_invalidates_the_cache() {
    let fake = Arc::new(cloud_with(1).with_pod_cidr_assignment());
    let layers = layers(&fake);
    let refs = ids(0..1).remove(0);
    assert_eq!(pod_cidrs(&layers, &refs).await, [""; 0]);
    fake.fail([Some(error(ErrorKind::Unavailable))]);
    assert_eq!(assign(&layers, &refs).await, "unavailable");
    pod_cidrs(&layers, &refs).await;
    assert_eq!(finds(&fake), 2, "the cached result is not used");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_after_an_assignment_does_not_join_an_earlier_read() {
    let (by_id, by_name) = (ids(0..1).remove(0), named("n0"));
    for (read, assigned) in [(&by_id, &by_id), (&by_name, &by_name), (&by_name, &by_id), (&by_id, &by_name)] {
        let slow =
            cloud_with(1).with_pod_cidr_assignment().latency(Duration::from_secs(10)).write_latency(Duration::ZERO);
        let layers = layers(&Arc::new(slow));
        let later = async {
            sleep(Duration::from_secs(1)).await;
            assign(&layers, assigned).await;
            pod_cidrs(&layers, read).await
        };
        let (before, after) = tokio::join!(pod_cidrs(&layers, read), later);
        assert_eq!((before, after), (vec![], vec![POD_CIDR.to_owned()]), "{read:?} with {assigned:?}");
        assert_eq!(pod_cidrs(&layers, read).await, [POD_CIDR]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_an_assignment_is_not_cached() {
    let slow = cloud_with(1).with_pod_cidr_assignment().latency(Duration::from_secs(10)).write_latency(Duration::ZERO);
    let (layers, refs) = (layers(&Arc::new(slow)), ids(0..1).remove(0));
    let later = async {
        sleep(Duration::from_secs(1)).await;
        assign(&layers, &refs).await
    };
    tokio::join!(pod_cidrs(&layers, &refs), later);
    assert_eq!(pod_cidrs(&layers, &refs).await, [POD_CIDR]);
}

#[tokio::test(start_paused = true)]
async fn unsupported_requests_are_rejected_without_a_call() {
    let fake = Arc::new(Fake::new("c"));
    let layers = layers(&fake);
    assert!(layers.plan_load_balancer(&desired(Some(with_every_feature())), None).is_err());
    assert!(layers.plan_load_balancer(&desired(None), None).is_ok(), "deletion is always supported");
    let error = layers.create_route(&"k".into(), &route("fd00::/64").0).await.unwrap_err();
    assert_eq!(error.to_string(), "create route: c does not support this: destination fd00::/64 (IPv6) (node=n)");
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn operations_of_a_missing_capability_group_are_unsupported() {
    let mut fake = Fake::new("c");
    (fake.capabilities.load_balancers, fake.capabilities.routes) = (None, None);
    fake.capabilities.instances = None;
    let layers = layers(&Arc::new(fake));
    let (spec, old) = route("10.0.0.0/24");
    let errors = [
        layers.assign_pod_cidrs(&named("n"), spec.destination).await.unwrap_err(),
        layers.observe_load_balancers(&[desired(None)]).await.remove(0).unwrap_err(),
        layers.list_load_balancers(&"k".into()).await.unwrap_err(),
        layers.plan_load_balancer(&desired(None), None).unwrap_err(),
        layers.list_routes(&"k".into()).await.unwrap_err(),
        layers.create_route(&"k".into(), &spec).await.unwrap_err(),
        layers.delete_route(&"k".into(), &old).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

/// Controllers run every operation in a task of its own.
#[test]
fn the_futures_of_all_operations_are_send() {
    fn is_send<T: Send>(_: T) {}
    let layers = layers(&Arc::new(Fake::new("c")));
    let (spec, old) = route("10.0.0.0/24");
    let step = bowline_core::Step::new(Verb::Create, "", "", vec![], Opaque::default());
    let (cluster, key, wanted) = ("k".into(), key(), [desired(None)]);
    is_send(layers.check());
    is_send(layers.find_instances(&[], Freshness::Now));
    let refs = named("n");
    is_send(layers.assign_pod_cidrs(&refs, spec.destination));
    is_send(layers.observe_load_balancers(&wanted));
    is_send(layers.observe_load_balancer(&wanted[0]));
    is_send(layers.list_load_balancers(&cluster));
    is_send(layers.apply_load_balancer(&key, &step, None));
    is_send(layers.list_routes(&cluster));
    is_send(layers.create_route(&cluster, &spec));
    is_send(layers.delete_route(&cluster, &old));
}

// ---- metrics

#[tokio::test(start_paused = true)]
async fn providers_share_one_registry_and_have_different_labels() {
    let registry = prometheus::Registry::new();
    let (a, b) = (Arc::new(Fake::new("a").with(["n"])), Arc::new(Fake::new("b")));
    let layered =
        |fake: &Arc<Fake>| Layered::new(Arc::clone(fake) as _, &fake.info().name, &LayerOptions::default(), &registry);
    let (_former, a_layers, b_layers) = (layered(&a), layered(&a), layered(&b));
    b.fail([Some(error(ErrorKind::PermissionDenied))]);
    for _ in 0..2 {
        find(&a_layers, &[with_id("n", "a://id-n")], MINUTE).await;
    }
    find(&b_layers, &[named("n")], Freshness::Now).await;
    find(&a_layers, &[], Freshness::Now).await;
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"bowline_cloud_requests_total{operation="find_instances",provider="a",result="ok"} 2"#,
        r#"bowline_cloud_requests_total{operation="find_instances",provider="b",result="permission_denied"} 1"#,
        r#"bowline_cloud_request_duration_seconds_count{operation="find_instances",provider="a"} 2"#,
        r#"bowline_cloud_cache_hits_total{provider="a"} 1"#,
        r#"bowline_cloud_cache_misses_total{provider="a"} 1"#,
        r#"bowline_cloud_cache_misses_total{provider="b"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

// ---- property: every result is correct or an error

#[derive(Debug, Clone)]
struct World {
    machines: usize,
    lookups: Vec<(usize, bool, bool)>,
    batch_lookup: usize,
    list_page: Option<usize>,
    page_cost: Option<usize>,
    absence: Absence,
    /// Listings are in brief.
    brief: bool,
    max_parallel: usize,
    faults: Vec<Option<ErrorKind>>,
}

fn worlds() -> impl Strategy<Value = World> {
    use ErrorKind::*;
    let kind = prop::sample::select(vec![Unavailable, RateLimited, PermissionDenied, Unexpected, NotFound]);
    let fault = prop_oneof![3 => Just(None), 2 => kind.prop_map(Some)];
    let lookups = prop::collection::vec((0_usize..40, any::<bool>(), any::<bool>()), 0..40);
    let absence = prop::sample::select(vec![Absence::Proof, Absence::ProofForNames, Absence::Question]);
    let listing = (prop::option::of(0_usize..12), prop::option::of(0_usize..5), absence, any::<bool>());
    let limits = (0_usize..12, listing, 0_usize..4);
    (0_usize..30, lookups, limits, prop::collection::vec(fault, 0..12)).prop_map(
        |(machines, lookups, (batch_lookup, (list_page, page_cost, absence, brief), max_parallel), faults)| World {
            machines,
            lookups,
            batch_lookup,
            list_page: list_page.map(|page| page.max(1)),
            page_cost,
            absence,
            brief,
            max_parallel,
            faults,
        },
    )
}

async fn correct_or_error(world: World) {
    let fake = cloud_with(world.machines).latency(Duration::from_millis(5)).limits(|limits| {
        limits.batch_lookup = world.batch_lookup;
        limits.list_page = world.list_page;
        limits.page_cost = world.page_cost;
        limits.absence = world.absence;
        limits.max_parallel = world.max_parallel;
    });
    fake.lists_in_brief.store(world.brief, Ordering::SeqCst);
    if world.absence != Absence::Proof {
        // With `ProofForNames`, a machine that is looked up by name must be listed.
        let is_named = |n: &usize| world.lookups.iter().any(|(looked_up, by_id, _)| looked_up == n && !by_id);
        let unlisted = (0..world.machines).step_by(3).filter(|n| world.absence == Absence::Question || !is_named(n));
        *fake.unlisted.lock().unwrap() = unlisted.map(|n| format!("n{n}")).collect();
    }
    fake.fail(world.faults.iter().map(|fault| fault.map(error)));
    let fake = Arc::new(fake);
    let layers = layers(&fake);
    let callers = world.lookups.chunks(7).enumerate().map(|(caller, lookups)| {
        let layers = &layers;
        async move {
            // Callers start at different times, some while earlier reads are in flight.
            sleep(Duration::from_millis(2 * caller as u64)).await;
            let refs: Vec<_> = lookups.iter().map(|(n, by_id, _)| reference(*n, *by_id)).collect();
            let freshness = if lookups.iter().any(|(.., now)| *now) { Freshness::Now } else { MINUTE };
            layers.find_instances(&refs, freshness).await
        }
    });
    let results: Vec<_> = join_all(callers).await.concat();
    assert_eq!(results.len(), world.lookups.len());
    for ((n, ..), result) in world.lookups.iter().zip(&results) {
        let expected = if *n < world.machines { format!("n{n}") } else { "Gone".to_owned() };
        assert!(result.is_err() || summary(result) == expected, "n{n}: {result:?}");
    }
    let empty_listing = world.machines == 0 && world.list_page.is_some();
    let healthy = world.faults.iter().all(Option::is_none) && !empty_listing;
    assert!(!healthy || results.iter().all(Result::is_ok), "{results:?}");
}

fn reference(n: usize, by_id: bool) -> InstanceRef {
    if by_id { ids(n..n + 1).remove(0) } else { named(&format!("n{n}")) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_result_is_correct_or_an_error_and_never_gone_for_an_existing_machine(world in worlds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(correct_or_error(world));
    }
}

// ---- call depth

/// Returns the stack frames of this crate outside of tests: file, line and function name if known.
fn frames() -> Vec<String> {
    let trace = std::backtrace::Backtrace::force_capture().to_string();
    let lines: Vec<_> = trace.lines().map(str::trim).collect();
    let mut frames = Vec::new();
    for pair in lines.windows(2) {
        let [function, location] = pair else { continue };
        let Some(location) = location.strip_prefix("at ") else { continue };
        let file = location.split(':').next().unwrap_or_default();
        let is_ours = file.contains("src/layers/") || file.ends_with("src/clouds.rs");
        let is_test = file.ends_with("tests.rs") || file.ends_with("faulty_provider.rs");
        if is_ours && !is_test {
            frames.push(format!("{location} {function}"));
        }
    }
    frames
}

/// Records the stacks of `find`, and of `identify`, which runs on the caller's side of the cache.
struct StackRecorder {
    fake: Fake,
    stacks: std::sync::Mutex<Vec<Vec<String>>>,
}

#[async_trait::async_trait]
impl crate::Instances for StackRecorder {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        self.stacks.lock().unwrap().push(frames());
        refs.iter().map(|machine| self.fake.look_up(machine)).collect()
    }

    fn identify(&self, machine: &InstanceRef) -> Result<crate::Identity> {
        self.stacks.lock().unwrap().push(frames());
        crate::Instances::identify(&self.fake, machine)
    }
}

#[async_trait::async_trait]
impl CloudProvider for StackRecorder {
    fn info(&self) -> &ProviderInfo {
        self.fake.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.fake.capabilities()
    }

    fn instances(&self) -> Option<&dyn crate::Instances> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_ten_functions_are_between_a_lookup_and_the_provider() {
    let recorder = Arc::new(StackRecorder { fake: cloud_with(1), stacks: Default::default() });
    let registry = prometheus::Registry::new();
    let clouds = crate::Clouds::with_layers([Arc::clone(&recorder) as _], &LayerOptions::default(), &registry);
    clouds.start().await;
    let results: Vec<_> = futures::StreamExt::collect(clouds.observe(&ids(0..1), Freshness::Now)).await;
    assert!(results[0].1.is_ok(), "{results:?}");
    let stacks = recorder.stacks.lock().unwrap().clone();
    let (caller, reader) = (&stacks[0], &stacks[stacks.len() - 1]);
    // On the caller's side, the functions that choose the source of a result do not lead to the provider: a closure of
    // `Cache::find`, and what it calls.
    let aside = ["identify", "source", "{{closure}}::{{closure}}"];
    let caller: Vec<_> = caller.iter().filter(|frame| !aside.iter().any(|name| frame.contains(name))).collect();
    let count = caller.len() + reader.len();
    assert!(!caller.is_empty() && !reader.is_empty() && count <= 10, "{count}: {caller:#?} {reader:#?}");
    println!("{count} functions: {caller:#?} {reader:#?}");
}
