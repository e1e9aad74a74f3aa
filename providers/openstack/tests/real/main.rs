//! The provider on the real services: Keystone, Nova, Neutron and Octavia as `tests/openstack/up` starts them.
//!
//! These tests run if `BOWLINE_OPENSTACK` is the folder that it has filled, and are skipped otherwise. Each case of the conformance
//! suite has its own project, so several run concurrently; `BOWLINE_CASE` selects some by parts of their names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod balancers;
mod cloud;
mod machines;
mod project;
#[path = "../suite/resources/mod.rs"]
mod resources;
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
use wire::OCTAVIA_FAILURES;

/// Maximum number of concurrent cases: most of their time is spent waiting for the cloud's workers.
const AT_ONCE: usize = 4;

/// Cases are started in this stride, so that an interrupted run covers a part of every topic.
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
        skip(&format!("{left_out} of {} cases on the real services, because the time is up", all.len()));
    }
    let outcomes: Vec<_> = all.into_iter().filter_map(|(case, outcome)| Some((case, outcome?))).collect();
    let passed = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Passed).count();
    println!("{passed} of {} cases passed on the real services", outcomes.len());
    println!("{} requests were retried because of Octavia's bug", OCTAVIA_FAILURES.load(Ordering::SeqCst));
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| is_wrong(outcome)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(passed > 0 || only.is_some(), "no case has run");
}

/// Cases that take a quarter of an hour and more, because they restart after every single call, or create hundreds of resources.
fn is_long(case: &str) -> bool {
    let many = ["calls_are_cancel_safe", "half_built_is_deleted", "route_listing_is_complete"];
    case.ends_with("_every_crash") || many.contains(&case)
}

/// Cases that need more than the first kind of load balancer.
fn is_about_kinds(case: &str) -> bool {
    ["internal_is_not_public", "kind_changes"].contains(&case)
}

/// Reports a skip past the test runner's capture, in the form that the CI counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

/// Returns the time after which no case is started: `BOWLINE_OPENSTACK_MINUTES` from now, or never.
fn deadline() -> Option<Instant> {
    let minutes: u64 = std::env::var("BOWLINE_OPENSTACK_MINUTES").ok()?.parse().unwrap();
    Some(Instant::now() + Duration::from_secs(60 * minutes))
}

/// Runs one case in its own project; `None` if there is no time left.
async fn one(case: &str, projects: &Projects, until: Option<Instant>) -> Option<Outcome> {
    if until.is_some_and(|until| Instant::now() > until || is_long(case)) {
        return None;
    }
    let project = projects.take().await;
    let outcome = attempt(case, &project).await;
    projects.keep(project);
    Some(outcome)
}

/// Runs one case in this project, and cleans it up.
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
