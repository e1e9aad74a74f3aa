//! The layers from outside: what the caller gets, and what reaches the cloud.

use std::sync::atomic::Ordering;

use bowline_core::{
    LoadBalancerSpec, Opaque, PortSpec, Protocol, SessionAffinity, TargetNode, TargetSet, TrafficPolicy, Verb,
};
use futures::future::join_all;
use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use super::*;
use crate::fake::{Call, Fake, named, told, with_id};
use crate::{Absence, LoadBalancerKind};

const MINUTE: Freshness = Freshness::Within(Duration::from_secs(60));

fn layers(fake: &Arc<Fake>) -> Arc<Layered> {
    layers_with(fake, LayerOptions::default())
}

fn layers_with(fake: &Arc<Fake>, options: LayerOptions) -> Arc<Layered> {
    Arc::new(Layered::new(Arc::clone(fake) as _, &fake.info().name, &options, &prometheus::Registry::new()))
}

async fn ask(layers: &Layered, asked: &[InstanceRef], freshness: Freshness) -> Vec<String> {
    layers.find_instances(asked, freshness).await.iter().map(told).collect()
}

fn ids(range: std::ops::Range<usize>) -> Vec<InstanceRef> {
    range.map(|n| with_id(&format!("n{n}"), &format!("c://id-n{n}"))).collect()
}

/// `c` with `count` machines `n0`, `n1`, ...
fn crowd(count: usize) -> Fake {
    let fake = Fake::new("c");
    (0..count).for_each(|n| fake.add(&format!("n{n}"), &format!("id-n{n}")));
    fake
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "test", "on order")
}

fn finds(fake: &Fake) -> usize {
    fake.calls().iter().filter(|call| matches!(call, Call::Find(_))).count()
}

fn lists(fake: &Fake) -> usize {
    fake.calls().iter().filter(|call| matches!(call, Call::List(_))).count()
}

// ---- what people see

#[tokio::test(start_paused = true)]
async fn the_status_shows_how_the_provider_last_answered() {
    let fake = Arc::new(crowd(1).latency(Duration::from_secs(2)));
    let layers = layers(&fake);
    let seen = layers.status();
    assert_eq!((&seen["lastSuccessSecondsAgo"], &seen["lastError"]), (&().into(), &().into()));
    let (_, seen) = tokio::join!(layers.check(), async {
        sleep(Duration::from_secs(1)).await;
        layers.status()
    });
    assert_eq!(seen["operationsUnderWay"], 1);
    fake.fail([Some(error(ErrorKind::RateLimited))]);
    assert!(layers.check().await.is_err());
    sleep(Duration::from_secs(30)).await;
    let seen = layers.status();
    assert_eq!((&seen["operationsUnderWay"], &seen["pausedForSeconds"]), (&0.into(), &0.0.into()));
    assert_eq!((&seen["lastSuccessSecondsAgo"], &seen["lastError"]["secondsAgo"]), (&32.0.into(), &30.0.into()));
    assert_eq!(
        (&seen["lastError"]["kind"], &seen["lastError"]["message"]),
        (&"rate_limited".into(), &"test: on order".into())
    );
    layers.start().await.unwrap();
    assert_eq!(layers.health(), Ok(()), "to start again would not help");
}

// ---- memory and reads under way

#[tokio::test(start_paused = true)]
async fn an_answer_within_the_bound_comes_from_memory_and_an_older_one_does_not() {
    let fake = Arc::new(crowd(1));
    let layers = layers(&fake);
    for (wait, calls) in [(0, 1), (30, 1), (29, 1), (2, 2), (60, 2)] {
        sleep(Duration::from_secs(wait)).await;
        assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["n0"]);
        assert_eq!(finds(&fake), calls, "after another {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn now_is_never_served_from_memory_but_fills_it() {
    let fake = Arc::new(crowd(1));
    let layers = layers(&fake);
    for calls in 1..=3 {
        assert_eq!(ask(&layers, &ids(0..1), Freshness::Now).await, ["n0"]);
        assert_eq!(finds(&fake), calls);
    }
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["n0"]);
    assert_eq!(finds(&fake), 3);
}

