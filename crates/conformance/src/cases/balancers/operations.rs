//! Rules about operations that the cloud has started and not finished, and about values of other providers.

use bowline_cloud::{Applied, Error, ErrorKind};
use bowline_core::{
    DesiredLoadBalancer, LoadBalancerState, LoadBalancerStatus, Opaque, Operation, Progress, Step, TargetNode, Verb,
};

use crate::balancing::{Balancing, Steps, gone, happens};
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// No creation or deletion has more steps.
const MANY_STEPS: usize = 100;
const NEVER_AT_WORK: CaseFailure = CaseFailure::NotApplicable("the cloud applies each change at once");

/// A load balancer that the cloud is at work on.
struct Busy {
    desired: DesiredLoadBalancer,
    /// The operation that the first step has started, if it says so.
    started: Option<Operation>,
    /// The first step that has to wait for it.
    next: Option<Step>,
}

async fn slow(work: &Balancing<'_>) -> CaseResult {
    if happens(work.hands().slow().await, "make the cloud slow")? { Ok(()) } else { Err(NEVER_AT_WORK) }
}

/// Applies the first step in a slow cloud.
async fn begin(work: &Balancing<'_>, nodes: &[TargetNode]) -> CaseResult<Busy> {
    let desired = work.everything("web", nodes)?;
    slow(work).await?;
    let mut steps = work.plan(&desired).await?.steps.into_iter();
    let Some(first) = steps.next() else { return broken("nothing is planned for a new Service") };
    let started = apply_first(work, &desired, &first).await?;
    Ok(Busy { desired, started, next: steps.find(|step| !step.independent) })
}

/// The operation that this step starts, if it says so.
async fn apply_first(
    work: &Balancing<'_>,
    desired: &DesiredLoadBalancer,
    step: &Step,
) -> CaseResult<Option<Operation>> {
    match work.apply_once(desired, step).await? {
        Ok(Applied::Started(operation)) => Ok(Some(operation)),
        Ok(_) => Ok(None),
        Err(error) => broken(format!("an error from a sound cloud: {error}")),
    }
}

async fn two_nodes(work: &Balancing<'_>) -> [TargetNode; 2] {
    [work.node("node-1").await, work.node("node-2").await]
}

/// The Service is served in the end.
async fn finish(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    work.hands().settle().await;
    work.fulfil(desired).await?;
    work.remove(desired).await
}

fn is_whole(operation: &Operation) -> CaseResult {
    let Operation { id, what, pacing, deadline, .. } = operation;
    let is_paced = !pacing.pause(1).is_zero() && !deadline.is_zero();
    require(!id.is_empty() && !what.is_empty() && is_paced, || {
        format!("it needs an ID, words, a pause between polls and a deadline: {operation:?}")
    })
}

pub(in crate::cases) async fn pending_is_observed(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let Busy { desired, .. } = begin(&work, &two_nodes(&work).await).await?;
    match work.state(&desired).await?.and_then(|state| state.pending) {
        Some(operation) => is_whole(&operation)?,
        None => return broken("the cloud is at work, and the state names no operation"),
    }
    work.hands().settle().await;
    let pending = work.state(&desired).await?.and_then(|state| state.pending);
    require(pending.is_none(), || format!("the cloud is at rest, and the state names {pending:?}"))?;
    finish(&work, &desired).await
}

pub(in crate::cases) async fn started_operations_end(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let Busy { desired, started, .. } = begin(&work, &two_nodes(&work).await).await?;
    let Some(operation) = started else { return Err(CaseFailure::NotApplicable("no step starts an operation")) };
    is_whole(&operation)?;
    let running = work.provider()?.poll(&desired.key, &operation).await;
    require(matches!(running, Ok(Progress::Running)), || format!("it has not ended, and a poll says {running:?}"))?;
    work.hands().settle().await;
    let done = work.provider()?.poll(&desired.key, &operation).await;
    require(matches!(done, Ok(Progress::Done(_))), || format!("it has ended, and a poll says {done:?}"))?;
    finish(&work, &desired).await
}

