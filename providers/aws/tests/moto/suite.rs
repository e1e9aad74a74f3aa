//! The conformance suite on moto.
//!
//! The cases share one account, which is reset before each of them. They run in a stride, so that an interrupted run covers a part of
//! every topic; the longest ones are the last.

use std::time::{Duration, Instant};

use bowline_conformance::{Bench, Outcome, cases, run_one};
use serde_json::Value;
use tokio::sync::Mutex;

use super::bench::MotoBench;
use super::moto::Moto;
use super::{ACCOUNT, open, skip};

/// Cases are started in this stride.
const STRIDE: usize = 7;

/// Cases that moto cannot cause: it shows a new resource at once.
const NOT_ON_DEMAND: &[&str] = &["stale_listing_makes_no_duplicate"];

/// Returns whether a case takes many seconds, because it restarts after every single call, or creates hundreds of resources.
fn is_long(case: &str) -> bool {
    let many = ["calls_are_cancel_safe", "lost_response_makes_no_duplicate", "pages_are_complete"];
    case.ends_with("_every_crash") || many.contains(&case)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_conforms_on_moto() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let only = std::env::var("BOWLINE_CASE").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)));
    let mixed = (0..STRIDE).flat_map(|first| cases().iter().skip(first).step_by(STRIDE));
    let wanted = mixed.map(|case| case.name).filter(|name| is_wanted(name) && !NOT_ON_DEMAND.contains(name));
    let (long, short): (Vec<_>, Vec<_>) = wanted.partition(|name| is_long(name));
    let (until, began) = (deadline(), Instant::now());
    moto.forget_refused().await;
    let mut all = Vec::new();
    for case in short.into_iter().chain(long) {
        let is_in_time = until.is_none_or(|until| Instant::now() < until);
        all.push((case, if is_in_time { Some(attempt(case, &moto).await) } else { None }));
    }
    let left_out = all.iter().filter(|(_, outcome)| outcome.is_none()).count();
    if left_out > 0 {
        skip(&format!("{left_out} of {} cases on moto, because the time is up", all.len()));
    }
    let outcomes: Vec<_> = all.into_iter().filter_map(|(case, outcome)| Some((case, outcome?))).collect();
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, outcome)| wanted(outcome)).count();
    let (passed, failed) = (count(|one| *one == Outcome::Passed), count(is_wrong));
    let skipped = outcomes.len() - passed - failed;
    println!("{passed} cases passed on moto, {failed} failed, {skipped} skipped ({:.0?})", began.elapsed());
    println!("{} of {} cases are not possible on moto", NOT_ON_DEMAND.len(), cases().len());
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| is_wrong(outcome)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(moto.refused().await, Vec::<Value>::new(), "signatures and parameters are correct");
    assert!(passed > 0 || only.is_some(), "no case has run");
}

/// Returns the time after which no case is started: `BOWLINE_AWS_MINUTES` from now, or never.
fn deadline() -> Option<Instant> {
    let minutes: f64 = std::env::var("BOWLINE_AWS_MINUTES").ok()?.parse().unwrap();
    Some(Instant::now() + Duration::from_secs_f64(60.0 * minutes))
}

async fn attempt(case: &str, moto: &Moto) -> Outcome {
    let began = Instant::now();
    // The first bench is asked for the capabilities only, so it needs no empty account.
    let is_first = Mutex::new(true);
    let bench = || async {
        let is_first = std::mem::take(&mut *is_first.lock().await);
        let bench =
            if is_first { MotoBench::on(moto.clone(), moto.ids()).await } else { MotoBench::new(moto.clone()).await };
        Box::new(bench) as Box<dyn Bench>
    };
    let outcome = run_one(case, bench).await.unwrap();
    println!("{case}: {outcome} ({:.1?})", began.elapsed());
    outcome
}

fn is_wrong(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_) | Outcome::BenchCannot(_))
}