#[tokio::test(start_paused = true)]
async fn gone_not_mine_and_errors_are_never_served_from_memory() {
    let fake = Arc::new(crowd(1));
    let layers = layers(&fake);
    assert_eq!(ask(&layers, &ids(5..6), MINUTE).await, ["Gone"]);
    fake.add("n5", "id-n5");
    assert_eq!(ask(&layers, &ids(5..6), MINUTE).await, ["n5"]);
    fake.fail_item("n6", [error(ErrorKind::PermissionDenied)]);
    assert_eq!(ask(&layers, &ids(6..7), MINUTE).await, ["permission_denied"]);
    assert_eq!(ask(&layers, &ids(6..7), MINUTE).await, ["Gone"]);
    fake.declines.store(true, Ordering::SeqCst);
    assert_eq!(ask(&layers, &ids(7..8), MINUTE).await, ["NotMine"]);
    fake.declines.store(false, Ordering::SeqCst);
    assert_eq!(ask(&layers, &ids(7..8), MINUTE).await, ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_found_gone_is_forgotten() {
    let fake = Arc::new(crowd(2));
    let layers = layers(&fake);
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["n0"]);
    fake.remove("n0");
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["n0"]);
    assert_eq!(ask(&layers, &ids(0..1), Freshness::Now).await, ["Gone"]);
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_leaves_what_is_remembered() {
    let fake = Arc::new(crowd(1));
    let layers = layers(&fake);
    ask(&layers, &ids(0..1), MINUTE).await;
    fake.fail([Some(error(ErrorKind::PermissionDenied))]);
    assert_eq!(ask(&layers, &ids(0..1), Freshness::Now).await, ["permission_denied"]);
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["n0"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_with_a_bound_joins_a_read_under_way_and_now_does_not() {
    let fake = Arc::new(crowd(2).latency(Duration::from_secs(10)));
    let layers = layers(&fake);
    let first = tokio::spawn({
        let layers = Arc::clone(&layers);
        async move { ask(&layers, &ids(0..1), MINUTE).await }
    });
    sleep(Duration::from_secs(2)).await;
    fake.remove("n0");
    let asked = ids(0..1);
    let second = ask(&layers, &asked, MINUTE);
    let impatient = ask(&layers, &asked, Freshness::Within(Duration::from_secs(1)));
    let now = ask(&layers, &asked, Freshness::Now);
    let answers = tokio::join!(first, second, now, impatient);
    assert_eq!(answers.0.unwrap(), ["n0"]);
    assert_eq!(answers.1, ["n0"], "joins");
    assert_eq!(answers.2, ["Gone"], "the read began before the question was put");
    assert_eq!(answers.3, ["Gone"], "the read began before the bound");
    assert_eq!(finds(&fake), 2, "the two that did not join share one read");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_with_one_question_each_make_one_call() {
    let fake = Arc::new(crowd(100));
    let layers = layers(&fake);
    let callers = (0..100).map(|n| {
        let (layers, freshness) = (Arc::clone(&layers), if n % 2 == 0 { Freshness::Now } else { MINUTE });
        tokio::spawn(async move { ask(&layers, &ids(n..n + 1), freshness).await })
    });
    for (n, answer) in join_all(callers).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap(), [format!("n{n}")]);
    }
    assert_eq!(finds(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_question_from_many_callers_is_asked_once_of_a_cloud_that_answers_one_by_one() {
    let fake = Arc::new(crowd(3).limits(|limits| limits.batch_lookup = 1));
    let layers = layers(&fake);
    let callers = (0..30).map(|n| {
        let layers = Arc::clone(&layers);
        async move { ask(&layers, &ids(n % 3..n % 3 + 1), Freshness::Now).await }
    });
    join_all(callers).await;
    assert_eq!(finds(&fake), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_nobodys_answer_away() {
    let fake = Arc::new(crowd(1).latency(Duration::from_secs(10)));
    let layers = layers(&fake);
    let asked = ids(0..1);
    let hasty = tokio::time::timeout(Duration::from_secs(1), ask(&layers, &asked, MINUTE));
    let (hasty, patient) = tokio::join!(hasty, ask(&layers, &asked, MINUTE));
    assert!(hasty.is_err());
    assert_eq!(patient, ["n0"]);
    assert_eq!(finds(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_machine_of_the_same_name_does_not_get_its_predecessors_answer() {
    let fake = Arc::new(crowd(1));
    let layers = layers(&fake);
    for (uuid, calls) in [("first", 1), ("first", 1), ("second", 2)] {
        let asked = InstanceRef { system_uuid: Some(uuid.to_owned()), ..named("n0") };
        ask(&layers, &[asked], MINUTE).await;
        assert_eq!(finds(&fake), calls, "{uuid}");
    }
}

#[tokio::test(start_paused = true)]
async fn memory_holds_nothing_that_is_older_than_the_largest_bound() {
    let fake = Arc::new(crowd(200));
    let layers = layers(&fake);
    ask(&layers, &ids(0..100), MINUTE).await;
    assert_eq!(layers.cache.remembered(), 100);
    sleep(Duration::from_secs(61)).await;
    ask(&layers, &ids(100..101), MINUTE).await;
    assert_eq!(layers.cache.remembered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_gives_errors_and_is_asked_again() {
    let fake = Arc::new(crowd(1).limits(|limits| limits.list_page = Some(10)));
    let layers = layers(&fake);
    fake.panics.store(true, Ordering::SeqCst);
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["unexpected"]);
    fake.panics.store(false, Ordering::SeqCst);
    assert_eq!(ask(&layers, &ids(0..1), MINUTE).await, ["n0"]);
}

// ---- lookups

#[tokio::test(start_paused = true)]
async fn lookups_are_cut_to_size_and_run_in_parallel_up_to_the_limit() {
    let fake = crowd(25).latency(Duration::from_secs(1)).limits(|limits| {
        limits.batch_lookup = 4;
        limits.max_parallel = 3;
    });
    let fake = Arc::new(fake);
    let answers = ask(&layers(&fake), &ids(0..25), Freshness::Now).await;
    assert_eq!(answers, (0..25).map(|n| format!("n{n}")).collect::<Vec<_>>());
    let sizes =
        fake.calls().iter().map(|call| matches!(call, Call::Find(asked) if asked.len() <= 4)).collect::<Vec<_>>();
    assert_eq!(sizes, [true; 7]);
    assert_eq!(fake.most_at_once.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn the_parallel_limit_holds_across_reads() {
    let fake = Arc::new(crowd(6).latency(Duration::from_secs(1)).limits(|limits| {
        limits.batch_lookup = 1;
        limits.max_parallel = 2;
    }));
    let layers = layers(&fake);
    let (early, late) = (ids(0..3), ids(3..6));
    let later = async {
        sleep(Duration::from_millis(500)).await;
        ask(&layers, &late, MINUTE).await
    };
    tokio::join!(ask(&layers, &early, MINUTE), later);
    assert_eq!(fake.most_at_once.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_answers_is_an_error_for_all_that_were_asked() {
    let fake = Arc::new(crowd(3));
    fake.loses_answers.store(true, Ordering::SeqCst);
    assert_eq!(ask(&layers(&fake), &ids(0..3), Freshness::Now).await, ["unexpected"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_id_and_a_name_where_names_do_not_help_are_not_mine_without_a_call() {
    let fake = Arc::new(crowd(1).limits(|limits| limits.lookup_by_name = false));
    let asked = [with_id("n0", "d://id-n0"), with_id("n0", "id-n0"), named("n0")];
    assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, ["NotMine"; 3]);
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_machines_says_so() {
    let mut fake = Fake::new("c");
    fake.capabilities.instances = None;
    let answers = layers(&Arc::new(fake)).find_instances(&ids(0..2), Freshness::Now).await;
    let texts: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_err().to_string()).collect();
    assert_eq!(texts, ["find instances: the provider c has no instances"; 2]);
}

// ---- listings

#[test]
fn the_cheaper_of_lookup_and_listing_is_taken_and_lookup_on_a_tie() {
    let table = [
        // asked, machines last seen, batch, page, listing?
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
    for (asked, machines, batch_lookup, list_page, expected) in table {
        let limits = crate::InstanceCapabilities { batch_lookup, list_page, ..Default::default() };
        assert_eq!(listing::is_cheaper(asked, machines, &limits), expected, "{asked} {machines:?} {limits:?}");
    }
}

#[test]
fn a_page_may_cost_as_much_as_several_lookups() {
    let limits = crate::InstanceCapabilities { list_page: Some(1000), page_cost: Some(4), ..Default::default() };
    for (machines, few) in [(None, 4), (Some(1), 4), (Some(1000), 4), (Some(5000), 20)] {
        assert!(!listing::is_cheaper(few, machines, &limits), "{machines:?}");
        assert!(listing::is_cheaper(few + 1, machines, &limits), "{machines:?}");
    }
}

/// `c` that answers one by one and lists `page` machines at a time.
fn lister(count: usize, page: usize) -> Arc<Fake> {
    Arc::new(crowd(count).limits(|limits| {
        limits.batch_lookup = 1;
        limits.list_page = Some(page);
    }))
}

#[tokio::test(start_paused = true)]
async fn a_listing_answers_by_id_and_by_name_and_tells_who_is_gone() {
    let fake = lister(7, 3);
    let asked = [ids(0..9), vec![named("n3"), named("nobody")]].concat();
    let answers = ask(&layers(&fake), &asked, Freshness::Now).await;
    assert_eq!(answers, ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "Gone", "Gone", "n3", "Gone"]);
    assert_eq!((lists(&fake), finds(&fake)), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn the_size_of_the_last_listing_decides_the_next() {
    let fake = lister(40, 2);
    let layers = layers(&fake);
    ask(&layers, &ids(0..60), Freshness::Now).await;
    assert_eq!((lists(&fake), finds(&fake)), (20, 0), "nothing was known: 60 machines in 30 pages");
    ask(&layers, &ids(0..6), Freshness::Now).await;
    assert_eq!((lists(&fake), finds(&fake)), (20, 6), "40 machines are 20 pages");
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_given_up_for_lookups_once_they_cost_less() {
    let fake = lister(100, 5);
    let layers = layers(&fake);
    let asked = [ids(0..4), ids(90..92)].concat();
    for (pages, lookups) in [(2, 2), (4, 4)] {
        assert_eq!(ask(&layers, &asked, Freshness::Now).await, ["n0", "n1", "n2", "n3", "n90", "n91"]);
        assert_eq!((lists(&fake), finds(&fake)), (pages, lookups));
    }
}

/// As [`lister`], with this meaning of absence.
fn lister_with(absence: Absence, count: usize) -> Arc<Fake> {
    Arc::new(crowd(count).limits(|limits| {
        (limits.batch_lookup, limits.list_page, limits.absence) = (1, Some(100), absence);
    }))
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_not_listed_is_gone_or_looked_up() {
    for (absence, expected, lookups) in
        [(Absence::Proof, "Gone", 0), (Absence::ProofForNames, "n3", 3), (Absence::Question, "n3", 3)]
    {
        let fake = lister_with(absence, 7);
        fake.unlisted.lock().unwrap().push("n3".to_owned());
        let answers = ask(&layers(&fake), &ids(0..9), Freshness::Now).await;
        assert_eq!(answers, ["n0", "n1", "n2", expected, "n4", "n5", "n6", "Gone", "Gone"], "{absence:?}");
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_listed_is_gone_or_looked_up() {
    for (absence, lookups) in [(Absence::Proof, 0), (Absence::ProofForNames, 0), (Absence::Question, 2)] {
        let fake = lister_with(absence, 3);
        let asked = ["n0", "n1", "n2", "n7", "n8"].map(named);
        assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, ["n0", "n1", "n2", "Gone", "Gone"]);
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_differs_from_another_in_case_alone_is_looked_up_unless_absence_is_proof() {
    for (absence, lookups) in [(Absence::Proof, 0), (Absence::ProofForNames, 2), (Absence::Question, 2)] {
        let fake = lister_with(absence, 3);
        fake.add("N1", "id-capital");
        let asked = ["n0", "n1", "n2", "N2"].map(named);
        assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, ["n0", "n1", "n2", "Gone"]);
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}: n1 is like N1, N2 like n2");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_listed_machine_is_unread_names_and_absence_are_not_settled() {
    let wrong = "unexpected";
    for (absence, expected, lookups) in
        [(Absence::Proof, ["n0", wrong, wrong, wrong], 0), (Absence::Question, ["n0", "Gone", "n1", "Gone"], 3)]
    {
        let fake = lister_with(absence, 3);
        fake.unread.store(1, Ordering::SeqCst);
        let asked = [ids(0..1), ids(7..8), vec![named("n1"), named("n8")]].concat();
        assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, expected, "{absence:?}");
        assert_eq!((lists(&fake), finds(&fake)), (1, lookups), "{absence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_empty_listing_all_are_looked_up_where_absence_is_a_question() {
    let fake = lister_with(Absence::Question, 2);
    *fake.unlisted.lock().unwrap() = vec!["n0".to_owned(), "n1".to_owned()];
    let asked = [ids(0..3), vec![named("n1"), named("n8")]].concat();
    assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, ["n0", "n1", "Gone", "n1", "Gone"]);
    assert_eq!((lists(&fake), finds(&fake)), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn only_the_machines_that_are_asked_for_are_described() {
    let fake = lister_with(Absence::Question, 20);
    fake.lists_in_brief.store(true, Ordering::SeqCst);
    fake.unlisted.lock().unwrap().push("n7".to_owned());
    fake.fail_item("n2", [error(ErrorKind::PermissionDenied)]);
    let asked = [ids(0..3), vec![named("n5")], ids(7..8)].concat();
    let answers = layers(&fake).find_instances(&asked, Freshness::Now).await;
    assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), ["n0", "n1", "permission_denied", "n5", "n7"]);
    assert!(answers[3].as_ref().unwrap().instance().unwrap().provider_id.is_some(), "{answers:?}");
    let described = ["n0", "n1", "n2", "n5", "n7"].map(str::to_owned).to_vec();
    assert_eq!(
        fake.calls(),
        [Call::List(None), Call::Describe(described)],
        "what is not listed is found in the same call"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listing_ends_early_when_all_ids_are_found() {
    let fake = lister(100, 5);
    ask(&layers(&fake), &ids(0..10), Freshness::Now).await;
    assert_eq!(lists(&fake), 2);
}

#[tokio::test(start_paused = true)]
async fn ids_are_answered_as_their_page_arrives() {
    let fake = Arc::new(crowd(20).latency(Duration::from_secs(1)).limits(|limits| {
        limits.batch_lookup = 1;
        limits.list_page = Some(5);
    }));
    let layers = layers(&fake);
    let (all, first) = (ids(0..20), ids(0..1));
    let begun = Instant::now();
    let early = async {
        ask(&layers, &first, MINUTE).await;
        begun.elapsed().as_secs()
    };
    let (early, _) = tokio::join!(early, ask(&layers, &all, MINUTE));
    assert_eq!((early, begun.elapsed().as_secs()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn two_machines_of_one_name_are_an_error_that_names_both() {
    let fake = lister(5, 2);
    fake.add("n1", "id-twin");
    let answers = layers(&fake).find_instances(&[named("n0"), named("n1"), named("n2")], Freshness::Now).await;
    assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), ["n0", "invalid_config", "n2"]);
    let text = answers[1].as_ref().unwrap_err().to_string();
    assert!(text.contains("id-n1") && text.contains("id-twin"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_listed_twice_is_one_machine() {
    let fake = lister(5, 2);
    fake.add("n1", "id-n1");
    let answers = ask(&layers(&fake), &["n0", "n1", "n2"].map(named), Freshness::Now).await;
    assert_eq!(answers, ["n0", "n1", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_found_by_its_whole_id_when_the_provider_cuts_ids_in_two_ways() {
    let fake = lister(0, 10);
    (0..3).for_each(|n| fake.add_as(&format!("n{n}"), &format!("{n}"), &format!("c:///{n}")));
    let asked: Vec<_> = (0..4).map(|n| with_id(&format!("n{n}"), &format!("c:///{n}"))).collect();
    assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, ["n0", "n1", "n2", "Gone"]);
    assert_eq!(lists(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_id_is_an_error_without_a_call() {
    let fake = Arc::new(crowd(1));
    assert_eq!(ask(&layers(&fake), &[with_id("n0", "c://")], Freshness::Now).await, ["invalid_config"]);
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failing_page_is_an_error_for_all_that_are_not_found_yet() {
    let fake = lister(9, 3);
    fake.fail([None, Some(error(ErrorKind::PermissionDenied))]);
    let asked = [ids(0..4), ids(20..21), vec![named("n0")]].concat();
    let denied = "permission_denied";
    assert_eq!(ask(&layers(&fake), &asked, Freshness::Now).await, ["n0", "n1", "n2", denied, denied, denied]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_listing_is_no_proof_of_absence() {
    let fake = lister(0, 100);
    let answers = layers(&fake).find_instances(&ids(0..3), Freshness::Now).await;
    assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), ["unexpected"; 3]);
    assert!(answers[0].as_ref().unwrap_err().message().contains("lists no machines at all"));
    assert_eq!((lists(&fake), finds(&fake)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_leads_back_ends_with_an_error() {
    let fake = lister(10, 3);
    fake.circles.store(true, Ordering::SeqCst);
    assert_eq!(ask(&layers(&fake), &ids(20..30), Freshness::Now).await, ["unexpected"; 10]);
}

// ---- no retries here

#[tokio::test(start_paused = true)]
async fn a_failed_operation_is_not_repeated_here() {
    let fake = Arc::new(crowd(4));
    let layers = layers(&fake);
    fake.fail([Some(error(ErrorKind::Unavailable))]);
    assert_eq!(layers.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    fake.fail_item("n1", [error(ErrorKind::RateLimited)]);
    assert_eq!(ask(&layers, &ids(0..3), Freshness::Now).await, ["n0", "rate_limited", "n2"]);
    assert_eq!(fake.calls().len(), 2, "calls are repeated where they are made");
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

fn greedy() -> LoadBalancerSpec {
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
fn all_wishes_that_the_cloud_cannot_fulfil_are_refused_at_once_by_field() {
    let (max_ports, max_targets) = (Some(1), Some(1));
    let nothing = LoadBalancerKind { max_ports, max_targets, ..Default::default() };
    let error = capability::check_load_balancer("c", &desired(Some(greedy())), &nothing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "plan load balancer: c cannot do this: spec.ports: protocol UDP; spec.ports: protocol SCTP; \
         spec.ports: several protocols on one balancer; spec.allocateLoadBalancerNodePorts: false; \
         spec.ipFamilies: IPv4; spec.ipFamilies: IPv6; spec.ipFamilies: two families on one balancer; \
         spec.ports: 2 of them, at most 1; nodes: 2 of them, at most 1; spec.loadBalancerSourceRanges; \
         spec.sessionAffinity: ClientIP; spec.externalTrafficPolicy: Local; spec.loadBalancerIP: 192.0.2.1 \
         (service=default/web)"
    );
}

#[test]
fn a_cloud_that_can_do_it_all_refuses_nothing() {
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
    for spec in [plain(), greedy()] {
        assert!(capability::check_load_balancer("c", &desired(Some(spec)), &all).is_ok());
    }
}

fn route(range: &str) -> (RouteSpec, Route) {
    let destination: ipnet::IpNet = range.parse().unwrap();
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

/// All writes and the plan, and whether they succeed.
async fn write_everything(layers: &Layered) {
    let plan = layers.plan_load_balancer(&desired(Some(plain())), None).unwrap();
    assert_eq!(plan.steps[0].verb, Verb::Create);
    layers.apply_load_balancer(&key(), &plan.steps[0], None).await.unwrap();
    let (spec, route) = route("10.1.0.0/24");
    layers.create_route(&"k".into(), &spec).await.unwrap();
    layers.delete_route(&"k".into(), &route).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_makes_no_write_and_all_reads() {
    let fake = Arc::new(crowd(1));
    let layers = layers_with(&fake, LayerOptions { dry_run: true, ..LayerOptions::default() });
    write_everything(&layers).await;
    assert!(fake.calls().is_empty());
    assert!(layers.observe_load_balancers(&[desired(None)]).await[0].is_ok());
    assert!(layers.list_load_balancers(&"k".into()).await.is_ok());
    assert!(layers.list_routes(&"k".into()).await.is_ok());
    assert_eq!(ask(&layers, &ids(0..1), Freshness::Now).await, ["n0"]);
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
async fn a_new_route_is_told_as_the_cloud_has_it_and_in_a_dry_run_as_it_would_be() {
    let (spec, _) = route("10.1.0.7/24");
    let fake = Arc::new(Fake::new("c"));
    let made = layers(&fake).create_route(&"k".into(), &spec).await.unwrap();
    assert_eq!(made.id, "as the cloud calls it");
    let dry = layers_with(&fake, LayerOptions { dry_run: true, ..LayerOptions::default() });
    let told = dry.create_route(&"k".into(), &spec).await.unwrap();
    assert_eq!(told, Route::of(&spec));
    assert_eq!((told.destination.to_string(), told.stamped), ("10.1.0.0/24".to_owned(), true));
    assert_eq!(fake.calls(), [Call::Routes("create", vec!["10.1.0.7/24".to_owned()])]);
}

#[tokio::test(start_paused = true)]
async fn a_full_table_is_for_the_cloud_to_tell_and_is_told_at_once() {
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
async fn no_more_calls_about_routes_are_under_way_than_the_cloud_takes() {
    let fake = Arc::new(Fake::new("c").latency(Duration::from_secs(1)));
    let layers = layers(&fake);
    let (cluster, (spec, old)) = ("k".into(), route("10.1.0.0/24"));
    let creations = join_all((0..5).map(|_| layers.create_route(&cluster, &spec)));
    let deletions = join_all((0..5).map(|_| layers.delete_route(&cluster, &old)));
    let (created, deleted, listed) = tokio::join!(creations, deletions, layers.list_routes(&cluster));
    assert!(created.iter().all(Result::is_ok) && deleted.iter().all(Result::is_ok) && listed.is_ok());
    assert_eq!(fake.most_at_once.load(Ordering::SeqCst), 2);
}

// ---- pod ranges

const RANGE: &str = "10.2.0.0/24";

/// Assigns [`RANGE`], and says how that ended.
async fn assign(layers: &Layered, asked: &InstanceRef) -> String {
    let assigned = layers.assign_pod_cidrs(asked, RANGE.parse().unwrap()).await;
    assigned.map_or_else(|error| error.kind().as_str().to_owned(), |()| "ok".to_owned())
}

/// The pod ranges of one machine, as an answer within a minute tells them.
async fn ranges(layers: &Layered, asked: &InstanceRef) -> Vec<String> {
    let answers = layers.find_instances(std::slice::from_ref(asked), MINUTE).await;
    let found = answers.iter().flatten().filter_map(InstanceState::instance);
    found.flat_map(|found| &found.pod_ranges).map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn an_assignment_is_made_and_counted_as_any_write() {
    let registry = prometheus::Registry::new();
    let fake = Arc::new(crowd(1).assigning());
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
async fn assignments_and_lookups_share_the_places_of_machines() {
    let places = |limits: &mut crate::InstanceCapabilities| (limits.max_parallel, limits.batch_lookup) = (3, 1);
    let fake = Arc::new(crowd(9).assigning().limits(places).latency(Duration::from_secs(1)));
    let layers = layers(&fake);
    let asked = ids(0..9);
    let assignments = join_all(asked.iter().map(|asked| assign(&layers, asked)));
    let (assigned, found) = tokio::join!(assignments, ask(&layers, &asked, Freshness::Now));
    assert!(assigned.iter().all(|one| one == "ok") && found.len() == 9);
    assert_eq!(fake.most_at_once.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_assigns_nothing() {
    let fake = Arc::new(crowd(1).assigning());
    let layers = layers_with(&fake, LayerOptions { dry_run: true, ..LayerOptions::default() });
    assert_eq!(assign(&layers, &ids(0..1)[0]).await, "ok");
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_assigned_is_refused_without_a_call_even_in_a_dry_run() {
    let fake = Arc::new(crowd(1));
    for dry_run in [false, true] {
        let layers = layers_with(&fake, LayerOptions { dry_run, ..LayerOptions::default() });
        assert_eq!(assign(&layers, &ids(0..1)[0]).await, "unsupported");
    }
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_assigned_range_is_told_at_once_however_the_machine_is_asked_for() {
    let (by_id, by_name) = (ids(0..1).remove(0), named("n0"));
    for (remembered, assigned) in [(&by_id, &by_id), (&by_name, &by_name), (&by_name, &by_id), (&by_id, &by_name)] {
        let fake = Arc::new(crowd(2).assigning());
        let layers = layers(&fake);
        assert_eq!(ranges(&layers, remembered).await, [""; 0]);
        ask(&layers, &ids(1..2), MINUTE).await;
        assign(&layers, assigned).await;
        assert_eq!(ranges(&layers, remembered).await, [RANGE], "{remembered:?} after {assigned:?}");
        let calls = finds(&fake);
        ask(&layers, &ids(1..2), MINUTE).await;
        assert_eq!(finds(&fake), calls, "what is known of other machines stays");
    }
}

#[tokio::test(start_paused = true)]
async fn an_assignment_whose_answer_is_lost_may_have_taken_place() {
    let fake = Arc::new(crowd(1).assigning());
    let layers = layers(&fake);
    let asked = ids(0..1).remove(0);
    assert_eq!(ranges(&layers, &asked).await, [""; 0]);
    fake.fail([Some(error(ErrorKind::Unavailable))]);
    assert_eq!(assign(&layers, &asked).await, "unavailable");
    ranges(&layers, &asked).await;
    assert_eq!(finds(&fake), 2, "what was known before is not told");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_an_assignment_is_not_taken_for_one_after_it() {
    let (by_id, by_name) = (ids(0..1).remove(0), named("n0"));
    for (read, assigned) in [(&by_id, &by_id), (&by_name, &by_name), (&by_name, &by_id), (&by_id, &by_name)] {
        let slow = crowd(1).assigning().latency(Duration::from_secs(10)).write_latency(Duration::ZERO);
        let layers = layers(&Arc::new(slow));
        let later = async {
            sleep(Duration::from_secs(1)).await;
            assign(&layers, assigned).await;
            ranges(&layers, read).await
        };
        let (before, after) = tokio::join!(ranges(&layers, read), later);
        assert_eq!((before, after), (vec![], vec![RANGE.to_owned()]), "{read:?} with {assigned:?}");
        assert_eq!(ranges(&layers, read).await, [RANGE]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_ends_after_an_assignment_and_began_before_is_not_remembered() {
    let slow = crowd(1).assigning().latency(Duration::from_secs(10)).write_latency(Duration::ZERO);
    let (layers, asked) = (layers(&Arc::new(slow)), ids(0..1).remove(0));
    let later = async {
        sleep(Duration::from_secs(1)).await;
        assign(&layers, &asked).await
    };
    tokio::join!(ranges(&layers, &asked), later);
    assert_eq!(ranges(&layers, &asked).await, [RANGE]);
}

#[tokio::test(start_paused = true)]
async fn what_the_cloud_cannot_do_is_refused_without_a_call() {
    let fake = Arc::new(Fake::new("c"));
    let layers = layers(&fake);
    assert!(layers.plan_load_balancer(&desired(Some(greedy())), None).is_err());
    assert!(layers.plan_load_balancer(&desired(None), None).is_ok(), "removing is always possible");
    let error = layers.create_route(&"k".into(), &route("fd00::/64").0).await.unwrap_err();
    assert_eq!(error.to_string(), "create route: c cannot do this: destination fd00::/64 (IPv6) (node=n)");
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_the_provider_lacks_is_unsupported() {
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

/// Controllers put every question into tasks of their own.
#[test]
fn every_question_may_be_moved_to_a_task() {
    fn movable<T: Send>(_: T) {}
    let layers = layers(&Arc::new(Fake::new("c")));
    let (spec, old) = route("10.0.0.0/24");
    let step = bowline_core::Step::new(Verb::Create, "", "", vec![], Opaque::default());
    let (cluster, key, wanted) = ("k".into(), key(), [desired(None)]);
    movable(layers.check());
    movable(layers.find_instances(&[], Freshness::Now));
    let asked = named("n");
    movable(layers.assign_pod_cidrs(&asked, spec.destination));
    movable(layers.observe_load_balancers(&wanted));
    movable(layers.observe_load_balancer(&wanted[0]));
    movable(layers.list_load_balancers(&cluster));
    movable(layers.apply_load_balancer(&key, &step, None));
    movable(layers.list_routes(&cluster));
    movable(layers.create_route(&cluster, &spec));
    movable(layers.delete_route(&cluster, &old));
}

// ---- metrics

#[tokio::test(start_paused = true)]
async fn several_providers_share_one_registry_and_are_told_apart_by_label() {
    let registry = prometheus::Registry::new();
    let (a, b) = (Arc::new(Fake::new("a").with(["n"])), Arc::new(Fake::new("b")));
    let layered =
        |fake: &Arc<Fake>| Layered::new(Arc::clone(fake) as _, &fake.info().name, &LayerOptions::default(), &registry);
    let (_former, a_layers, b_layers) = (layered(&a), layered(&a), layered(&b));
    b.fail([Some(error(ErrorKind::PermissionDenied))]);
    for _ in 0..2 {
        ask(&a_layers, &[with_id("n", "a://id-n")], MINUTE).await;
    }
    ask(&b_layers, &[named("n")], Freshness::Now).await;
    ask(&a_layers, &[], Freshness::Now).await;
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

// ---- the promise that everything above is for

#[derive(Debug, Clone)]
struct World {
    machines: usize,
    asked: Vec<(usize, bool, bool)>,
    batch_lookup: usize,
    list_page: Option<usize>,
    page_cost: Option<usize>,
    absence: Absence,
    /// Lists in brief.
    brief: bool,
    max_parallel: usize,
    faults: Vec<Option<ErrorKind>>,
}

fn worlds() -> impl Strategy<Value = World> {
    use ErrorKind::*;
    let kind = prop::sample::select(vec![Unavailable, RateLimited, PermissionDenied, Unexpected, NotFound]);
    let fault = prop_oneof![3 => Just(None), 2 => kind.prop_map(Some)];
    let asked = prop::collection::vec((0_usize..40, any::<bool>(), any::<bool>()), 0..40);
    let absence = prop::sample::select(vec![Absence::Proof, Absence::ProofForNames, Absence::Question]);
    let listing = (prop::option::of(0_usize..12), prop::option::of(0_usize..5), absence, any::<bool>());
    let limits = (0_usize..12, listing, 0_usize..4);
    (0_usize..30, asked, limits, prop::collection::vec(fault, 0..12)).prop_map(
        |(machines, asked, (batch_lookup, (list_page, page_cost, absence, brief), max_parallel), faults)| World {
            machines,
            asked,
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

async fn truth_or_error(world: World) {
    let fake = crowd(world.machines).latency(Duration::from_millis(5)).limits(|limits| {
        limits.batch_lookup = world.batch_lookup;
        limits.list_page = world.list_page;
        limits.page_cost = world.page_cost;
        limits.absence = world.absence;
        limits.max_parallel = world.max_parallel;
    });
    fake.lists_in_brief.store(world.brief, Ordering::SeqCst);
    if world.absence != Absence::Proof {
        // With proof for names, a machine of a name that is asked for must be listed.
        let is_named = |n: &usize| world.asked.iter().any(|(asked, by_id, _)| asked == n && !by_id);
        let unlisted = (0..world.machines).step_by(3).filter(|n| world.absence == Absence::Question || !is_named(n));
        *fake.unlisted.lock().unwrap() = unlisted.map(|n| format!("n{n}")).collect();
    }
    fake.fail(world.faults.iter().map(|fault| fault.map(error)));
    let fake = Arc::new(fake);
    let layers = layers(&fake);
    let callers = world.asked.chunks(7).enumerate().map(|(caller, questions)| {
        let layers = &layers;
        async move {
            // Callers come one after the other, some while earlier reads are under way.
            sleep(Duration::from_millis(2 * caller as u64)).await;
            let asked: Vec<_> = questions.iter().map(|(n, by_id, _)| question(*n, *by_id)).collect();
            let freshness = if questions.iter().any(|(.., now)| *now) { Freshness::Now } else { MINUTE };
            layers.find_instances(&asked, freshness).await
        }
    });
    let answers: Vec<_> = join_all(callers).await.concat();
    assert_eq!(answers.len(), world.asked.len());
    for ((n, ..), answer) in world.asked.iter().zip(&answers) {
        let expected = if *n < world.machines { format!("n{n}") } else { "Gone".to_owned() };
        assert!(answer.is_err() || told(answer) == expected, "n{n}: {answer:?}");
    }
    let empty_listing = world.machines == 0 && world.list_page.is_some();
    let healthy = world.faults.iter().all(Option::is_none) && !empty_listing;
    assert!(!healthy || answers.iter().all(Result::is_ok), "{answers:?}");
}

fn question(n: usize, by_id: bool) -> InstanceRef {
    if by_id { ids(n..n + 1).remove(0) } else { named(&format!("n{n}")) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn an_answer_is_the_truth_or_an_error_and_never_gone_for_a_machine_that_exists(world in worlds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(truth_or_error(world));
    }
}

// ---- depth

/// Calls of functions of this crate on the stack, outside of tests: file, line, and name where the trace has one.
fn frames() -> Vec<String> {
    let trace = std::backtrace::Backtrace::force_capture().to_string();
    let lines: Vec<_> = trace.lines().map(str::trim).collect();
    let mut frames = Vec::new();
    for pair in lines.windows(2) {
        let [function, place] = pair else { continue };
        let Some(place) = place.strip_prefix("at ") else { continue };
        let file = place.split(':').next().unwrap_or_default();
        let is_ours = file.contains("src/layers/") || file.ends_with("src/clouds.rs");
        let is_test = file.ends_with("tests.rs") || file.ends_with("adversity.rs");
        if is_ours && !is_test {
            frames.push(format!("{place} {function}"));
        }
    }
    frames
}

/// Remembers the stacks of `find`, and of `identify`, which is asked on the caller's side of the cache.
struct Deep {
    fake: Fake,
    stacks: std::sync::Mutex<Vec<Vec<String>>>,
}

#[async_trait::async_trait]
impl crate::Instances for Deep {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        self.stacks.lock().unwrap().push(frames());
        asked.iter().map(|asked| self.fake.look_up(asked)).collect()
    }

    fn identify(&self, asked: &InstanceRef) -> Result<crate::Identity> {
        self.stacks.lock().unwrap().push(frames());
        crate::Instances::identify(&self.fake, asked)
    }
}

#[async_trait::async_trait]
impl CloudProvider for Deep {
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
async fn between_a_lookup_and_the_provider_there_are_at_most_ten_functions() {
    let deep = Arc::new(Deep { fake: crowd(1), stacks: Default::default() });
    let registry = prometheus::Registry::new();
    let clouds = crate::Clouds::around([Arc::clone(&deep) as _], &LayerOptions::default(), &registry);
    clouds.start().await;
    let answers: Vec<_> = futures::StreamExt::collect(clouds.observe(&ids(0..1), Freshness::Now)).await;
    assert!(answers[0].1.is_ok(), "{answers:?}");
    let stacks = deep.stacks.lock().unwrap().clone();
    let (caller, reader) = (&stacks[0], &stacks[stacks.len() - 1]);
    // On the caller's side, what decides where the answer comes from does not lead to the provider: a closure of `Cache::find`,
    // and what it calls.
    let aside = ["identify", "source", "{{closure}}::{{closure}}"];
    let caller: Vec<_> = caller.iter().filter(|frame| !aside.iter().any(|name| frame.contains(name))).collect();
    let count = caller.len() + reader.len();
    assert!(!caller.is_empty() && !reader.is_empty() && count <= 10, "{count}: {caller:#?} {reader:#?}");
    println!("{count} functions: {caller:#?} {reader:#?}");
}
