//! Rules about writing several routes at once.

use bowline_cloud::Result as Answer;
use bowline_core::{Instance, Route, RouteSpec};

use crate::routing::{Routing, sound};
use crate::scene::{CaseResult, Scene, broken, require};

/// A larger batch would only take time.
const LARGEST: usize = 16;

pub(in crate::cases) async fn one_route_answer_each(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let [a, b] = [work.machine("node-1").await, work.machine("node-2").await];
    let gone = scene.add_and_delete("node-3").await;
    let specs = [work.spec(1, &a)?, work.spec(2, &gone)?, work.spec(3, &b)?];
    let answers = work.attempt_all(&specs).await?;
    let destinations: Vec<_> = answers.iter().map(|made| made.as_ref().ok().map(|route| route.destination)).collect();
    let wanted = [Some(specs[0].destination), None, Some(specs[2].destination)];
    require(destinations == wanted, || {
        format!("the second of three machines is gone, and the answers are {answers:?}")
    })?;
    work.is_there(&specs[0], &a).await?;
    work.is_there(&specs[2], &b).await?;
    let made: Vec<Route> = answers.into_iter().flatten().collect();
    work.remove(&made[0]).await?;
    // The first of them is gone by now, which is a success.
    let deleted = work.attempt_deletion(&made).await?;
    require(deleted.iter().all(Answer::is_ok), || format!("one of them was gone, and the answers are {deleted:?}"))?;
    work.nothing_changed_since(&[]).await
}

pub(in crate::cases) async fn batched_routes_save_calls(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let machines = work.machines(work.room(work.caps()?.batch.min(LARGEST))?).await;
    // The first writes also fetch what the provider remembers, such as a token.
    calls_to_write(scene, &work, &machines[..1]).await?;
    let alone = calls_to_write(scene, &work, &machines[..1]).await?;
    let Some((alone, together)) = alone.zip(calls_to_write(scene, &work, &machines).await?) else { return Ok(()) };
    let count = machines.len() as u64;
    for (what, alone, together) in [("created", alone[0], together[0]), ("deleted", alone[1], together[1])] {
        let most = alone * count - (count - 1);
        require(together <= most, || {
            format!("{count} routes are {what} in {together} calls, one in {alone}: more than {most}")
        })?;
    }
    Ok(())
}

/// Number of calls that create a route to each machine, and that delete them again.
async fn calls_to_write(scene: &Scene, work: &Routing<'_>, machines: &[Instance]) -> CaseResult<Option<[u64; 2]>> {
    let specs = (1..).zip(machines).map(|(number, machine)| work.spec(number, machine));
    let specs = specs.collect::<CaseResult<Vec<RouteSpec>>>()?;
    let before = scene.calls().await;
    let made = work.attempt_all(&specs).await?.into_iter().map(sound).collect::<CaseResult<Vec<Route>>>()?;
    let between = scene.calls().await;
    work.attempt_deletion(&made).await?.into_iter().try_for_each(sound)?;
    let after = scene.calls().await;
    match (before, between, after) {
        (Some(before), Some(between), Some(after)) => Ok(Some([between - before, after - between])),
        (None, None, None) => Ok(None),
        _ => broken("the cloud counts its calls only sometimes"),
    }
}
