//! Rules about operations in progress, and about values of other providers.

use bowline_cloud::{Applied, Error, ErrorKind};
use bowline_core::{
    DesiredLoadBalancer, LoadBalancerState, LoadBalancerStatus, Opaque, Operation, Progress, Step, TargetNode, Verb,
};

use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, Steps, was_induced, without_spec};

/// Maximum number of steps of a creation or deletion.
const MAX_STEPS: usize = 100;
const NO_OPERATIONS: CaseFailure = CaseFailure::NotApplicable("the cloud applies each change at once");

/// A load balancer with an operation in progress.
struct Busy {
    desired: DesiredLoadBalancer,
    /// Operation that the first step returned, if any.
    started: Option<Operation>,
    /// First step that depends on it.
    next: Option<Step>,
}

/// Makes every change of the cloud take time.
pub(super) async fn slow(fixture: &LoadBalancerFixture<'_>) -> CaseResult {
    if was_induced(fixture.controls().slow().await, "make the cloud slow")? { Ok(()) } else { Err(NO_OPERATIONS) }
}

/// Applies the first step in a slow cloud.
async fn begin(fixture: &LoadBalancerFixture<'_>, nodes: &[TargetNode]) -> CaseResult<Busy> {
    let desired = fixture.full_featured("web", nodes)?;
    slow(fixture).await?;
    let mut steps = fixture.plan(&desired).await?.steps.into_iter();
    let Some(first) = steps.next() else { return fail("the plan for a new Service is empty") };
    let started = apply_first(fixture, &desired, &first).await?;
    Ok(Busy { desired, started, next: steps.find(|step| !step.independent) })
}

/// Applies a step and returns the operation that it started, if any.
async fn apply_first(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    step: &Step,
) -> CaseResult<Option<Operation>> {
    match fixture.apply_once(desired, step).await? {
        Ok(Applied::Started(operation)) => Ok(Some(operation)),
        Ok(_) => Ok(None),
        Err(error) => fail(format!("a healthy cloud returned an error: {error}")),
    }
}

async fn two_nodes(fixture: &LoadBalancerFixture<'_>) -> [TargetNode; 2] {
    [fixture.node("node-1").await, fixture.node("node-2").await]
}

/// Settles the cloud, and verifies that the Service can be synced and deleted.
async fn finish(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    fixture.controls().settle().await;
    fixture.sync_and_verify(desired).await?;
    fixture.delete_and_verify(desired).await
}

fn verify_operation(operation: &Operation) -> CaseResult {
    let Operation { id, description: what, poll_interval, deadline, .. } = operation;
    let is_paced = !poll_interval.pause(1).is_zero() && !deadline.is_zero();
    require(!id.is_empty() && !what.is_empty() && is_paced, || {
        format!("the operation needs an ID, a description, a pause between polls and a deadline: {operation:?}")
    })
}

pub(in crate::cases) async fn pending_operation_is_observed(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let Busy { desired, .. } = begin(&fixture, &two_nodes(&fixture).await).await?;
    match fixture.state(&desired).await?.and_then(|state| state.pending) {
        Some(operation) => verify_operation(&operation)?,
        None => return fail("an operation is in progress, but the state has no pending operation"),
    }
    fixture.controls().settle().await;
    let pending = fixture.state(&desired).await?.and_then(|state| state.pending);
    require(pending.is_none(), || {
        format!("no operation is in progress, but the state has the pending operation {pending:?}")
    })?;
    finish(&fixture, &desired).await
}

pub(in crate::cases) async fn started_operations_end(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let Busy { desired, started, .. } = begin(&fixture, &two_nodes(&fixture).await).await?;
    let Some(operation) = started else { return Err(CaseFailure::NotApplicable("no step starts an operation")) };
    verify_operation(&operation)?;
    let running = fixture.provider()?.poll(&desired.key, &operation).await;
    require(matches!(running, Ok(Progress::Running)), || {
        format!("the operation is in progress: expected `Running` from the poll, got {running:?}")
    })?;
    fixture.controls().settle().await;
    let done = fixture.provider()?.poll(&desired.key, &operation).await;
    require(matches!(done, Ok(Progress::Done(_))), || {
        format!("the operation has ended: expected `Done` from the poll, got {done:?}")
    })?;
    finish(&fixture, &desired).await
}

