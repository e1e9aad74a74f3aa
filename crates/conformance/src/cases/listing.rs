//! Rules about listing machines.

use std::collections::BTreeMap;

use bowline_cloud::{Absence, ErrorKind, PageToken};
use bowline_core::{Instance, InstanceState};

use crate::bench::BenchResult;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, by_name, of, require};

/// The largest page that is filled; beyond that a case would only take time.
const LARGEST: usize = 200;

/// No listing of the few machines of a case has more pages than this.
const ENDLESS: usize = 1_000;

pub(super) async fn listing_agrees_with_find(scene: &Scene) -> CaseResult {
    let (running, stopped, gone) =
        (scene.add("running").await, scene.add("stopped").await, scene.add_and_delete("gone").await);
    scene.bench().stop(&stopped).await;
    let listed = everything(scene).await?;
    for instance in [&running, &stopped] {
        let Some(listed) = listed.iter().find(|state| is(state, instance)) else {
            return broken(format!("{:?} is not listed", instance.id));
        };
        let found = scene.state(&of(instance)).await?;
        require(*listed == found, || format!("listed as {listed:?}, found as {found:?}"))?;
    }
    require(!listed.iter().any(|state| is(state, &gone)), || format!("{:?} is gone and listed", gone.id))
}

pub(super) async fn pages_are_complete(scene: &Scene) -> CaseResult {
    let page = scene.numbers()?.list_page.unwrap_or(1).min(LARGEST);
    // Those that go are the oldest and the newest, so that some are on the first page whichever way the cloud lists, and
    // the pages after it meet those that stay: a listing that counts machines instead of remembering its place then
    // loses one of these.
    let mut go = add_all(scene, "goes-early", 3).await;
    let stay = add_all(scene, "stays", 2 * page + 1).await;
    go.extend(add_all(scene, "goes-late", 3).await);
    let (mut seen, mut token) = (BTreeMap::new(), None);
    for turn in 0..ENDLESS {
        let page = scene.page(token.as_ref()).await?;
        count(&page.instances, &mut seen);
        token = page.next;
        if token.is_none() {
            return every_one_once(&stay, &seen);
        }
        if !go.is_empty() {
            stir(scene, &mut go, &seen, turn).await;
        }
    }
    broken("the listing never ends")
}

async fn add_all(scene: &Scene, name: &str, count: usize) -> Vec<Instance> {
    let mut instances = Vec::with_capacity(count);
    for index in 0..count {
        instances.push(scene.add(&format!("{name}-{index}")).await);
    }
    instances
}

/// How often each machine was listed.
fn count(instances: &[InstanceState], seen: &mut BTreeMap<String, usize>) {
    for instance in instances.iter().filter_map(InstanceState::instance) {
        *seen.entry(instance.id.clone()).or_default() += 1;
    }
}

/// While pages are read, machines come and go: one that was listed already, one that was not, and a new one. Not for
/// ever: with pages of one machine, a listing would never catch up.
async fn stir(scene: &Scene, go: &mut Vec<Instance>, seen: &BTreeMap<String, usize>, turn: usize) {
    for listed in [true, false] {
        if let Some(index) = go.iter().position(|instance| seen.contains_key(&instance.id) == listed) {
            scene.bench().delete(&go.swap_remove(index)).await;
        }
    }
    scene.add(&format!("comes-{turn}")).await;
}

fn every_one_once(stay: &[Instance], seen: &BTreeMap<String, usize>) -> CaseResult {
    for instance in stay {
        let times = seen.get(&instance.id).copied().unwrap_or_default();
        require(times == 1, || format!("{:?} was there all the time and is listed {times} times", instance.id))?;
    }
    Ok(())
}

pub(super) async fn absence_is_as_declared(scene: &Scene) -> CaseResult {
    let numbers = scene.numbers()?;
    let (_listed, unlisted) = (scene.add("listed").await, scene.add("unlisted").await);
    if scene.bench().unlist(&unlisted).await == BenchResult::Cannot {
        return Err(CaseFailure::BenchCannot("leave a machine out of a listing".to_owned()));
    }
    if everything(scene).await?.iter().any(|state| is(state, &unlisted)) {
        return Ok(());
    }
    require(numbers.absence != Absence::Proof, || {
        format!("absence is a proof, and {:?} exists and is not listed", unlisted.id)
    })?;
    let found = scene.state(&of(&unlisted)).await?;
    require(is(&found, &unlisted), || format!("{:?} is not listed, and by its ID it is {found:?}", unlisted.id))?;
    if numbers.lookup_by_name && numbers.absence == Absence::ProofForNames {
        let named = scene.state(&by_name(&unlisted.name)).await?;
        require(named == InstanceState::Gone, || format!("names are proven absent, and by its name it is {named:?}"))?;
    }
    Ok(())
}

pub(super) async fn without_listing_it_is_unsupported(scene: &Scene) -> CaseResult {
    match scene.instances()?.list(None).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => broken(format!("not claimed, and the error is {:?}: {error}", error.kind())),
        Ok(_) => broken("it is not claimed, and works"),
    }
}

pub(super) async fn everything(scene: &Scene) -> CaseResult<Vec<InstanceState>> {
    let (mut all, mut token) = (Vec::new(), None::<PageToken>);
    for _ in 0..ENDLESS {
        let page = scene.page(token.as_ref()).await?;
        all.extend(page.instances);
        token = page.next;
        if token.is_none() {
            return Ok(all);
        }
    }
    broken("the listing never ends")
}

fn is(state: &InstanceState, instance: &Instance) -> bool {
    state.instance().is_some_and(|found| found.id == instance.id)
}
