//! Rules about making, keeping and removing a balancer.

use bowline_cloud::{Applied, ErrorKind};
use bowline_core::DesiredLoadBalancer;

use crate::balancing::{Balancing, Steps, change, gone, happens};
use crate::scene::{CaseResult, Scene, broken, require};

/// No creation has more steps.
const MANY_STEPS: usize = 100;

pub(in crate::cases) async fn balancer_is_as_wished(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let before = work.resources().await;
    work.fulfil(&work.desired("web", &nodes)?).await?;
    let desired = work.everything("rich", &nodes)?;
    work.fulfil(&desired).await?;
    // Without the first node for a while, with none at all, and with both again.
    for targets in [nodes.get(1..).unwrap_or_default(), &[], &nodes] {
        work.fulfil(&change(&desired, |spec| spec.targets = targets.to_vec().into())).await?;
    }
    work.remove(&desired).await?;
    work.remove(&work.desired("web", &nodes)?).await?;
    work.nothing_changed_since(&before).await
}

pub(in crate::cases) async fn plan_is_pure(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let desired = work.everything("web", &nodes)?;
    let other = work.otherwise(&desired, &nodes)?;
    plans_twice_alike(&work, &desired, &desired).await?;
    work.fulfil(&desired).await?;
    for wanted in [&desired, &other, &gone(&desired)] {
        plans_twice_alike(&work, &desired, wanted).await?;
    }
    Ok(())
}

/// What is planned from what is there, twice and without a call.
async fn plans_twice_alike(
    work: &Balancing<'_>,
    there: &DesiredLoadBalancer,
    wanted: &DesiredLoadBalancer,
) -> CaseResult {
    let state = work.state(there).await?;
    let before = work.calls().await?;
    let plans = [(); 2].map(|()| work.provider().map(|provider| provider.plan(wanted, state.as_ref())));
    let [Ok(Ok(one)), Ok(Ok(other))] = plans else { return broken("no plan in a sound cloud") };
    require(one == other, || format!("the same question has two plans: {one}\nand: {other}"))?;
    let calls = work.calls().await? - before;
    require(calls == 0, || format!("{calls} calls only to plan"))
}

pub(in crate::cases) async fn applied_plan_is_empty(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    for desired in [work.desired("web", &nodes)?, work.everything("rich", &nodes)?] {
        work.converge(&desired).await?;
        work.rests(&desired).await?;
        // In whatever order the Service lists them, ports and source ranges are the same.
        let turned = change(&desired, |spec| {
            spec.ports.reverse();
            spec.source_ranges.reverse();
        });
        work.rests(&turned).await?;
    }
    Ok(())
}

pub(in crate::cases) async fn apply_is_repeatable(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let before = work.resources().await;
    let desired = work.everything("web", &nodes)?;
    let changed = work.otherwise(&desired, nodes.get(..1).unwrap_or_default())?;
    work.fulfil(&desired).await?;
    let shape = work.shape(&desired.key).await;
    work.remove(&desired).await?;
    for wanted in [&desired, &changed, &desired, &gone(&desired)] {
        every_step_twice(&work, wanted).await?;
        if wanted == &desired {
            let twice = work.shape(&desired.key).await;
            require(twice == shape, || format!("steps that came twice left {twice:?} instead of {shape:?}"))?;
            work.fulfil(&desired).await?;
        }
    }
    work.nothing_changed_since(&before).await
}

/// Each step comes again, because its answer was lost; and all of them once more at the end.
async fn every_step_twice(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let plan = work.plan(desired).await?;
    for step in &plan.steps {
        for turn in ["first", "second"] {
            match work.apply(desired, step).await? {
                Err(error) if !error.leaves_out(step) => {
                    return broken(format!("the {turn} time, this step fails: {step}: {error}"));
                }
                _ => {}
            }
        }
    }
    work.converge(desired).await.map(drop)
}

pub(in crate::cases) async fn one_write_per_step(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await, work.node("node-3").await];
    let desired = work.everything("web", &nodes)?;
    let changed = work.otherwise(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed, &gone(&desired)] {
        for step in &work.plan(wanted).await?.steps {
            let before = work.writes().await?;
            match work.apply(wanted, step).await? {
                Err(error) if !error.leaves_out(step) => {
                    return broken(format!("an error from a sound cloud: {error}"));
                }
                _ => {}
            }
            let writes = work.writes().await? - before;
            require(writes <= 1, || format!("{writes} writes for one step: {step}"))?;
        }
    }
    Ok(())
}

