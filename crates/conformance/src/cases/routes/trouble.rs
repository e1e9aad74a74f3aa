//! Rules about crashes, and about a cloud that goes wrong.

use bowline_cloud::{ErrorKind, Result as Answer, Retry};
use bowline_core::{Instance, Route, RouteSpec};

use crate::balancing::happens;
use crate::bench::InducedFault;
use crate::cases::trouble::visible_troubles;
use crate::routing::{Routing, fails};
use crate::scene::{CaseResult, Scene, broken, require};

/// No creation and no deletion takes more calls.
const MANY_CALLS: u64 = 100;

pub(in crate::cases) async fn route_writes_survive_every_crash(scene: &Scene) -> CaseResult {
    let mut work = Routing::of(scene)?;
    let machines = work.machines(work.room(work.caps()?.batch.clamp(1, 3))?).await;
    let specs = (1..).zip(&machines).map(|(number, machine)| work.spec(number, machine));
    let specs = specs.collect::<CaseResult<Vec<_>>>()?;
    let unharmed = lead_all(&work, &specs, &machines).await?;
    let marked = unharmed.iter().all(|route| route.stamped);
    remove_all(&work, &unharmed).await?;
    for calls in 1..MANY_CALLS {
        let made = creation_is_repeated(&mut work, scene, (&specs, &machines), calls).await?;
        let dropped = creation_is_given_up(&mut work, scene, (&specs, marked), calls).await?;
        let gone = deletion_is_repeated(&mut work, scene, (&specs, &machines), calls).await?;
        if made && dropped && gone {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

async fn lead_all(work: &Routing<'_>, specs: &[RouteSpec], machines: &[Instance]) -> CaseResult<Vec<Route>> {
    let mut routes = Vec::with_capacity(specs.len());
    for (spec, machine) in specs.iter().zip(machines) {
        routes.push(work.lead(spec, machine).await?);
    }
    Ok(routes)
}

async fn remove_all(work: &Routing<'_>, routes: &[Route]) -> CaseResult {
    for route in routes {
        work.remove(route).await?;
    }
    Ok(())
}

/// The Nodes still want them: there is one route each in the end. `true` if the crash came too late to matter.
async fn creation_is_repeated(
    work: &mut Routing<'_>,
    scene: &Scene,
    (specs, machines): (&[RouteSpec], &[Instance]),
    calls: u64,
) -> CaseResult<bool> {
    let unharmed = crashes(work, scene, calls, Write::Create(specs)).await?;
    let routes = lead_all(work, specs, machines).await?;
    let table = work.table().await;
    require(table.len() == specs.len(), || format!("a crash after {calls} calls left more than one each: {table:?}"))?;
    remove_all(work, &routes).await?;
    Ok(unharmed)
}

/// The Node is gone meanwhile: what was made of it is listed, with a mark if routes have marks, and goes.
async fn creation_is_given_up(
    work: &mut Routing<'_>,
    scene: &Scene,
    (specs, marked): (&[RouteSpec], bool),
    calls: u64,
) -> CaseResult<bool> {
    let unharmed = crashes(work, scene, calls, Write::Create(specs)).await?;
    for route in work.list().await? {
        require(route.stamped == marked, || format!("a crash after {calls} calls left it without a mark: {route:?}"))?;
        work.remove(&route).await?;
    }
    let left = work.table().await;
    require(left.is_empty(), || format!("a crash after {calls} calls left this, and it is not listed: {left:?}"))?;
    Ok(unharmed)
}

async fn deletion_is_repeated(
    work: &mut Routing<'_>,
    scene: &Scene,
    (specs, machines): (&[RouteSpec], &[Instance]),
    calls: u64,
) -> CaseResult<bool> {
    let routes = lead_all(work, specs, machines).await?;
    let unharmed = crashes(work, scene, calls, Write::Delete(&routes)).await?;
    remove_all(work, &routes).await?;
    let left = work.table().await;
    require(left.is_empty(), || format!("a crash after {calls} calls left {left:?}"))?;
    Ok(unharmed)
}

/// What is under way when the manager crashes.
enum Write<'a> {
    Create(&'a [RouteSpec]),
    Delete(&'a [Route]),
}

/// The manager crashes after so many calls and starts anew; `true` if it was done before.
async fn crashes(work: &mut Routing<'_>, scene: &Scene, calls: u64, write: Write<'_>) -> CaseResult<bool> {
    let crashed = happens(scene.bench().crash_after(Some(calls)).await, "crash after a number of calls")?;
    let came = match write {
        Write::Create(specs) => work.attempt_all(specs).await?.iter().all(Answer::is_ok),
        Write::Delete(routes) => work.attempt_deletion(routes).await?.iter().all(Answer::is_ok),
    };
    scene.bench().crash_after(None).await;
    work.restart().await;
    Ok(came || !crashed)
}

pub(in crate::cases) async fn route_faults_are_told(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let route = work.lead(&work.spec(1, &machine)?, &machine).await?;
    let (before, new) = (work.table().await, work.spec(2, &machine)?);
    for (trouble, kind) in visible_troubles() {
        scene.trouble(trouble).await?;
        is_current("list", trouble, kind, work.provider()?.list(&work.cluster).await)?;
        is_current("create", trouble, kind, work.attempt(&new).await?)?;
        for deleted in work.attempt_deletion(std::slice::from_ref(&route)).await? {
            is_current("delete", trouble, kind, deleted)?;
        }
        scene.mend().await;
        // Of a write whose answer makes no sense nobody knows whether it was carried out.
        if trouble != InducedFault::Garbled {
            work.nothing_changed_since(&before).await?;
        }
    }
    for route in work.list().await? {
        work.remove(&route).await?;
    }
    work.nothing_changed_since(&[]).await
}

/// The error has the kind, and the delay if the cloud named one.
fn is_current<T>(call: &str, trouble: InducedFault, kind: ErrorKind, answer: Answer<T>) -> CaseResult {
    let advice = fails(&format!("{call} with {trouble:?}"), answer, kind)?.retry_advice();
    let InducedFault::Throttled(delay) = trouble else { return Ok(()) };
    require(advice == Retry::After(delay), || format!("{call}: the cloud said {delay:?}, the advice is {advice:?}"))
}
