//! Rules about operations that the cloud has started and not finished, and about values of other providers.

use bowline_cloud::{Applied, Error, ErrorKind};
use bowline_core::{LoadBalancerState, LoadBalancerStatus, LoadBalancerWish, Opaque, Operation, Progress, Step, Verb};

use crate::balancing::{Balancing, happens};
use crate::scene::{Scene, Verdict, broken, require};

/// A load balancer that the cloud is at work on.
struct Busy {
    wish: LoadBalancerWish,
    /// The operation that the first step has started, if it says so.
    started: Option<Operation>,
    /// The first step that has to wait for it.
    next: Option<Step>,
}

/// Applies the first step in a slow cloud; `None` if this cloud is never at work.
async fn begin(work: &Balancing<'_>) -> Verdict<Option<Busy>> {
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let wish = work.everything("web", &nodes)?;
    if !happens(work.hands().slow().await, "make the cloud slow")? {
        return Ok(None);
    }
    let mut steps = work.plan(&wish).await?.steps.into_iter();
    let Some(first) = steps.next() else { return broken("nothing is planned for a new Service") };
    let started = match work.apply_once(&wish, &first).await {
        Ok(Applied::Started(operation)) => Some(operation),
        Ok(_) => None,
        Err(error) => return broken(format!("an error from a sound cloud: {error}")),
    };
    Ok(Some(Busy { wish, started, next: steps.find(|step| !step.independent) }))
}

/// The Service is served in the end.
async fn finish(work: &Balancing<'_>, wish: &LoadBalancerWish) -> Verdict {
    work.hands().settle().await;
    work.fulfil(wish).await?;
    work.remove(wish).await
}

fn is_whole(operation: &Operation) -> Verdict {
    let Operation { id, what, pacing, deadline, .. } = operation;
    let is_paced = !pacing.pause(1).is_zero() && !deadline.is_zero();
    require(!id.is_empty() && !what.is_empty() && is_paced, || {
        format!("it needs an ID, words, a pause between polls and a deadline: {operation:?}")
    })
}

pub(in crate::cases) async fn pending_is_observed(scene: &Scene) -> Verdict {
    let work = Balancing::of(scene)?;
    let Some(Busy { wish, .. }) = begin(&work).await? else { return Ok(()) };
    match work.state(&wish).await?.and_then(|state| state.pending) {
        Some(operation) => is_whole(&operation)?,
        None => return broken("the cloud is at work, and the state names no operation"),
    }
    work.hands().settle().await;
    let pending = work.state(&wish).await?.and_then(|state| state.pending);
    require(pending.is_none(), || format!("the cloud is at rest, and the state names {pending:?}"))?;
    finish(&work, &wish).await
}

pub(in crate::cases) async fn started_operations_end(scene: &Scene) -> Verdict {
    let work = Balancing::of(scene)?;
    let Some(Busy { wish, started, .. }) = begin(&work).await? else { return Ok(()) };
    if let Some(operation) = started {
        is_whole(&operation)?;
        let running = work.provider()?.poll(&wish.key, &operation).await;
        require(matches!(running, Ok(Progress::Running)), || format!("it has not ended, and a poll says {running:?}"))?;
        work.hands().settle().await;
        let done = work.provider()?.poll(&wish.key, &operation).await;
        require(matches!(done, Ok(Progress::Done(_))), || format!("it has ended, and a poll says {done:?}"))?;
    }
    finish(&work, &wish).await
}

pub(in crate::cases) async fn busy_step_writes_nothing(scene: &Scene) -> Verdict {
    let work = Balancing::of(scene)?;
    let Some(Busy { wish, next, .. }) = begin(&work).await? else { return Ok(()) };
    if let Some(step) = next {
        let before = work.resources().await;
        let error = match work.apply_once(&wish, &step).await {
            Err(error) if error.kind() == ErrorKind::InProgress => error,
            applied => return broken(format!("the cloud is at work, and the next step comes to {applied:?}")),
        };
        work.nothing_changed_since(&before).await?;
        names_an_operation(&error)?;
    }
    finish(&work, &wish).await
}

fn names_an_operation(error: &Error) -> Verdict {
    match error.pending_operation() {
        Some(operation) => is_whole(operation),
        None => broken(format!("what is in progress has no operation: {error}")),
    }
}

pub(in crate::cases) async fn foreign_values_are_refused(scene: &Scene) -> Verdict {
    let work = Balancing::of(scene)?;
    let wish = work.wish("web", &[work.node("node-1").await])?;
    let foreign = || Opaque::new("of another provider".to_owned());
    let state = LoadBalancerState::new(LoadBalancerStatus::default(), foreign());
    let step = Step::new(Verb::Create, "load balancer", "web", Vec::new(), foreign());
    let before = work.calls().await?;
    let errors = [
        ("plan", work.provider()?.plan(&wish, Some(&state)).err()),
        ("apply", work.apply_once(&wish, &step).await.err()),
    ];
    for (what, error) in errors {
        let kind = error.as_ref().map(Error::kind);
        let is_refused = kind == Some(ErrorKind::Unexpected);
        require(is_refused, || format!("{what} gets a value of another provider, and says {error:?}"))?;
    }
    let calls = work.calls().await? - before;
    require(calls == 0, || format!("{calls} calls because of a value of another provider"))
}
