//! The conformance suite for instances on vcsim.
//!
//! The cases share one vCenter, which is reset before each of them. They run in a stride, so that an interrupted run covers a part of
//! every topic.

use std::time::{Duration, Instant};

use bowline_conformance::{Bench, Outcome, cases, run_one};

use super::bench::VcsimBench;
use super::vcsim::Vcsim;
use super::{VCENTER, open, skip};

/// Cases are started in this stride.
const STRIDE: usize = 7;

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_conforms_on_vcsim() {
    let Some(vcsim) = open() else { return };
    let _vcenter = VCENTER.lock().await;
    let only = std::env::var("BOWLINE_CASE").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)));
    let mixed = (0..STRIDE).flat_map(|first| cases().iter().skip(first).step_by(STRIDE));
    let wanted = mixed.map(|case| case.name).filter(|name| is_wanted(name));
    let (until, began) = (deadline(), Instant::now());
    let (mut outcomes, mut left_out) = (Vec::new(), 0);
    for case in wanted {
        if until.is_some_and(|until| Instant::now() >= until) {
            left_out += 1;
        } else {
            outcomes.push((case, attempt(case, &vcsim).await));
        }
    }
    if left_out > 0 {
        skip(&format!("{left_out} of {} cases on vcsim, because the time is up", outcomes.len() + left_out));
    }
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, outcome)| wanted(outcome)).count();
    let (passed, failed) = (count(|one| *one == Outcome::Passed), count(is_wrong));
    let skipped = outcomes.len() - passed - failed;
    println!("{passed} cases passed on vcsim, {failed} failed, {skipped} skipped ({:.0?})", began.elapsed());
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| is_wrong(outcome)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(passed > 0 || only.is_some(), "no case has run");
}

/// Returns the time after which no case is started: `BOWLINE_VSPHERE_MINUTES` from now, or never.
fn deadline() -> Option<Instant> {
    let minutes: f64 = std::env::var("BOWLINE_VSPHERE_MINUTES").ok()?.parse().unwrap();
    Some(Instant::now() + Duration::from_secs_f64(60.0 * minutes))
}

async fn attempt(case: &str, vcsim: &Vcsim) -> Outcome {
    let began = Instant::now();
    let bench = || async { Box::new(VcsimBench::new(vcsim.clone()).await) as Box<dyn Bench> };
    let outcome = run_one(case, bench).await.unwrap();
    println!("{case}: {outcome} ({:.1?})", began.elapsed());
    outcome
}

fn is_wrong(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_) | Outcome::BenchCannot(_))
}
