//! Rules about machine lookups.

use bowline_cloud::{ErrorKind, Identity};
use bowline_core::{Address, AddressType, Instance, InstanceRef, InstanceState, ProviderId};
use futures::future::join_all;

use crate::bench::WantedMachine;
use crate::context::{CaseContext, CaseFailure, CaseResult, by_id, by_name, fail, instance_ref, require};

/// Maximum number of machines of a case; more would only take time, hours on a real cloud.
const MAX_MACHINES: usize = 200;

pub(super) async fn one_answer_each(context: &CaseContext) -> CaseResult {
    let (a, b, gone) = (context.add("a").await, context.add("b").await, context.add_and_delete("gone").await);
    // With duplicates, in an order that no cloud would return, and not a palindrome.
    let references = [&b, &gone, &a, &a, &b].map(instance_ref);
    let answers = context.find(&references).await?;
    let ids: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().and_then(InstanceState::instance)).collect();
    let ids: Vec<_> = ids.into_iter().map(|found| found.map(|found| found.id.as_str())).collect();
    let (a, b) = (Some(a.id.as_str()), Some(b.id.as_str()));
    require(ids == [b, None, a, a, b], || {
        format!("looked up {b:?}, a deleted machine, {a:?} twice and {b:?}; got {ids:?}")
    })
}

pub(super) async fn empty_lookup_makes_no_call(context: &CaseContext) -> CaseResult {
    let before = context.calls().await;
    let answers = context.instances()?.find(&[]).await;
    require(answers.is_empty(), || format!("{} answers to an empty lookup", answers.len()))?;
    verify_no_calls(context, before).await
}

pub(super) async fn stopped_is_not_gone(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    context.bench().stop(&instance).await;
    context.instance(&instance_ref(&instance)).await.map(drop)
}

pub(super) async fn stopped_is_reported(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    context.bench().stop(&instance).await;
    let stopped = context.state(&instance_ref(&instance)).await?;
    require(matches!(stopped, InstanceState::Stopped(_)), || format!("a stopped machine is reported as {stopped:?}"))?;
    context.bench().start(&instance).await;
    let running = context.state(&instance_ref(&instance)).await?;
    require(matches!(running, InstanceState::Running(_)), || format!("a started machine is reported as {running:?}"))
}

pub(super) async fn id_before_name(context: &CaseContext) -> CaseResult {
    let (a, b, gone) = (context.add("a").await, context.add("b").await, context.add_and_delete("gone").await);
    let found = context.instance(&by_id(&a.name, b.provider_id.as_ref())).await?;
    require(found.id == b.id, || {
        format!("a lookup of the ID of {:?} with another machine's name found {:?}", b.id, found.id)
    })?;
    let state = context.state(&by_id(&a.name, gone.provider_id.as_ref())).await?;
    require(state == InstanceState::Gone, || {
        format!("the ID is gone and the name exists: expected `Gone`, got {state:?}")
    })
}

pub(super) async fn id_is_recognised(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    // A second machine, so that a truncated ID would match both.
    context.add("node-2").await;
    let recognised = Identity::Id(context.instance(&instance_ref(&instance)).await?.id.clone());
    for id in context.bench().spellings(&instance).iter().chain(&instance.provider_id) {
        let reference = by_id("another-name", Some(id));
        require(context.provider().owns(id), || format!("the provider does not own {id:?}"))?;
        match context.instances()?.identify(&reference) {
            Ok(identity) => require(identity == recognised, || {
                format!("{id:?}: expected the identity {recognised:?}, got {identity:?}")
            })?,
            Err(error) => return fail(format!("{id:?} is not recognised: {error}")),
        }
        let found = context.instance(&reference).await?;
        require(found.id == instance.id, || format!("a lookup of {id:?} found {:?}", found.id))?;
    }
    Ok(())
}

pub(super) async fn foreign_id_is_not_mine(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    // Name and ID match the machine; only the prefix is foreign.
    let foreign = ProviderId::of("foreign-cloud", &instance.id);
    let before = context.calls().await;
    let state = context.state(&by_id(&instance.name, Some(&foreign))).await?;
    require(state == InstanceState::NotMine, || format!("{foreign:?} is reported as {state:?}"))?;
    verify_no_calls(context, before).await
}