/// In creation and in deletion, the operation of each step fails once.
pub(in crate::cases) async fn failed_operation_is_no_success(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = two_nodes(&work).await;
    let (before, desired) = (work.resources().await, work.everything("web", &nodes)?);
    slow(&work).await?;
    if !happens(work.hands().fail_next(1).await, "let an operation fail")? {
        return Err(NEVER_AT_WORK);
    }
    is_reported(&work, &desired).await?;
    work.hands().fail_next(0).await;
    work.remove(&desired).await?;
    for wanted in [&desired, &gone(&desired)] {
        for steps in 0..MANY_STEPS {
            if wanted.spec.is_none() {
                work.fulfil(&desired).await?;
            }
            let is_whole = work.go(wanted, Steps(steps)).await?;
            work.hands().fail_next(1).await;
            // The sync that meets the failure, and the next one.
            for _ in 0..2 {
                if let Ok(state) = work.attempt(wanted).await? {
                    work.is_true(wanted, state.as_ref(), "an operation that failed").await?;
                }
            }
            // Not every step starts an operation.
            work.hands().fail_next(0).await;
            work.remove(&desired).await?;
            work.nothing_changed_since(&before).await?;
            if is_whole {
                break;
            }
        }
    }
    Ok(())
}

/// The first operation fails: a poll says so, or the state after it.
async fn is_reported(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let plan = work.plan(desired).await?;
    let Some(first) = plan.steps.first() else { return broken("nothing is planned for a new Service") };
    let started = apply_first(work, desired, first).await?;
    work.hands().settle().await;
    if let Some(operation) = started.filter(|operation| !operation.observable) {
        let polled = work.provider()?.poll(&desired.key, &operation).await;
        let is_error = polled.as_ref().is_err_and(|error| error.kind() != ErrorKind::InProgress);
        require(is_error, || format!("an operation has failed, and a poll says {polled:?}"))?;
    }
    let state = work.state(desired).await?;
    let pending = state.as_ref().and_then(|state| state.pending.as_ref());
    require(pending.is_none(), || format!("an operation has failed, and the state still names {pending:?}"))?;
    let has_problem = state.as_ref().is_some_and(|state| !state.errors.is_empty());
    match work.provider()?.plan(desired, state.as_ref()) {
        Ok(plan) if plan.is_empty() && !has_problem => broken("an operation has failed, and nothing is left to do"),
        _ => Ok(()),
    }
}

pub(in crate::cases) async fn busy_step_writes_nothing(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = two_nodes(&work).await;
    let Busy { desired, next, .. } = begin(&work, &nodes).await?;
    let step = match next {
        Some(step) => step,
        None => step_of_another_change(&work, &desired, &nodes).await?,
    };
    let before = work.resources().await;
    let error = match work.apply_once(&desired, &step).await? {
        Err(error) if error.kind() == ErrorKind::InProgress => error,
        applied => return broken(format!("the cloud is at work, and the next step comes to {applied:?}")),
    };
    work.nothing_changed_since(&before).await?;
    names_an_operation(&error)?;
    finish(&work, &desired).await
}

/// For plans of one step: two changes are planned at rest. The first is begun, and the second has to wait for it.
async fn step_of_another_change(
    work: &Balancing<'_>,
    desired: &DesiredLoadBalancer,
    nodes: &[TargetNode],
) -> CaseResult<Step> {
    work.hands().settle().await;
    work.fulfil(desired).await?;
    let one = work.otherwise(desired, nodes.get(..1).unwrap_or_default())?;
    let (first, second) = (work.plan(&one).await?, work.plan(&gone(desired)).await?);
    let (Some(first), Some(second)) = (first.steps.into_iter().next(), second.steps.into_iter().next()) else {
        return broken("nothing is planned for a Service that has changed");
    };
    apply_first(work, &one, &first).await?;
    let is_busy = work.state(desired).await?.is_some_and(|state| state.pending.is_some());
    if is_busy { Ok(second) } else { Err(CaseFailure::NotApplicable("no step has to wait for another one")) }
}

fn names_an_operation(error: &Error) -> CaseResult {
    match error.pending_operation() {
        Some(operation) => is_whole(operation),
        None => broken(format!("what is in progress has no operation: {error}")),
    }
}

pub(in crate::cases) async fn foreign_values_are_refused(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    let foreign = || Opaque::new("of another provider".to_owned());
    let state = LoadBalancerState::new(LoadBalancerStatus::default(), foreign());
    let step = Step::new(Verb::Create, "load balancer", "web", Vec::new(), foreign());
    let before = work.calls().await?;
    let errors = [
        ("plan", work.provider()?.plan(&desired, Some(&state)).err()),
        ("apply", work.apply_once(&desired, &step).await?.err()),
    ];
    for (what, error) in errors {
        let kind = error.as_ref().map(Error::kind);
        let is_refused = kind == Some(ErrorKind::Unexpected);
        require(is_refused, || format!("{what} gets a value of another provider, and says {error:?}"))?;
    }
    let calls = work.calls().await? - before;
    require(calls == 0, || format!("{calls} calls because of a value of another provider"))
}
