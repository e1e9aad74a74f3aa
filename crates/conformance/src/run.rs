//! Runs all cases, each on a bench of its own.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use bowline_cloud::Capabilities;
use futures::FutureExt;

use crate::bench::Bench;
use crate::capability::Need;
use crate::cases::{Case, cases};
use crate::report::{Outcome, Report};
use crate::scene::{CaseFailure, Scene};

/// Runs all cases; `bench` makes a new bench, with an empty cloud, for each.
pub async fn run<F, B>(bench: F) -> Report
where
    F: Fn() -> B,
    B: Future<Output = Box<dyn Bench>>,
{
    let first = bench().await.provider();
    let mut outcomes = Vec::with_capacity(cases().len());
    for case in cases() {
        outcomes.push((case.name, run_kinds(case, first.capabilities(), &bench).await));
    }
    Report::new(first.info().name.clone(), first.capabilities().clone(), outcomes)
}

/// Runs the one case of this name; `None` if there is none. For work on a single rule.
pub async fn run_one<F, B>(case: &str, bench: F) -> Option<Outcome>
where
    F: Fn() -> B,
    B: Future<Output = Box<dyn Bench>>,
{
    let case = cases().iter().find(|known| known.name == case)?;
    let first = bench().await.provider();
    Some(run_kinds(case, first.capabilities(), &bench).await)
}

/// Runs a case about load balancers once for each kind that meets its needs, up to the first that fails; any other case once. A case
/// that does not apply to one of the kinds is reported as such.
async fn run_kinds<F, B>(case: &Case, capabilities: &Capabilities, bench: &F) -> Outcome
where
    F: Fn() -> B,
    B: Future<Output = Box<dyn Bench>>,
{
    let kinds = match Need::kinds_that_meet(case.needs, capabilities) {
        Ok(kinds) => kinds,
        Err(need) => return Outcome::Skipped(need),
    };
    let mut not_applicable = None;
    for kind in kinds {
        let kind = kind.map(|kind| kind.name);
        match run_case(case, Scene::new(bench().await, kind)).await {
            Outcome::Passed => {}
            Outcome::Failed(why) => return Outcome::Failed(with_kind(kind, why)),
            outcome @ Outcome::NotApplicable(_) => not_applicable = Some(outcome),
            outcome => return outcome,
        }
    }
    not_applicable.unwrap_or(Outcome::Passed)
}

fn with_kind(kind: Option<&str>, why: String) -> String {
    match kind {
        Some(kind) if !kind.is_empty() => format!("{why} (load balancers of kind {kind})"),
        _ => why,
    }
}

async fn run_case(case: &Case, scene: Scene) -> Outcome {
    // A provider that panics breaks a rule like any other, and must not hide what the other cases say.
    let guarded = AssertUnwindSafe((case.run)(&scene)).catch_unwind();
    // A case that takes longer waits for something that will not come.
    let patience = scene.bench().patience();
    match tokio::time::timeout(patience, guarded).await {
        Err(_) => Outcome::Failed(format!("it did not end within {patience:?}")),
        Ok(Err(_)) => Outcome::Failed("it panicked".to_owned()),
        Ok(Ok(Err(CaseFailure::Broken(why)))) => Outcome::Failed(why),
        Ok(Ok(Err(CaseFailure::BenchCannot(what)))) => Outcome::BenchCannot(what),
        Ok(Ok(Err(CaseFailure::NotApplicable(why)))) => Outcome::NotApplicable(why),
        Ok(Ok(Ok(()))) => Outcome::Passed,
    }
}
