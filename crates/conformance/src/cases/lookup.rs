//! Rules about looking machines up.

use bowline_cloud::{ErrorKind, Identity};
use bowline_core::{Address, AddressType, Instance, InstanceRef, InstanceState, ProviderId};
use futures::future::join_all;

use crate::bench::WantedMachine;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, by_id, by_name, of, require};

/// More machines than this for one case would only take time, on a cloud that is not a simulator even hours.
const MANY: usize = 200;

pub(super) async fn one_answer_each(scene: &Scene) -> CaseResult {
    let (a, b, gone) = (scene.add("a").await, scene.add("b").await, scene.add_and_delete("gone").await);
    // Questions that come twice, in no order that the cloud would have, and not the same when read backwards.
    let asked = [&b, &gone, &a, &a, &b].map(of);
    let answers = scene.find(&asked).await?;
    let ids: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().and_then(InstanceState::instance)).collect();
    let ids: Vec<_> = ids.into_iter().map(|found| found.map(|found| found.id.as_str())).collect();
    let (a, b) = (Some(a.id.as_str()), Some(b.id.as_str()));
    require(ids == [b, None, a, a, b], || format!("asked for {b:?}, one that is gone, {a:?} twice, {b:?}: {ids:?}"))
}

pub(super) async fn empty_question_makes_no_call(scene: &Scene) -> CaseResult {
    let before = scene.calls().await;
    let answers = scene.instances()?.find(&[]).await;
    require(answers.is_empty(), || format!("{} answers to no question", answers.len()))?;
    same_calls(scene, before).await
}

pub(super) async fn stopped_is_not_gone(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    scene.bench().stop(&instance).await;
    scene.instance(&of(&instance)).await.map(drop)
}

pub(super) async fn stopped_is_told(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    scene.bench().stop(&instance).await;
    let stopped = scene.state(&of(&instance)).await?;
    require(matches!(stopped, InstanceState::Stopped(_)), || format!("a stopped machine is {stopped:?}"))?;
    scene.bench().start(&instance).await;
    let running = scene.state(&of(&instance)).await?;
    require(matches!(running, InstanceState::Running(_)), || format!("a machine that was started is {running:?}"))
}

pub(super) async fn id_before_name(scene: &Scene) -> CaseResult {
    let (a, b, gone) = (scene.add("a").await, scene.add("b").await, scene.add_and_delete("gone").await);
    let found = scene.instance(&by_id(&a.name, b.provider_id.as_ref())).await?;
    require(found.id == b.id, || {
        format!("asked for the ID of {:?} under another name, it found {:?}", b.id, found.id)
    })?;
    let state = scene.state(&by_id(&a.name, gone.provider_id.as_ref())).await?;
    require(state == InstanceState::Gone, || format!("the ID is gone and the name exists; it answered {state:?}"))
}

pub(super) async fn id_is_recognised(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    // Another one, so that an ID cut too short would fit both.
    scene.add("node-2").await;
    let recognised = Identity::Id(scene.instance(&of(&instance)).await?.id.clone());
    for id in scene.bench().spellings(&instance).iter().chain(&instance.provider_id) {
        let asked = by_id("another-name", Some(id));
        require(scene.provider().owns(id), || format!("it does not own {id:?}"))?;
        match scene.instances()?.identify(&asked) {
            Ok(identity) => {
                require(identity == recognised, || format!("of {id:?} it makes {identity:?}, not {recognised:?}"))?
            }
            Err(error) => return broken(format!("{id:?} is not recognised: {error}")),
        }
        let found = scene.instance(&asked).await?;
        require(found.id == instance.id, || format!("asked for {id:?}, it found {:?}", found.id))?;
    }
    Ok(())
}

pub(super) async fn foreign_id_is_not_mine(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    // The name and what stands behind the prefix are right, so that only the prefix can tell.
    let foreign = ProviderId::of("somebody-elses-cloud", &instance.id);
    let before = scene.calls().await;
    let state = scene.state(&by_id(&instance.name, Some(&foreign))).await?;
    require(state == InstanceState::NotMine, || format!("{foreign:?} is {state:?}"))?;
    same_calls(scene, before).await
}

