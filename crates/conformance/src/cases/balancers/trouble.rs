//! Rules about crashes, and about a cloud that goes wrong.

use std::time::Duration;

use bowline_cloud::{Error, Retry};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{DesiredLoadBalancer, Step, TargetNode, Verb};
use futures::future::join_all;

use crate::balancing::{AtOnce, Balancing, Shape, Steps, gone, happens, set};
use crate::bench::{ForeignLoadBalancer, InducedFault, SeenResource};
use crate::cases::trouble::visible_troubles;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// No creation, update or deletion takes more calls.
const MANY_CALLS: u64 = 500;
/// Enough to drop a call at each of its waits, in a simulator of the same process.
const MANY_POLLS: usize = 24;
/// No plan has more steps.
const MANY_STEPS: usize = 100;
const NINE: Duration = Duration::from_secs(9);

pub(in crate::cases) async fn creation_survives_every_crash(scene: &Scene) -> CaseResult {
    let mut work = Balancing::of(scene)?;
    can_crash(&work).await?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let whole = Whole::of(&work, &nodes).await?;
    for calls in 1..MANY_CALLS {
        let unharmed = crashes(&mut work, &whole.desired, calls).await?;
        whole.is_built(&work, || format!("a crash after {calls} calls")).await?;
        whole.is_removed(&work).await?;
        if unharmed {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

pub(in crate::cases) async fn update_survives_every_crash(scene: &Scene) -> CaseResult {
    let mut work = Balancing::of(scene)?;
    can_crash(&work).await?;
    let nodes = [work.node("node-1").await, work.node("node-2").await, work.node("node-3").await];
    let one = work.everything("web", nodes.get(..2).unwrap_or_default())?;
    let other = work.otherwise(&one, nodes.get(1..).unwrap_or_default())?;
    work.fulfil(&one).await?;
    work.fulfil(&other).await?;
    let (shape, address) = (work.shape(&one.key).await, work.seen(&one.key).await?.addresses);
    for calls in 1..MANY_CALLS {
        work.fulfil(&one).await?;
        let unharmed = crashes(&mut work, &other, calls).await?;
        work.fulfil(&other).await?;
        let built = work.shape(&one.key).await;
        require(built == shape, || format!("a crash after {calls} calls left {built:?} instead of {shape:?}"))?;
        let now = work.seen(&one.key).await?.addresses;
        require(now == address, || format!("a crash after {calls} calls made {now:?} of {address:?}"))?;
        if unharmed {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

pub(in crate::cases) async fn deletion_survives_every_crash(scene: &Scene) -> CaseResult {
    let mut work = Balancing::of(scene)?;
    can_crash(&work).await?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let before = work.resources().await;
    let desired = work.everything("web", &nodes)?;
    for calls in 1..MANY_CALLS {
        work.fulfil(&desired).await?;
        let unharmed = crashes(&mut work, &gone(&desired), calls).await?;
        work.remove(&desired).await?;
        work.nothing_changed_since(&before).await?;
        if unharmed {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

pub(in crate::cases) async fn release_survives_every_crash(scene: &Scene) -> CaseResult {
    let mut work = Balancing::of(scene)?;
    can_crash(&work).await?;
    let nodes = [work.node("node-1").await];
    for calls in 1..MANY_CALLS {
        // Another Service each time: what is let go keeps its name.
        let desired = work.everything(&format!("web-{calls}"), &nodes)?;
        let kept = set(&desired, |settings| settings.policy = DeletionPolicy::Retain);
        work.fulfil(&kept).await?;
        let mut released = work.resources().await;
        released.iter_mut().for_each(|resource| resource.owners.retain(|mark| !mark.marks(&kept.key)));
        let unharmed = crashes(&mut work, &gone(&kept), calls).await?;
        work.converge(&gone(&kept)).await?;
        work.nothing_changed_since(&released).await?;
        if unharmed {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

pub(in crate::cases) async fn adoption_survives_every_crash(scene: &Scene) -> CaseResult {
    let mut work = Balancing::of(scene)?;
    can_crash(&work).await?;
    let nodes = [work.node("node-1").await];
    let before = work.resources().await;
    let desired = work.desired("heir", &nodes)?;
    for calls in 1..MANY_CALLS {
        let lonely = ForeignLoadBalancer { name: format!("lonely-{calls}"), ..ForeignLoadBalancer::default() };
        let Some(lonely) = work.hands().put_foreign(&lonely).await else {
            return Err(CaseFailure::BenchCannot("put a balancer of somebody else".to_owned()));
        };
        let adopting = set(&desired, |settings| settings.adopt = Some(lonely.name));
        let unharmed = crashes(&mut work, &adopting, calls).await?;
        work.fulfil(&adopting).await?;
        let id = work.seen(&adopting.key).await?.id;
        require(id == lonely.id, || format!("{} was to be adopted, and after a crash it is {id}", lonely.id))?;
        work.remove(&adopting).await?;
        work.nothing_changed_since(&before).await?;
        if unharmed {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

/// A Service with everything, and the load balancer that it has if nothing goes wrong.
struct Whole {
    desired: DesiredLoadBalancer,
    shape: Shape,
    /// The cloud without it.
    before: Vec<SeenResource>,
}

impl Whole {
    async fn of(work: &Balancing<'_>, nodes: &[TargetNode]) -> CaseResult<Whole> {
        let before = work.resources().await;
        let desired = work.everything("web", nodes)?;
        work.fulfil(&desired).await?;
        let shape = work.shape(&desired.key).await;
        work.remove(&desired).await?;
        Ok(Whole { desired, shape, before })
    }

    /// It can be built whole, without doubles, after what went wrong.
    async fn is_built(&self, work: &Balancing<'_>, wrong: impl FnOnce() -> String) -> CaseResult {
        work.fulfil(&self.desired).await?;
        let (built, shape) = (work.shape(&self.desired.key).await, &self.shape);
        require(built == *shape, || format!("{} left {built:?} instead of {shape:?}", wrong()))
    }

    /// It can be removed, and nothing is left.
    async fn is_removed(&self, work: &Balancing<'_>) -> CaseResult {
        work.remove(&self.desired).await?;
        work.nothing_changed_since(&self.before).await
    }
}

/// Whether there is anything to show, before anything is made for it.
async fn can_crash(work: &Balancing<'_>) -> CaseResult {
    happens(work.scene().bench().crash_after(None).await, "crash after a number of calls").map(drop)
}

/// The manager crashes after so many calls and starts anew; `true` if it was done before.
async fn crashes(work: &mut Balancing<'_>, desired: &DesiredLoadBalancer, calls: u64) -> CaseResult<bool> {
    let scene = work.scene();
    if !happens(scene.bench().crash_after(Some(calls)).await, "crash after a number of calls")? {
        return Ok(true);
    }
    let came = work.attempt(desired).await;
    scene.bench().crash_after(None).await;
    work.hands().settle().await;
    work.restart().await;
    let Ok(state) = came? else { return Ok(false) };
    work.is_true(desired, state.as_ref(), &format!("{calls} calls")).await?;
    Ok(true)
}

pub(in crate::cases) async fn a_dropped_call_is_forgotten(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let whole = Whole::of(&work, &nodes).await?;
    for polls in 0..MANY_POLLS {
        let ended = ends_within(polls, work.attempt(&whole.desired)).await;
        work.hands().settle().await;
        whole.is_built(&work, || "a call that was dropped".to_owned()).await?;
        ends_within(polls, work.attempt(&gone(&whole.desired))).await;
        whole.is_removed(&work).await?;
        if ended {
            break;
        }
    }
    Ok(())
}

/// Goes on with it so many times, and then drops it; `true` if it came to its end.
async fn ends_within(polls: usize, work: impl Future) -> bool {
    let mut work = std::pin::pin!(work);
    for _ in 0..polls {
        if futures::poll!(work.as_mut()).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

pub(in crate::cases) async fn failed_observation_is_no_answer(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    work.fulfil(&desired).await?;
    for (trouble, _) in visible_troubles() {
        scene.trouble(trouble).await?;
        if let Ok(state) = work.observe(&desired).await? {
            return broken(format!("in spite of {trouble:?} it says that there is {state:?}"));
        }
        if let Ok(keys) = work.provider()?.list(&desired.key.cluster).await {
            return broken(format!("in spite of {trouble:?} it lists {keys:?}"));
        }
    }
    scene.mend().await;
    work.fulfil(&desired).await.map(drop)
}

pub(in crate::cases) async fn balancer_errors_have_a_kind(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    for (trouble, kind) in visible_troubles() {
        let all = all_errors(&work, &desired, trouble).await?;
        for (what, error) in all {
            let found = error.kind();
            require(found == kind, || format!("{what}: {trouble:?} is {found:?} instead of {kind:?}: {error}"))?;
        }
    }
    Ok(())
}

/// What each of the calls says in this trouble.
async fn all_errors(
    work: &Balancing<'_>,
    desired: &DesiredLoadBalancer,
    trouble: InducedFault,
) -> CaseResult<Vec<(&'static str, Error)>> {
    let plan = work.plan(desired).await?;
    let Some(step) = plan.steps.first() else { return broken("nothing is planned for a new Service") };
    work.scene().trouble(trouble).await?;
    let provider = work.provider()?;
    let errors = [
        ("observe", work.observe(desired).await?.err()),
        ("list", provider.list(&desired.key.cluster).await.err()),
        ("apply", provider.apply(&desired.key, step, None).await.err()),
    ];
    work.scene().mend().await;
    let told = |(what, error): (&'static str, Option<Error>)| match error {
        Some(error) => Ok((what, error)),
        None => broken(format!("{what} succeeds in spite of {trouble:?}")),
    };
    errors.into_iter().map(told).collect()
}

pub(in crate::cases) async fn balancer_throttling_carries_its_delay(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    for (what, error) in all_errors(&work, &desired, InducedFault::Throttled(NINE)).await? {
        let advice = error.retry_advice();
        require(advice == Retry::After(NINE), || format!("{what}: the cloud said {NINE:?}, the advice is {advice:?}"))?;
    }
    work.fulfil(&desired).await.map(drop)
}

pub(in crate::cases) async fn unanswered_create_makes_no_double(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    can_crash(&work).await?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let whole = Whole::of(&work, &nodes).await?;
    for done in 0..MANY_STEPS {
        let is_whole = work.go(&whole.desired, Steps(done)).await?;
        if let Some(step) = work.plan(&whole.desired).await?.steps.first().filter(|step| step.verb == Verb::Create) {
            lose_the_answer(&work, &whole.desired, step).await?;
        }
        whole.is_built(&work, || format!("an answer that was lost after {done} steps")).await?;
        whole.is_removed(&work).await?;
        if is_whole {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_STEPS} steps"))
}

/// The cloud executes the step, and its answer is lost.
async fn lose_the_answer(work: &Balancing<'_>, desired: &DesiredLoadBalancer, step: &Step) -> CaseResult {
    for calls in 1..MANY_CALLS {
        let before = work.writes().await?;
        happens(work.scene().bench().crash_after(Some(calls)).await, "crash")?;
        let applied = work.apply_once(desired, step).await?;
        happens(work.scene().bench().crash_after(None).await, "crash")?;
        if work.writes().await? > before {
            let is_current = applied.as_ref().err().is_none_or(Error::is_outcome_unknown);
            return require(is_current, || {
                format!("the outcome of a call is unknown, and the error does not say so: {applied:?}")
            });
        }
    }
    broken(format!("nothing is written: {step}"))
}

pub(in crate::cases) async fn late_listing_makes_no_double(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let whole = Whole::of(&work, &nodes).await?;
    happens(work.hands().stale().await, "be late in showing what it has")?;
    for _ in 0..3 {
        // Whatever it says while the cloud shows nothing: in the end there is one of each.
        hurried(&work, &whole.desired).await?;
        work.hands().settle().await;
        whole.is_built(&work, || "a late listing".to_owned()).await?;
        whole.is_removed(&work).await?;
    }
    Ok(())
}

/// A few rounds without a pause; the errors meanwhile are those of a cloud that shows too little.
async fn hurried(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let driver = work.driver(&AtOnce)?;
    for _ in 0..3 {
        if let Ok((_, plan)) = driver.plan(&mut desired.clone()).await {
            driver.apply_all(&mut desired.clone(), &plan).await.ok();
        }
    }
    Ok(())
}

pub(in crate::cases) async fn services_at_once_have_their_own(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let before = work.resources().await;
    let names = ["a", "b", "c", "d", "e"];
    let wanted: CaseResult<Vec<_>> = names.into_iter().map(|name| work.desired(name, &nodes)).collect();
    let wanted = wanted?;
    join_all(wanted.iter().map(|desired| work.converge(desired))).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let mut addresses = Vec::new();
    for desired in &wanted {
        work.fulfil(desired).await?;
        addresses.extend(work.seen(&desired.key).await?.addresses);
    }
    let all = addresses.clone();
    addresses.sort_unstable();
    addresses.dedup();
    require(addresses.len() == all.len(), || format!("two Services have one address: {all:?}"))?;
    join_all(wanted.iter().map(|desired| work.remove(desired))).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    work.nothing_changed_since(&before).await
}
