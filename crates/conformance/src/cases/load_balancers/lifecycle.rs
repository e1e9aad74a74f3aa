//! Rules about creating, updating and deleting a load balancer.

use bowline_cloud::{Applied, ErrorKind};
use bowline_core::{DesiredLoadBalancer, LoadBalancerState};

use super::operations::slow;
use crate::context::{CaseContext, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, Steps, with_spec, without_spec};

/// Maximum number of steps of a creation or deletion.
const MAX_STEPS: usize = 100;

pub(in crate::cases) async fn load_balancer_matches_desired_state(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let before = fixture.resources().await;
    fixture.sync_and_verify(&fixture.desired("web", &nodes)?).await?;
    let desired = fixture.full_featured("rich", &nodes)?;
    fixture.sync_and_verify(&desired).await?;
    // Without the first Node, without any Node, and with both again.
    let needs_targets = fixture.kind()?.needs_targets;
    for targets in [nodes.get(1..).unwrap_or_default(), &[], &nodes] {
        if targets.is_empty() && needs_targets {
            continue;
        }
        fixture.sync_and_verify(&with_spec(&desired, |spec| spec.targets = targets.to_vec().into())).await?;
    }
    fixture.delete_and_verify(&desired).await?;
    fixture.delete_and_verify(&fixture.desired("web", &nodes)?).await?;
    fixture.verify_unchanged(&before).await
}

pub(in crate::cases) async fn plan_is_pure(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let desired = fixture.full_featured("web", &nodes)?;
    let other = fixture.changed(&desired, &nodes)?;
    verify_plan_is_pure(&fixture, &desired, &desired).await?;
    fixture.sync_and_verify(&desired).await?;
    for wanted in [&desired, &other, &without_spec(&desired)] {
        verify_plan_is_pure(&fixture, &desired, wanted).await?;
    }
    Ok(())
}

/// Plans twice from the same state, and verifies that the plans are equal and that no call was made.
async fn verify_plan_is_pure(
    fixture: &LoadBalancerFixture<'_>,
    current: &DesiredLoadBalancer,
    wanted: &DesiredLoadBalancer,
) -> CaseResult {
    let state = fixture.state(current).await?;
    let before = fixture.calls().await?;
    let plans = [(); 2].map(|()| fixture.provider().map(|provider| provider.plan(wanted, state.as_ref())));
    let [Ok(Ok(one)), Ok(Ok(other))] = plans else { return fail("planning in a healthy cloud failed") };
    require(one == other, || format!("the same input has two plans: {one}\nand: {other}"))?;
    let calls = fixture.calls().await? - before;
    require(calls == 0, || format!("planning made {calls} calls"))
}

pub(in crate::cases) async fn applied_plan_is_empty(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    for desired in [fixture.desired("web", &nodes)?, fixture.full_featured("rich", &nodes)?] {
        fixture.sync(&desired).await?;
        fixture.verify_no_changes(&desired).await?;
        // The order of ports and source ranges does not matter.
        let reversed = with_spec(&desired, |spec| {
            spec.ports.reverse();
            spec.source_ranges.reverse();
        });
        fixture.verify_no_changes(&reversed).await?;
    }
    Ok(())
}

pub(in crate::cases) async fn apply_is_repeatable(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let before = fixture.resources().await;
    let desired = fixture.full_featured("web", &nodes)?;
    let changed = fixture.changed(&desired, nodes.get(..1).unwrap_or_default())?;
    fixture.sync_and_verify(&desired).await?;
    let counts = fixture.resource_counts(&desired.key).await;
    fixture.delete_and_verify(&desired).await?;
    for wanted in [&desired, &changed, &desired, &without_spec(&desired)] {
        apply_every_step_twice(&fixture, wanted).await?;
        if wanted == &desired {
            let twice = fixture.resource_counts(&desired.key).await;
            require(twice == counts, || format!("repeated steps left the resources {twice:?}, expected {counts:?}"))?;
            fixture.sync_and_verify(&desired).await?;
        }
    }
    fixture.verify_unchanged(&before).await
}

/// Applies each step twice, as after a lost response, and then syncs.
async fn apply_every_step_twice(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let plan = fixture.plan(desired).await?;
    for step in &plan.steps {
        for attempt in ["first", "second"] {
            match fixture.apply(desired, step).await? {
                Err(error) if !error.allows_skipping(step) => {
                    return fail(format!("the {attempt} application of this step failed: {step}: {error}"));
                }
                _ => {}
            }
        }
    }
    fixture.sync(desired).await.map(drop)
}

pub(in crate::cases) async fn one_write_per_step(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await, fixture.node("node-3").await];
    let desired = fixture.full_featured("web", &nodes)?;
    let changed = fixture.changed(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed, &without_spec(&desired)] {
        for step in &fixture.plan(wanted).await?.steps {
            let before = fixture.writes().await?;
            match fixture.apply(wanted, step).await? {
                Err(error) if !error.allows_skipping(step) => {
                    return fail(format!("a healthy cloud returned an error: {error}"));
                }
                _ => {}
            }
            let writes = fixture.writes().await? - before;
            require(writes <= 1, || format!("{writes} write calls for one step: {step}"))?;
        }
    }
    Ok(())
}