pub(super) async fn malformed_id_is_an_error(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    for id in scene.bench().malformed_ids() {
        let error = scene.error(&by_id(&instance.name, Some(&id))).await?;
        require(error.kind() == ErrorKind::InvalidConfig, || format!("{id:?} is {:?}: {error}", error.kind()))?;
    }
    Ok(())
}

pub(super) async fn name_finds_the_machine(scene: &Scene) -> CaseResult {
    let (a, gone) = (scene.add("a").await, scene.add_and_delete("gone").await);
    let found = scene.instance(&by_name(&a.name)).await?;
    require(*found == a, || format!("asked by name, it answered {found:?} instead of {a:?}"))?;
    let state = scene.state(&by_name(&gone.name)).await?;
    require(state == InstanceState::Gone, || format!("a name without machine is {state:?}"))
}

pub(super) async fn two_of_one_name_is_an_error(scene: &Scene) -> CaseResult {
    let (a, b) = (scene.add("twin").await, scene.add("twin").await);
    let text = scene.error(&by_name("twin")).await?.to_string();
    require(text.contains(&a.id) && text.contains(&b.id), || {
        format!("the error does not name both {:?} and {:?}: {text}", a.id, b.id)
    })?;
    let found = scene.instance(&of(&b)).await?;
    require(found.id == b.id, || format!("by its ID, {:?} is {:?}", b.id, found.id))
}

pub(super) async fn without_name_lookup_nothing_is_claimed(scene: &Scene) -> CaseResult {
    let (a, gone) = (scene.add("a").await, scene.add_and_delete("gone").await);
    for name in [&a.name, &gone.name] {
        match scene.find_one(&by_name(name)).await? {
            Ok(InstanceState::NotMine) | Err(_) => {}
            Ok(state) => return broken(format!("it cannot look up names, and of {name:?} it says {state:?}")),
        }
    }
    Ok(())
}

pub(super) async fn provider_id_is_stable(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    let asked = of(&instance);
    require(instance.provider_id.is_some(), || "a machine without provider ID".to_owned())?;
    scene.bench().stop(&instance).await;
    same_id(scene, &asked, &instance, "stop").await?;
    scene.bench().start(&instance).await;
    same_id(scene, &asked, &instance, "start").await?;
    if !scene.bench().rename(&instance, "another-name").await {
        return Err(CaseFailure::BenchCannot("rename a machine".to_owned()));
    }
    same_id(scene, &asked, &instance, "rename").await
}

async fn same_id(scene: &Scene, asked: &InstanceRef, instance: &Instance, after: &str) -> CaseResult {
    let found = scene.instance(asked).await?;
    require(found.provider_id == instance.provider_id, || {
        format!("after {after}, {:?} is {:?}", instance.provider_id, found.provider_id)
    })
}

pub(super) async fn deleted_then_recreated_same_name_is_another_id(scene: &Scene) -> CaseResult {
    let old = scene.add("phoenix").await;
    let before = scene.instance(&of(&old)).await?;
    scene.bench().delete(&old).await;
    let new = scene.add("phoenix").await;
    let state = scene.state(&of(&old)).await?;
    require(state == InstanceState::Gone, || format!("the ID of the deleted machine is {state:?}"))?;
    let after = scene.instance(&of(&new)).await?;
    require(after.id != before.id && after.provider_id != before.provider_id, || {
        format!("the new machine has an ID of the old one: {before:?}, {after:?}")
    })
}

pub(super) async fn addresses_keep_their_order(scene: &Scene) -> CaseResult {
    // In no order that sorting would give, by type or by text.
    let addresses = vec![
        Address::new(AddressType::ExternalIP, "203.0.113.9"),
        Address::new(AddressType::InternalIP, "10.0.0.20"),
        Address::new(AddressType::InternalIP, "10.0.0.3"),
        Address::new(AddressType::Hostname, "node-1"),
        Address::new(AddressType::InternalIP, "fd00::7"),
    ];
    let instance =
        scene.bench().add(&WantedMachine { name: "node-1".to_owned(), addresses, ..WantedMachine::default() }).await;
    require(!instance.addresses.is_empty(), || "the bench made a machine without addresses".to_owned())?;
    for _ in 0..3 {
        let found = scene.instance(&of(&instance)).await?;
        require(found.addresses == instance.addresses, || {
            format!("{:?} became {:?}", instance.addresses, found.addresses)
        })?;
    }
    Ok(())
}