/// Fails the operation of each step of the creation and of the deletion once.
pub(in crate::cases) async fn failed_operation_is_no_success(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = two_nodes(&fixture).await;
    let (before, desired) = (fixture.resources().await, fixture.full_featured("web", &nodes)?);
    slow(&fixture).await?;
    if !was_induced(fixture.controls().fail_next(1).await, "make an operation fail")? {
        return Err(NO_OPERATIONS);
    }
    verify_failure_is_reported(&fixture, &desired).await?;
    fixture.controls().fail_next(0).await;
    fixture.delete_and_verify(&desired).await?;
    for wanted in [&desired, &without_spec(&desired)] {
        for steps in 0..MAX_STEPS {
            if wanted.spec.is_none() {
                fixture.sync_and_verify(&desired).await?;
            }
            let is_complete = fixture.apply_steps(wanted, Steps(steps)).await?;
            fixture.controls().fail_next(1).await;
            // The sync that hits the failure, and the next one.
            for _ in 0..2 {
                if let Ok(state) = fixture.try_sync(wanted).await? {
                    fixture.verify_success(wanted, state.as_ref(), "a failed operation").await?;
                }
            }
            // Not every step starts an operation, so the failure may be unused.
            fixture.controls().fail_next(0).await;
            fixture.delete_and_verify(&desired).await?;
            fixture.verify_unchanged(&before).await?;
            if is_complete {
                break;
            }
        }
    }
    Ok(())
}

/// Fails the first operation, and verifies that a poll or the next state reports it.
async fn verify_failure_is_reported(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let plan = fixture.plan(desired).await?;
    let Some(first) = plan.steps.first() else { return fail("the plan for a new Service is empty") };
    let started = apply_first(fixture, desired, first).await?;
    fixture.controls().settle().await;
    if let Some(operation) = started.filter(|operation| !operation.observable) {
        let polled = fixture.provider()?.poll(&desired.key, &operation).await;
        let is_error = polled.as_ref().is_err_and(|error| error.kind() != ErrorKind::InProgress);
        require(is_error, || format!("the operation failed: expected an error from the poll, got {polled:?}"))?;
    }
    let state = fixture.state(desired).await?;
    let pending = state.as_ref().and_then(|state| state.pending.as_ref());
    require(pending.is_none(), || {
        format!("the operation failed, but the state still has the pending operation {pending:?}")
    })?;
    let has_errors = state.as_ref().is_some_and(|state| !state.errors.is_empty());
    match fixture.provider()?.plan(desired, state.as_ref()) {
        Ok(plan) if plan.is_empty() && !has_errors => {
            fail("the operation failed, but the state has no error and the plan is empty")
        }
        _ => Ok(()),
    }
}

pub(in crate::cases) async fn busy_step_writes_nothing(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = two_nodes(&fixture).await;
    let Busy { desired, next, .. } = begin(&fixture, &nodes).await?;
    let step = match next {
        Some(step) => step,
        None => step_of_another_change(&fixture, &desired, &nodes).await?,
    };
    let before = fixture.resources().await;
    let error = match fixture.apply_once(&desired, &step).await? {
        Err(error) if error.kind() == ErrorKind::InProgress => error,
        applied => {
            return fail(format!(
                "an operation is in progress: expected `InProgress` from the next step, got {applied:?}"
            ));
        }
    };
    fixture.verify_unchanged(&before).await?;
    verify_pending_operation(&error)?;
    finish(&fixture, &desired).await
}

/// Step that has to wait, for plans with one step: plans two changes, starts the first, and returns a step of the second.
async fn step_of_another_change(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    nodes: &[TargetNode],
) -> CaseResult<Step> {
    fixture.controls().settle().await;
    fixture.sync_and_verify(desired).await?;
    let one = fixture.changed(desired, nodes.get(..1).unwrap_or_default())?;
    let (first, second) = (fixture.plan(&one).await?, fixture.plan(&without_spec(desired)).await?);
    let (Some(first), Some(second)) = (first.steps.into_iter().next(), second.steps.into_iter().next()) else {
        return fail("the plan for a changed Service is empty");
    };
    apply_first(fixture, &one, &first).await?;
    let is_busy = fixture.state(desired).await?.is_some_and(|state| state.pending.is_some());
    if is_busy { Ok(second) } else { Err(CaseFailure::NotApplicable("no step has to wait for another")) }
}

fn verify_pending_operation(error: &Error) -> CaseResult {
    match error.pending_operation() {
        Some(operation) => verify_operation(operation),
        None => fail(format!("`InProgress` without a pending operation: {error}")),
    }
}

pub(in crate::cases) async fn foreign_values_are_refused(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    let foreign = || Opaque::new("value of another provider".to_owned());
    let state = LoadBalancerState::new(LoadBalancerStatus::default(), foreign());
    let step = Step::new(Verb::Create, "load balancer", "web", Vec::new(), foreign());
    let before = fixture.calls().await?;
    let errors = [
        ("plan", fixture.provider()?.plan(&desired, Some(&state)).err()),
        ("apply", fixture.apply_once(&desired, &step).await?.err()),
    ];
    for (what, error) in errors {
        let kind = error.as_ref().map(Error::kind);
        let is_rejected = kind == Some(ErrorKind::Unexpected);
        require(is_rejected, || {
            format!("`{what}` with a value of another provider: expected `Unexpected`, got {error:?}")
        })?;
    }
    let calls = fixture.calls().await? - before;
    require(calls == 0, || format!("{calls} calls for a value of another provider"))
}