pub(super) async fn malformed_id_is_an_error(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    for id in context.bench().malformed_ids() {
        let error = context.error(&by_id(&instance.name, Some(&id))).await?;
        require(error.kind() == ErrorKind::InvalidConfig, || {
            format!("{id:?}: expected `InvalidConfig`, got {:?}: {error}", error.kind())
        })?;
    }
    Ok(())
}

pub(super) async fn name_finds_the_machine(context: &CaseContext) -> CaseResult {
    let (a, gone) = (context.add("a").await, context.add_and_delete("gone").await);
    let found = context.instance(&by_name(&a.name)).await?;
    require(*found == a, || format!("lookup by name: expected {a:?}, got {found:?}"))?;
    let state = context.state(&by_name(&gone.name)).await?;
    require(state == InstanceState::Gone, || format!("a name that no machine has is reported as {state:?}"))
}

pub(super) async fn ambiguous_name_is_an_error(context: &CaseContext) -> CaseResult {
    let (a, b) = (context.add("twin").await, context.add("twin").await);
    let text = context.error(&by_name("twin")).await?.to_string();
    require(text.contains(&a.id) && text.contains(&b.id), || {
        format!("the error does not name both {:?} and {:?}: {text}", a.id, b.id)
    })?;
    let found = context.instance(&instance_ref(&b)).await?;
    require(found.id == b.id, || format!("a lookup of the ID {:?} found {:?}", b.id, found.id))
}

pub(super) async fn without_name_lookup_nothing_is_found(context: &CaseContext) -> CaseResult {
    let (a, gone) = (context.add("a").await, context.add_and_delete("gone").await);
    for name in [&a.name, &gone.name] {
        match context.find_one(&by_name(name)).await? {
            Ok(InstanceState::NotMine) | Err(_) => {}
            Ok(state) => return fail(format!("lookup by name is not claimed, but {name:?} is reported as {state:?}")),
        }
    }
    Ok(())
}

pub(super) async fn provider_id_is_stable(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    let reference = instance_ref(&instance);
    require(instance.provider_id.is_some(), || "the machine has no provider ID".to_owned())?;
    context.bench().stop(&instance).await;
    verify_same_id(context, &reference, &instance, "stop").await?;
    context.bench().start(&instance).await;
    verify_same_id(context, &reference, &instance, "start").await?;
    if !context.bench().rename(&instance, "another-name").await {
        return Err(CaseFailure::BenchCannot("rename a machine".to_owned()));
    }
    verify_same_id(context, &reference, &instance, "rename").await
}

async fn verify_same_id(
    context: &CaseContext,
    reference: &InstanceRef,
    instance: &Instance,
    after: &str,
) -> CaseResult {
    let found = context.instance(reference).await?;
    require(found.provider_id == instance.provider_id, || {
        format!("the provider ID changed from {:?} to {:?} after {after}", instance.provider_id, found.provider_id)
    })
}

pub(super) async fn deleted_then_recreated_same_name_is_another_id(context: &CaseContext) -> CaseResult {
    let old = context.add("recreated").await;
    let before = context.instance(&instance_ref(&old)).await?;
    context.bench().delete(&old).await;
    let new = context.add("recreated").await;
    let state = context.state(&instance_ref(&old)).await?;
    require(state == InstanceState::Gone, || format!("the ID of the deleted machine is reported as {state:?}"))?;
    let after = context.instance(&instance_ref(&new)).await?;
    require(after.id != before.id && after.provider_id != before.provider_id, || {
        format!("the new machine has the ID of the old one: {before:?}, {after:?}")
    })
}

pub(super) async fn addresses_keep_their_order(context: &CaseContext) -> CaseResult {
    // Sorted neither by type nor by text.
    let addresses = vec![
        Address::new(AddressType::ExternalIP, "203.0.113.9"),
        Address::new(AddressType::InternalIP, "10.0.0.20"),
        Address::new(AddressType::InternalIP, "10.0.0.3"),
        Address::new(AddressType::Hostname, "node-1"),
        Address::new(AddressType::InternalIP, "fd00::7"),
    ];
    let instance =
        context.bench().add(&WantedMachine { name: "node-1".to_owned(), addresses, ..WantedMachine::default() }).await;
    require(!instance.addresses.is_empty(), || "the bench created a machine without addresses".to_owned())?;
    for _ in 0..3 {
        let found = context.instance(&instance_ref(&instance)).await?;
        require(found.addresses == instance.addresses, || {
            format!("expected the addresses {:?}, got {:?}", instance.addresses, found.addresses)
        })?;
    }
    Ok(())
}