pub(super) async fn zones_are_told(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    let found = scene.instance(&of(&instance)).await?;
    let (told, wanted) = ((&found.zone, &found.region), (&instance.zone, &instance.region));
    require(told == wanted && !found.zone.is_empty(), || format!("zone and region are {told:?}, not {wanted:?}"))
}

pub(super) async fn labels_are_told(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    let found = scene.instance(&of(&instance)).await?;
    require(found.labels == instance.labels && !found.labels.is_empty(), || {
        format!("the labels are {:?}, not {:?}", found.labels, instance.labels)
    })
}

pub(super) async fn annotations_are_reported(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    let found = scene.instance(&of(&instance)).await?;
    require(found.annotations == instance.annotations && !found.annotations.is_empty(), || {
        format!("the annotations are {:?}, not {:?}", found.annotations, instance.annotations)
    })
}

pub(super) async fn mixed_batch(scene: &Scene) -> CaseResult {
    let (a, stopped, gone) = (scene.add("a").await, scene.add("stopped").await, scene.add_and_delete("gone").await);
    scene.bench().stop(&stopped).await;
    let foreign = ProviderId::of("somebody-elses-cloud", &a.id);
    let asked = [of(&gone), by_id("foreign", Some(&foreign)), of(&stopped), of(&a)];
    let answers = scene.find(&asked).await?;
    let sound: Result<Vec<_>, _> = answers.into_iter().collect();
    let states = sound.or_else(|error| broken(format!("an error from a sound cloud: {error}")))?;
    let found: Vec<_> = states.iter().map(|state| state.instance().map(|found| found.id.as_str())).collect();
    require(found == [None, None, Some(stopped.id.as_str()), Some(a.id.as_str())], || format!("mixed up: {states:?}"))?;
    require(matches!(states.as_slice(), [InstanceState::Gone, InstanceState::NotMine, ..]), || {
        format!("of one that is gone and a foreign one it says {states:?}")
    })
}

pub(super) async fn batch_limit_is_honoured(scene: &Scene) -> CaseResult {
    let count = scene.numbers()?.batch_lookup.min(MANY);
    let mut machines = Vec::with_capacity(count);
    for index in 0..count {
        machines.push(scene.add(&format!("node-{index}")).await);
    }
    // The first lookup also fetches what the provider remembers, such as a token.
    every_one_is_found(scene, &machines[..1]).await?;
    let alone = calls_to_find(scene, &machines[..1]).await?;
    let Some((alone, together)) = alone.zip(calls_to_find(scene, &machines).await?) else { return Ok(()) };
    let most = alone * count as u64 - (count as u64 - 1);
    require(together <= most, || format!("{together} calls for a batch of {count}, {alone} for one: more than {most}"))
}

async fn calls_to_find(scene: &Scene, machines: &[Instance]) -> CaseResult<Option<u64>> {
    let before = scene.calls().await;
    every_one_is_found(scene, machines).await?;
    Ok(before.zip(scene.calls().await).map(|(before, after)| after - before))
}

pub(super) async fn concurrent_questions(scene: &Scene) -> CaseResult {
    let mut machines = Vec::new();
    for index in 0..scene.numbers()?.max_parallel.min(MANY) {
        machines.push(scene.add(&format!("node-{index}")).await);
    }
    let asking = machines.iter().map(|machine| every_one_is_found(scene, std::slice::from_ref(machine)));
    join_all(asking).await.into_iter().collect()
}

/// Each of the machines is found by its ID, with all that is known of it.
async fn every_one_is_found(scene: &Scene, machines: &[Instance]) -> CaseResult {
    let asked: Vec<_> = machines.iter().map(of).collect();
    for (machine, answer) in machines.iter().zip(scene.find(&asked).await?) {
        let state = answer.or_else(|error| broken(format!("an error from a sound cloud: {error}")))?;
        let found = state.instance().is_some_and(|found| **found == *machine);
        require(found, || format!("asked for {machine:?}, it answered {state:?}"))?;
    }
    Ok(())
}

async fn same_calls(scene: &Scene, before: Option<u64>) -> CaseResult {
    let Some((before, after)) = before.zip(scene.calls().await) else { return Ok(()) };
    require(after == before, || format!("{} calls where none is needed", after - before))
}
