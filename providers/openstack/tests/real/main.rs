//! The provider on the real services: Keystone, Nova, Neutron and Octavia as `tests/openstack/up` starts them.
//!
//! These tests run where `BOWLINE_OPENSTACK` names the folder that it filled, and are skipped elsewhere. Each case of the
//! behaviour suite has a project to itself, so several run at once; `BOWLINE_CASE` picks some by parts of their names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod balancers;
mod cloud;
#[path = "../suite/looks/mod.rs"]
mod looks;
mod machines;
mod project;
mod routes;
mod wire;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline_conformance::{Bench, Outcome, cases, run_one};
use futures::StreamExt;
use futures::stream;

use cloud::Cloud;
use machines::RealBench;
use project::{Project, Projects};
use wire::OCTAVIAS_OWN;

/// How many cases are under way at once: most of their time is spent waiting for the cloud's workers.
const AT_ONCE: usize = 4;

/// Cases are begun in this stride, so that a run that is cut short has seen something of everything.
const STRIDE: usize = 7;

/// Real workers cannot be made to fail; the simulator's can.
const NOT_ON_DEMAND: &str = "failed_operation_is_no_success";

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_conforms_on_the_real_services() {
    let Some(folder) = Cloud::folder() else {
        return skip("no real OpenStack, BOWLINE_OPENSTACK is not set");
    };
    let projects = Projects::new(Cloud::open(&folder).await);
    let only = std::env::var("BOWLINE_CASE").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)));
    let mixed = (0..STRIDE).flat_map(|first| cases().iter().skip(first).step_by(STRIDE));
    let (long, short): (Vec<_>, Vec<_>) =
        mixed.filter(|case| is_wanted(case.name) && case.name != NOT_ON_DEMAND).partition(|case| is_long(case.name));
    let wanted = short.into_iter().chain(long);
    let until = deadline();
    let all: Vec<_> = stream::iter(wanted)
        .map(|case| async { (case.name, one(case.name, &projects, until).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    projects.remove().await;
    let left_out = all.iter().filter(|(_, outcome)| outcome.is_none()).count();
    if left_out > 0 {
        skip(&format!("{left_out} of {} cases on the real services, for want of time", all.len()));
    }
    let outcomes: Vec<_> = all.into_iter().filter_map(|(case, outcome)| Some((case, outcome?))).collect();
    let passed = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Passed).count();
    println!("{passed} of {} cases passed on the real services", outcomes.len());
    println!("{} requests were sent again that Octavia failed by itself", OCTAVIAS_OWN.load(Ordering::SeqCst));
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| is_wrong(outcome)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(passed > 0 || only.is_some(), "nothing was shown");
}

/// Those that take a quarter of an hour and more, because they begin anew after every single call, or make hundreds of things.
fn is_long(case: &str) -> bool {
    let many = ["a_dropped_call_is_forgotten", "half_built_is_deleted", "route_listing_is_complete"];
    case.ends_with("_every_crash") || many.contains(&case)
}

/// Those that need more than the first kind of load balancer.
fn is_about_kinds(case: &str) -> bool {
    ["internal_stays_inside", "kind_changes"].contains(&case)
}

/// Says so past the test runner's capture, in the form that the gate counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

/// When no case is begun any more: `BOWLINE_OPENSTACK_MINUTES` from now, or never.
fn deadline() -> Option<Instant> {
    let minutes: u64 = std::env::var("BOWLINE_OPENSTACK_MINUTES").ok()?.parse().unwrap();
    Some(Instant::now() + Duration::from_secs(60 * minutes))
}

/// Runs one case in a project of its own; `None` if there is no time left.
async fn one(case: &str, projects: &Projects, until: Option<Instant>) -> Option<Outcome> {
    if until.is_some_and(|until| Instant::now() > until || is_long(case)) {
        return None;
    }
    let project = projects.take().await;
    let outcome = attempt(case, &project).await;
    projects.keep(project);
    Some(outcome)
}

/// Runs one case in this project, and leaves nothing in it.
async fn attempt(case: &str, project: &Arc<Project>) -> Outcome {
    let began = Instant::now();
    let kinds = if is_about_kinds(case) { usize::MAX } else { 1 };
    let bench = || {
        let project = project.clone();
        async move { Box::new(RealBench::new(project, kinds)) as Box<dyn Bench> }
    };
    let outcome = run_one(case, bench).await.unwrap();
    if !matches!(outcome, Outcome::Skipped(_)) {
        println!("{case}: {outcome:?} ({:.0?})", began.elapsed());
        project.clear().await;
    }
    outcome
}

fn is_wrong(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_) | Outcome::BenchCannot(_))
}
