//! Runs the cases, each on its own bench.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use bowline_cloud::Capabilities;
use futures::FutureExt;

use crate::bench::Bench;
use crate::capability::Need;
use crate::cases::{Case, cases};
use crate::context::{CaseContext, CaseFailure};
use crate::report::{Outcome, Report};

/// Runs all cases. `bench` builds a new bench, with an empty cloud, for each.
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

/// Runs the case with this name; returns `None` if there is none. Useful while you work on a single rule.
pub async fn run_one<F, B>(case: &str, bench: F) -> Option<Outcome>
where
    F: Fn() -> B,
    B: Future<Output = Box<dyn Bench>>,
{
    let case = cases().iter().find(|known| known.name == case)?;
    let first = bench().await.provider();
    Some(run_kinds(case, first.capabilities(), &bench).await)
}

/// Runs a case about load balancers once for each kind that meets its needs, up to the first failure, and any other case once. The
/// case is not applicable only if it is not applicable to any of these kinds.
async fn run_kinds<F, B>(case: &Case, capabilities: &Capabilities, bench: &F) -> Outcome
where
    F: Fn() -> B,
    B: Future<Output = Box<dyn Bench>>,
{
    let kinds = match Need::kinds_that_meet(case.needs, capabilities) {
        Ok(kinds) => kinds,
        Err(need) => return Outcome::Skipped(need),
    };
    let (mut passed, mut not_applicable) = (false, None);
    for kind in kinds {
        let kind = kind.map(|kind| kind.name);
        match run_case(case, CaseContext::new(bench().await, kind)).await {
            Outcome::Passed => passed = true,
            Outcome::Failed(why) => return Outcome::Failed(with_kind(kind, why)),
            outcome @ Outcome::NotApplicable(_) => not_applicable = Some(outcome),
            outcome => return outcome,
        }
    }
    not_applicable.filter(|_| !passed).unwrap_or(Outcome::Passed)
}

fn with_kind(kind: Option<&str>, why: String) -> String {
    match kind {
        Some(kind) if !kind.is_empty() => format!("{why} (load balancers of kind {kind})"),
        _ => why,
    }
}

async fn run_case(case: &Case, context: CaseContext) -> Outcome {
    // A panic of the provider fails this case and must not abort the others.
    let guarded = AssertUnwindSafe((case.run)(&context)).catch_unwind();
    // A case that exceeds the timeout is stuck.
    let timeout = context.bench().timeout();
    match tokio::time::timeout(timeout, guarded).await {
        Err(_) => Outcome::Failed(format!("timed out after {timeout:?}")),
        Ok(Err(_)) => Outcome::Failed("panicked".to_owned()),
        Ok(Ok(Err(CaseFailure::Failed(why)))) => Outcome::Failed(why),
        Ok(Ok(Err(CaseFailure::BenchCannot(what)))) => Outcome::BenchCannot(what),
        Ok(Ok(Err(CaseFailure::NotApplicable(why)))) => Outcome::NotApplicable(why),
        Ok(Ok(Ok(()))) => Outcome::Passed,
    }
}