pub(super) async fn zones_are_reported(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    let found = context.instance(&instance_ref(&instance)).await?;
    let (reported, expected) = ((&found.zone, &found.region), (&instance.zone, &instance.region));
    require(reported == expected && !found.zone.is_empty(), || {
        format!("expected the zone and region {expected:?}, got {reported:?}")
    })
}

pub(super) async fn labels_are_reported(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    let found = context.instance(&instance_ref(&instance)).await?;
    require(found.labels == instance.labels && !found.labels.is_empty(), || {
        format!("expected the labels {:?}, got {:?}", instance.labels, found.labels)
    })
}

pub(super) async fn annotations_are_reported(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    let found = context.instance(&instance_ref(&instance)).await?;
    require(found.annotations == instance.annotations && !found.annotations.is_empty(), || {
        format!("expected the annotations {:?}, got {:?}", instance.annotations, found.annotations)
    })
}

pub(super) async fn mixed_batch(context: &CaseContext) -> CaseResult {
    let (a, stopped, gone) =
        (context.add("a").await, context.add("stopped").await, context.add_and_delete("gone").await);
    context.bench().stop(&stopped).await;
    let foreign = ProviderId::of("foreign-cloud", &a.id);
    let references = [instance_ref(&gone), by_id("foreign", Some(&foreign)), instance_ref(&stopped), instance_ref(&a)];
    let answers = context.find(&references).await?;
    let answers: Result<Vec<_>, _> = answers.into_iter().collect();
    let states = answers.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))?;
    let found: Vec<_> = states.iter().map(|state| state.instance().map(|found| found.id.as_str())).collect();
    require(found == [None, None, Some(stopped.id.as_str()), Some(a.id.as_str())], || {
        format!("the answers do not match the machines: {states:?}")
    })?;
    require(matches!(states.as_slice(), [InstanceState::Gone, InstanceState::NotMine, ..]), || {
        format!("a deleted and a foreign machine are reported as {states:?}")
    })
}

pub(super) async fn batch_limit_is_honoured(context: &CaseContext) -> CaseResult {
    let count = context.instance_capabilities()?.batch_lookup.min(MAX_MACHINES);
    let mut machines = Vec::with_capacity(count);
    for index in 0..count {
        machines.push(context.add(&format!("node-{index}")).await);
    }
    // The first lookup also fetches what the provider caches, such as a token.
    verify_found(context, &machines[..1]).await?;
    let alone = calls_to_find(context, &machines[..1]).await?;
    let Some((alone, together)) = alone.zip(calls_to_find(context, &machines).await?) else { return Ok(()) };
    let limit = alone * count as u64 - (count as u64 - 1);
    require(together <= limit, || {
        format!(
            "a batch of {count} took {together} calls; with {alone} calls for one machine, at most {limit} are allowed"
        )
    })
}

async fn calls_to_find(context: &CaseContext, machines: &[Instance]) -> CaseResult<Option<u64>> {
    let before = context.calls().await;
    verify_found(context, machines).await?;
    Ok(before.zip(context.calls().await).map(|(before, after)| after - before))
}

pub(super) async fn concurrent_lookups(context: &CaseContext) -> CaseResult {
    let mut machines = Vec::new();
    for index in 0..context.instance_capabilities()?.max_parallel.min(MAX_MACHINES) {
        machines.push(context.add(&format!("node-{index}")).await);
    }
    let lookups = machines.iter().map(|machine| verify_found(context, std::slice::from_ref(machine)));
    join_all(lookups).await.into_iter().collect()
}

/// Verifies that each machine is found by its ID, with all of its fields.
async fn verify_found(context: &CaseContext, machines: &[Instance]) -> CaseResult {
    let references: Vec<_> = machines.iter().map(instance_ref).collect();
    for (machine, answer) in machines.iter().zip(context.find(&references).await?) {
        let state = answer.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))?;
        let found = state.instance().is_some_and(|found| **found == *machine);
        require(found, || format!("expected {machine:?}, got {state:?}"))?;
    }
    Ok(())
}

async fn verify_no_calls(context: &CaseContext, before: Option<u64>) -> CaseResult {
    let Some((before, after)) = before.zip(context.calls().await) else { return Ok(()) };
    require(after == before, || format!("{} calls where none is necessary", after - before))
}
