//! Rules about crashes, and about a cloud that goes wrong.

use bowline_cloud::{ErrorKind, Result as Answer, Retry};
use bowline_core::{Instance, Route, RouteSpec};

use crate::balancing::happens;
use crate::bench::Trouble;
use crate::cases::trouble::visible_troubles;
use crate::routing::{Routing, fails};
use crate::scene::{Scene, Verdict, broken, require};

/// No creation and no deletion takes more calls.
const MANY_CALLS: u64 = 100;

pub(in crate::cases) async fn route_writes_survive_every_crash(scene: &Scene) -> Verdict {
    let mut work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let spec = work.spec(1, &machine)?;
    let unharmed = work.lead(&spec, &machine).await?;
    let marked = unharmed.stamped;
    work.remove(&unharmed).await?;
    for calls in 1..MANY_CALLS {
        let made = creation_is_repeated(&mut work, scene, (&spec, &machine), calls).await?;
        let dropped = creation_is_given_up(&mut work, scene, (&spec, marked), calls).await?;
        let gone = deletion_is_repeated(&mut work, scene, (&spec, &machine), calls).await?;
        if made && dropped && gone {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

/// The Node still wants it: there is one in the end. `true` if the crash came too late to matter.
async fn creation_is_repeated(
    work: &mut Routing<'_>,
    scene: &Scene,
    (spec, machine): (&RouteSpec, &Instance),
    calls: u64,
) -> Verdict<bool> {
    let unharmed = crashes(work, scene, calls, Write::Create(spec)).await?;
    let route = work.lead(spec, machine).await?;
    let table = work.table().await;
    require(table.len() == 1, || format!("a crash after {calls} calls left more than one: {table:?}"))?;
    work.remove(&route).await?;
    Ok(unharmed)
}

/// The Node is gone meanwhile: what was made of it is listed, with a mark if routes have marks, and goes.
async fn creation_is_given_up(
    work: &mut Routing<'_>,
    scene: &Scene,
    (spec, marked): (&RouteSpec, bool),
    calls: u64,
) -> Verdict<bool> {
    let unharmed = crashes(work, scene, calls, Write::Create(spec)).await?;
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
    (spec, machine): (&RouteSpec, &Instance),
    calls: u64,
) -> Verdict<bool> {
    let route = work.lead(spec, machine).await?;
    let unharmed = crashes(work, scene, calls, Write::Delete(&route)).await?;
    work.remove(&route).await?;
    let left = work.table().await;
    require(left.is_empty(), || format!("a crash after {calls} calls left {left:?}"))?;
    Ok(unharmed)
}

/// What is under way when the manager crashes.
enum Write<'a> {
    Create(&'a RouteSpec),
    Delete(&'a Route),
}

/// The manager crashes after so many calls and starts anew; `true` if it was done before.
async fn crashes(work: &mut Routing<'_>, scene: &Scene, calls: u64, write: Write<'_>) -> Verdict<bool> {
    let crashed = happens(scene.bench().crash_after(Some(calls)).await, "crash after a number of calls")?;
    let came = match write {
        Write::Create(spec) => work.attempt(spec).await?.is_ok(),
        Write::Delete(route) => work.provider()?.delete(&work.cluster, route).await.is_ok(),
    };
    scene.bench().crash_after(None).await;
    work.restart().await;
    Ok(came || !crashed)
}

pub(in crate::cases) async fn route_faults_are_told(scene: &Scene) -> Verdict {
    let work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let route = work.lead(&work.spec(1, &machine)?, &machine).await?;
    let (before, new) = (work.table().await, work.spec(2, &machine)?);
    for (trouble, kind) in visible_troubles() {
        scene.trouble(trouble).await?;
        is_told("list", trouble, kind, work.provider()?.list(&work.cluster).await)?;
        is_told("create", trouble, kind, work.attempt(&new).await?)?;
        is_told("delete", trouble, kind, work.provider()?.delete(&work.cluster, &route).await)?;
        scene.mend().await;
        // Of a write whose answer makes no sense nobody knows whether it was carried out.
        if trouble != Trouble::Garbled {
            work.nothing_changed_since(&before).await?;
        }
    }
    for route in work.list().await? {
        work.remove(&route).await?;
    }
    work.nothing_changed_since(&[]).await
}

/// The error has the kind, and the delay if the cloud named one.
fn is_told<T>(call: &str, trouble: Trouble, kind: ErrorKind, answer: Answer<T>) -> Verdict {
    let advice = fails(&format!("{call} with {trouble:?}"), answer, kind)?.retry_advice();
    let Trouble::Throttled(delay) = trouble else { return Ok(()) };
    require(advice == Retry::After(delay), || format!("{call}: the cloud said {delay:?}, the advice is {advice:?}"))
}