pub(in crate::cases) async fn seen_is_what_observe_says(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let desired = work.everything("web", &nodes)?;
    let changed = work.otherwise(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed, &gone(&desired)] {
        for step in &work.plan(wanted).await?.steps {
            let Ok(Applied::Observed(seen)) = work.apply(wanted, step).await? else { continue };
            let there = work.state(wanted).await?;
            require(seen == there, || format!("after {step}\nit has seen {seen:?}\nand observes {there:?}"))?;
        }
    }
    Ok(())
}

pub(in crate::cases) async fn in_progress_is_told(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let desired = work.everything("web", &nodes)?;
    if !happens(work.hands().slow().await, "make the cloud slow")? {
        return work.fulfil(&desired).await.map(drop);
    }
    for step in &work.plan(&desired).await?.steps {
        match work.apply_once(&desired, step).await? {
            Ok(Applied::Started(_)) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::InProgress => break,
            Err(error) => return broken(format!("an error from a sound cloud: {error}")),
        }
    }
    let state = work.state(&desired).await?;
    match work.provider()?.plan(&desired, state.as_ref()) {
        Err(error) if error.kind() == ErrorKind::InProgress => {}
        Err(error) => return broken(format!("while the cloud is at work, it says {:?}: {error}", error.kind())),
        Ok(plan) => return broken(format!("while the cloud is at work, this is planned: {plan}")),
    }
    work.hands().settle().await;
    work.fulfil(&desired).await?;
    work.fulfil(&work.otherwise(&desired, nodes.get(1..).unwrap_or_default())?).await?;
    work.remove(&desired).await
}

pub(in crate::cases) async fn nothing_left_is_nothing_to_do(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let desired = work.everything("web", &nodes)?;
    let never = work.state(&gone(&desired)).await?;
    require(never.is_none(), || format!("of a balancer that was never made it says {never:?}"))?;
    work.rests(&gone(&desired)).await?;
    work.fulfil(&desired).await?;
    work.remove(&desired).await?;
    work.rests(&gone(&desired)).await
}

pub(in crate::cases) async fn type_changes_and_back(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let (desired, other) = (work.everything("web", &nodes)?, work.desired("other", &nodes)?);
    work.fulfil(&other).await?;
    let others = work.resources().await;
    for _ in 0..2 {
        work.fulfil(&desired).await?;
        work.remove(&desired).await?;
        work.nothing_changed_since(&others).await?;
    }
    work.fulfil(&desired).await.map(drop)
}

pub(in crate::cases) async fn half_built_is_deleted(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let before = work.resources().await;
    let desired = work.everything("web", &nodes)?;
    for steps in 0..MANY_STEPS {
        let whole = work.go(&desired, Steps(steps)).await?;
        work.remove(&desired).await?;
        work.nothing_changed_since(&before).await?;
        if whole {
            return Ok(());
        }
    }
    broken(format!("after {MANY_STEPS} steps it is not there yet"))
}

pub(in crate::cases) async fn half_deleted_is_rebuilt(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let desired = work.everything("web", &nodes)?;
    work.fulfil(&desired).await?;
    let shape = work.shape(&desired.key).await;
    for steps in 0..MANY_STEPS {
        let whole = work.go(&gone(&desired), Steps(steps)).await?;
        work.fulfil(&desired).await?;
        let rebuilt = work.shape(&desired.key).await;
        require(rebuilt == shape, || format!("after {steps} steps of deletion it became {rebuilt:?}, not {shape:?}"))?;
        if whole {
            return Ok(());
        }
    }
    broken(format!("after {MANY_STEPS} steps it is not gone yet"))
}

pub(in crate::cases) async fn gone_is_deleted(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let desired = work.everything("web", &nodes)?;
    work.fulfil(&desired).await?;
    let plan = work.plan(&gone(&desired)).await?;
    require(!plan.is_empty(), || "nothing is planned for a balancer that is to go".to_owned())?;
    // Somebody else is faster.
    work.remove(&desired).await?;
    for step in &plan.steps {
        if let Err(error) = work.apply(&gone(&desired), step).await? {
            return broken(format!("what is gone cannot be deleted any more: {step}: {error}"));
        }
    }
    work.remove(&desired).await
}