pub(in crate::cases) async fn applied_state_matches_observe(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let desired = fixture.full_featured("web", &nodes)?;
    let changed = fixture.changed(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed, &without_spec(&desired)] {
        for step in &fixture.plan(wanted).await?.steps {
            let Ok(Applied::Observed(seen)) = fixture.apply(wanted, step).await? else { continue };
            let observed = fixture.state(wanted).await?;
            let is_pending = |state: &Option<LoadBalancerState>| state.as_ref().is_some_and(|it| it.pending.is_some());
            // The operation has ended meanwhile.
            if is_pending(&seen) && !is_pending(&observed) {
                continue;
            }
            require(seen == observed, || format!("{step}\nreturned {seen:?}\n`observe` returns {observed:?}"))?;
        }
    }
    Ok(())
}

pub(in crate::cases) async fn in_progress_is_reported(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let desired = fixture.full_featured("web", &nodes)?;
    slow(&fixture).await?;
    for step in &fixture.plan(&desired).await?.steps {
        match fixture.apply_once(&desired, step).await? {
            Ok(Applied::Started(_)) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::InProgress => break,
            Err(error) => return fail(format!("a healthy cloud returned an error: {error}")),
        }
    }
    let state = fixture.state(&desired).await?;
    match fixture.provider()?.plan(&desired, state.as_ref()) {
        Err(error) if error.kind() == ErrorKind::InProgress => {}
        Err(error) => {
            return fail(format!(
                "an operation is in progress: expected `InProgress`, got {:?}: {error}",
                error.kind()
            ));
        }
        Ok(plan) => return fail(format!("an operation is in progress: expected `InProgress`, got a plan: {plan}")),
    }
    fixture.controls().settle().await;
    fixture.sync_and_verify(&desired).await?;
    fixture.sync_and_verify(&fixture.changed(&desired, nodes.get(1..).unwrap_or_default())?).await?;
    fixture.delete_and_verify(&desired).await
}

pub(in crate::cases) async fn nothing_left_is_an_empty_plan(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let desired = fixture.full_featured("web", &nodes)?;
    let never = fixture.state(&without_spec(&desired)).await?;
    require(never.is_none(), || format!("a load balancer that was never created is observed: {never:?}"))?;
    fixture.verify_no_changes(&without_spec(&desired)).await?;
    fixture.sync_and_verify(&desired).await?;
    fixture.delete_and_verify(&desired).await?;
    fixture.verify_no_changes(&without_spec(&desired)).await
}

pub(in crate::cases) async fn service_type_changes_and_back(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let (desired, other) = (fixture.full_featured("web", &nodes)?, fixture.desired("other", &nodes)?);
    fixture.sync_and_verify(&other).await?;
    let others = fixture.resources().await;
    for _ in 0..2 {
        fixture.sync_and_verify(&desired).await?;
        fixture.delete_and_verify(&desired).await?;
        fixture.verify_unchanged(&others).await?;
    }
    fixture.sync_and_verify(&desired).await.map(drop)
}

pub(in crate::cases) async fn half_built_is_deleted(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let before = fixture.resources().await;
    let desired = fixture.full_featured("web", &nodes)?;
    for steps in 0..MAX_STEPS {
        let is_complete = fixture.apply_steps(&desired, Steps(steps)).await?;
        fixture.delete_and_verify(&desired).await?;
        fixture.verify_unchanged(&before).await?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("the creation is not complete after {MAX_STEPS} steps"))
}

pub(in crate::cases) async fn half_deleted_is_rebuilt(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let desired = fixture.full_featured("web", &nodes)?;
    fixture.sync_and_verify(&desired).await?;
    let counts = fixture.resource_counts(&desired.key).await;
    for steps in 0..MAX_STEPS {
        let is_complete = fixture.apply_steps(&without_spec(&desired), Steps(steps)).await?;
        fixture.sync_and_verify(&desired).await?;
        let rebuilt = fixture.resource_counts(&desired.key).await;
        require(rebuilt == counts, || {
            format!("after {steps} steps of the deletion the sync left the resources {rebuilt:?}, expected {counts:?}")
        })?;
        if is_complete {
            return Ok(());
        }
    }
    fail(format!("the deletion is not complete after {MAX_STEPS} steps"))
}

pub(in crate::cases) async fn deleting_twice_succeeds(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let desired = fixture.full_featured("web", &nodes)?;
    fixture.sync_and_verify(&desired).await?;
    let plan = fixture.plan(&without_spec(&desired)).await?;
    require(!plan.is_empty(), || "the plan to delete a load balancer is empty".to_owned())?;
    // Another client deletes it first.
    fixture.delete_and_verify(&desired).await?;
    for step in &plan.steps {
        if let Err(error) = fixture.apply(&without_spec(&desired), step).await? {
            return fail(format!("deleting a missing resource failed: {step}: {error}"));
        }
    }
    fixture.delete_and_verify(&desired).await
}
