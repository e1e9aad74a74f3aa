//! Rules about crashes of the manager and faults of the cloud.

use std::time::Duration;

use bowline_cloud::{Error, Retry};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{DesiredLoadBalancer, Step, TargetNode, Verb};
use futures::future::join_all;

use crate::bench::{ForeignLoadBalancer, InducedFault, SeenResource};
use crate::cases::faults::visible_faults;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::{
    LoadBalancerFixture, NoPause, ResourceCounts, Steps, was_induced, with_settings, without_spec,
};

/// Maximum number of calls of a creation, update or deletion.
const MAX_CALLS: u64 = 500;
/// Maximum number of polls after which a call is dropped; enough to reach every await with a simulator in the same process.
const MAX_POLLS: usize = 24;
/// Maximum number of steps of a plan.
const MAX_STEPS: usize = 100;
const NINE: Duration = Duration::from_secs(9);

pub(in crate::cases) async fn creation_survives_every_crash(context: &CaseContext) -> CaseResult {
    let mut fixture = LoadBalancerFixture::new(context)?;
    require_crashes(&fixture).await?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let baseline = Baseline::build(&fixture, &nodes).await?;
    for calls in 1..MAX_CALLS {
        let is_complete = crash_and_restart(&mut fixture, &baseline.desired, calls).await?;
        baseline.verify_sync(&fixture, || format!("a crash after {calls} calls")).await?;
        baseline.verify_deletion(&fixture).await?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

pub(in crate::cases) async fn update_survives_every_crash(context: &CaseContext) -> CaseResult {
    let mut fixture = LoadBalancerFixture::new(context)?;
    require_crashes(&fixture).await?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await, fixture.node("node-3").await];
    let one = fixture.full_featured("web", nodes.get(..2).unwrap_or_default())?;
    let other = fixture.changed(&one, nodes.get(1..).unwrap_or_default())?;
    fixture.sync_and_verify(&one).await?;
    fixture.sync_and_verify(&other).await?;
    let (counts, address) = (fixture.resource_counts(&one.key).await, fixture.load_balancer(&one.key).await?.addresses);
    for calls in 1..MAX_CALLS {
        fixture.sync_and_verify(&one).await?;
        let is_complete = crash_and_restart(&mut fixture, &other, calls).await?;
        fixture.sync_and_verify(&other).await?;
        let built = fixture.resource_counts(&one.key).await;
        require(built == counts, || {
            format!("the sync after a crash after {calls} calls left the resources {built:?}, expected {counts:?}")
        })?;
        let now = fixture.load_balancer(&one.key).await?.addresses;
        require(now == address, || {
            format!("the addresses changed from {address:?} to {now:?} by a crash after {calls} calls")
        })?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

pub(in crate::cases) async fn deletion_survives_every_crash(context: &CaseContext) -> CaseResult {
    let mut fixture = LoadBalancerFixture::new(context)?;
    require_crashes(&fixture).await?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let before = fixture.resources().await;
    let desired = fixture.full_featured("web", &nodes)?;
    for calls in 1..MAX_CALLS {
        fixture.sync_and_verify(&desired).await?;
        let is_complete = crash_and_restart(&mut fixture, &without_spec(&desired), calls).await?;
        fixture.delete_and_verify(&desired).await?;
        fixture.verify_unchanged(&before).await?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

pub(in crate::cases) async fn release_survives_every_crash(context: &CaseContext) -> CaseResult {
    let mut fixture = LoadBalancerFixture::new(context)?;
    require_crashes(&fixture).await?;
    let nodes = [fixture.node("node-1").await];
    for calls in 1..MAX_CALLS {
        // A new Service each time, because a released load balancer keeps its name.
        let desired = fixture.full_featured(&format!("web-{calls}"), &nodes)?;
        let kept = with_settings(&desired, |settings| settings.policy = DeletionPolicy::Retain);
        fixture.sync_and_verify(&kept).await?;
        let mut released = fixture.resources().await;
        released.iter_mut().for_each(|resource| resource.owners.retain(|mark| !fixture.is_mark_of(mark, &kept.key)));
        let is_complete = crash_and_restart(&mut fixture, &without_spec(&kept), calls).await?;
        fixture.sync(&without_spec(&kept)).await?;
        fixture.verify_unchanged(&released).await?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

pub(in crate::cases) async fn adoption_survives_every_crash(context: &CaseContext) -> CaseResult {
    let mut fixture = LoadBalancerFixture::new(context)?;
    require_crashes(&fixture).await?;
    let nodes = [fixture.node("node-1").await];
    let before = fixture.resources().await;
    let desired = fixture.desired("adopter", &nodes)?;
    for calls in 1..MAX_CALLS {
        let kind = fixture.fixed_kind()?;
        let unowned = ForeignLoadBalancer { name: format!("unowned-{calls}"), kind, ..ForeignLoadBalancer::default() };
        let Some(unowned) = fixture.controls().put_foreign(&unowned).await else {
            return Err(CaseFailure::BenchCannot("create a load balancer of another owner".to_owned()));
        };
        let adopting = with_settings(&desired, |settings| settings.adopt = Some(unowned.name));
        let is_complete = crash_and_restart(&mut fixture, &adopting, calls).await?;
        fixture.sync_and_verify(&adopting).await?;
        let id = fixture.load_balancer(&adopting.key).await?.id;
        require(id == unowned.id, || {
            format!("the Service should have adopted {}, but after a crash it has {id}", unowned.id)
        })?;
        fixture.delete_and_verify(&adopting).await?;
        fixture.verify_unchanged(&before).await?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

/// A full-featured Service, and the resources that it has without faults.
struct Baseline {
    desired: DesiredLoadBalancer,
    counts: ResourceCounts,
    /// Resources of the cloud without it.
    before: Vec<SeenResource>,
}

impl Baseline {
    async fn build(fixture: &LoadBalancerFixture<'_>, nodes: &[TargetNode]) -> CaseResult<Baseline> {
        let before = fixture.resources().await;
        let desired = fixture.full_featured("web", nodes)?;
        fixture.sync_and_verify(&desired).await?;
        let counts = fixture.resource_counts(&desired.key).await;
        fixture.delete_and_verify(&desired).await?;
        Ok(Baseline { desired, counts, before })
    }

    /// Syncs after a fault, and verifies that there are no duplicates.
    async fn verify_sync(&self, fixture: &LoadBalancerFixture<'_>, fault: impl FnOnce() -> String) -> CaseResult {
        fixture.sync_and_verify(&self.desired).await?;
        let (built, counts) = (fixture.resource_counts(&self.desired.key).await, &self.counts);
        require(built == *counts, || {
            format!("the sync after {} left the resources {built:?}, expected {counts:?}", fault())
        })
    }

    /// Deletes the load balancer, and verifies that nothing is left.
    async fn verify_deletion(&self, fixture: &LoadBalancerFixture<'_>) -> CaseResult {
        fixture.delete_and_verify(&self.desired).await?;
        fixture.verify_unchanged(&self.before).await
    }
}

/// Ends the case early if the bench cannot simulate a crash.
async fn require_crashes(fixture: &LoadBalancerFixture<'_>) -> CaseResult {
    was_induced(fixture.context().bench().crash_after(None).await, "crash after a number of calls").map(drop)
}

/// Syncs, crashes the manager after this number of calls and restarts it. Returns whether the sync was complete before.
async fn crash_and_restart(
    fixture: &mut LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    calls: u64,
) -> CaseResult<bool> {
    let context = fixture.context();
    if !was_induced(context.bench().crash_after(Some(calls)).await, "crash after a number of calls")? {
        return Ok(true);
    }
    let result = fixture.try_sync(desired).await;
    context.bench().crash_after(None).await;
    fixture.controls().settle().await;
    fixture.restart().await;
    let Ok(state) = result? else { return Ok(false) };
    fixture.verify_success(desired, state.as_ref(), &format!("{calls} calls")).await?;
    Ok(true)
}

pub(in crate::cases) async fn calls_are_cancel_safe(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let baseline = Baseline::build(&fixture, &nodes).await?;
    for polls in 0..MAX_POLLS {
        let ended = ends_within(polls, fixture.try_sync(&baseline.desired)).await;
        fixture.controls().settle().await;
        baseline.verify_sync(&fixture, || "a dropped call".to_owned()).await?;
        ends_within(polls, fixture.try_sync(&without_spec(&baseline.desired))).await;
        baseline.verify_deletion(&fixture).await?;
        if ended {
            break;
        }
    }
    Ok(())
}

/// Polls the future this number of times and then drops it. Returns whether it completed.
async fn ends_within(polls: usize, future: impl Future) -> bool {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        if futures::poll!(future.as_mut()).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

pub(in crate::cases) async fn failed_observation_is_no_answer(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    fixture.sync_and_verify(&desired).await?;
    for (fault, _) in visible_faults(context) {
        context.inject(fault).await?;
        if let Ok(state) = fixture.observe(&desired).await? {
            return fail(format!("{fault:?}: expected an error from `observe`, got {state:?}"));
        }
        if let Ok(keys) = fixture.provider()?.list(&desired.key.cluster).await {
            return fail(format!("{fault:?}: expected an error from `list`, got {keys:?}"));
        }
    }
    context.clear_faults().await;
    fixture.sync_and_verify(&desired).await.map(drop)
}

pub(in crate::cases) async fn load_balancer_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    for (fault, kind) in visible_faults(context) {
        let all = all_errors(&fixture, &desired, fault).await?;
        for (what, error) in all {
            let found = error.kind();
            require(found == kind, || {
                format!("`{what}` with {fault:?}: expected an error of kind {kind:?}, got {found:?}: {error}")
            })?;
        }
    }
    Ok(())
}

/// Errors of all calls with this fault.
async fn all_errors(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    fault: InducedFault,
) -> CaseResult<Vec<(&'static str, Error)>> {
    let plan = fixture.plan(desired).await?;
    let Some(step) = plan.steps.first() else { return fail("the plan for a new Service is empty") };
    fixture.context().inject(fault).await?;
    let provider = fixture.provider()?;
    let errors = [
        ("observe", fixture.observe(desired).await?.err()),
        ("list", provider.list(&desired.key.cluster).await.err()),
        ("apply", provider.apply(&desired.key, step, None).await.err()),
    ];
    fixture.context().clear_faults().await;
    let expect_error = |(what, error): (&'static str, Option<Error>)| match error {
        Some(error) => Ok((what, error)),
        None => fail(format!("`{what}` with {fault:?} succeeded")),
    };
    errors.into_iter().map(expect_error).collect()
}

pub(in crate::cases) async fn load_balancer_throttling_carries_its_delay(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    for (what, error) in all_errors(&fixture, &desired, InducedFault::Throttled(NINE)).await? {
        let advice = error.retry_advice();
        require(advice == Retry::After(NINE), || {
            format!("{what}: the cloud asked for a delay of {NINE:?}, the retry advice is {advice:?}")
        })?;
    }
    fixture.sync_and_verify(&desired).await.map(drop)
}

pub(in crate::cases) async fn lost_response_makes_no_duplicate(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    require_crashes(&fixture).await?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let baseline = Baseline::build(&fixture, &nodes).await?;
    for done in 0..MAX_STEPS {
        let is_complete = fixture.apply_steps(&baseline.desired, Steps(done)).await?;
        if let Some(step) =
            fixture.plan(&baseline.desired).await?.steps.first().filter(|step| step.verb == Verb::Create)
        {
            lose_response(&fixture, &baseline.desired, step).await?;
        }
        baseline.verify_sync(&fixture, || format!("a response lost after {done} steps")).await?;
        baseline.verify_deletion(&fixture).await?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_STEPS} steps"))
}

/// Applies a step that the cloud executes and whose response is lost.
async fn lose_response(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer, step: &Step) -> CaseResult {
    for calls in 1..MAX_CALLS {
        let before = fixture.writes().await?;
        was_induced(fixture.context().bench().crash_after(Some(calls)).await, "crash")?;
        let applied = fixture.apply_once(desired, step).await?;
        was_induced(fixture.context().bench().crash_after(None).await, "crash")?;
        if fixture.writes().await? > before {
            let is_unknown = applied.as_ref().err().is_none_or(Error::is_outcome_unknown);
            return require(is_unknown, || {
                format!("the response was lost, but the error is not marked as of unknown outcome: {applied:?}")
            });
        }
    }
    fail(format!("the step makes no write call: {step}"))
}

pub(in crate::cases) async fn stale_listing_makes_no_duplicate(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let baseline = Baseline::build(&fixture, &nodes).await?;
    was_induced(fixture.controls().stale().await, "hide new resources from listings")?;
    for _ in 0..3 {
        // Any error is allowed while the cloud hides new resources; in the end there are no duplicates.
        sync_without_pause(&fixture, &baseline.desired).await?;
        fixture.controls().settle().await;
        baseline.verify_sync(&fixture, || "a stale listing".to_owned()).await?;
        baseline.verify_deletion(&fixture).await?;
    }
    Ok(())
}

/// Syncs a few times without pauses, and ignores errors.
async fn sync_without_pause(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let driver = fixture.driver(&NoPause)?;
    for _ in 0..3 {
        if let Ok((_, plan)) = driver.plan(&mut desired.clone()).await {
            driver.apply_all(&mut desired.clone(), &plan).await.ok();
        }
    }
    Ok(())
}

pub(in crate::cases) async fn concurrent_services_are_isolated(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let before = fixture.resources().await;
    let names = ["a", "b", "c", "d", "e"];
    let wanted: CaseResult<Vec<_>> = names.into_iter().map(|name| fixture.desired(name, &nodes)).collect();
    let wanted = wanted?;
    join_all(wanted.iter().map(|desired| fixture.sync(desired))).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let mut addresses = Vec::new();
    for desired in &wanted {
        fixture.sync_and_verify(desired).await?;
        addresses.extend(fixture.load_balancer(&desired.key).await?.addresses);
    }
    let all = addresses.clone();
    addresses.sort_unstable();
    addresses.dedup();
    require(addresses.len() == all.len(), || format!("two Services have the same address: {all:?}"))?;
    join_all(wanted.iter().map(|desired| fixture.delete_and_verify(desired)))
        .await
        .into_iter()
        .collect::<CaseResult<Vec<_>>>()?;
    fixture.verify_unchanged(&before).await
}
