//! Rules about what a provider tells beside the state: annotations that lead to a balancer, notices, steps that may be refused.

use std::collections::BTreeMap;

use bowline_core::{DesiredLoadBalancer, LoadBalancerState, Warning};

use crate::balancing::{Balancing, annotated, gone};
use crate::scene::{CaseResult, Scene, broken, require};

pub(in crate::cases) async fn annotations_lead_back(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let before = work.resources().await;
    let plain = work.everything("web", &nodes)?;
    let notes = work.noting(&plain).await?;
    let state = work.fulfil(&plain).await?;
    says(&state, &notes)?;
    // As the controller writes it, and then as the user wants something else.
    let desired = annotated(&plain, &state.annotations);
    work.rests(&desired).await?;
    let again = work.fulfil(&desired).await?;
    let is_same = again.status == state.status && again.annotations == state.annotations;
    require(is_same, || format!("once the Service says what it is to say, {state:?} became {again:?}"))?;
    let id = work.seen(&plain.key).await?.id;
    work.fulfil(&work.otherwise(&desired, nodes.get(..1).unwrap_or_default())?).await?;
    let kept = work.seen(&plain.key).await?.id;
    require(kept == id, || format!("its annotations lead to {id}, and it became {kept}"))?;
    let left = removed(&work, &desired).await?;
    work.nothing_changed_since(&before).await?;
    // What the Service still says must not lead to what is gone.
    work.fulfil(&left).await?;
    removed(&work, &left).await?;
    work.nothing_changed_since(&before).await
}

/// What was noted on the way is what is said in the end.
fn says(state: &LoadBalancerState, notes: &BTreeMap<String, String>) -> CaseResult {
    let said = &state.annotations;
    let is_said = notes.iter().all(|(key, value)| said.get(key) == Some(value));
    require(is_said, || format!("it noted {notes:?}, and now that all is done the Service is to say {said:?}"))
}

/// Removes it as the controller does: what leads to it is taken off first. What the Service says then.
async fn removed(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> CaseResult<DesiredLoadBalancer> {
    let state = work.state(&gone(desired)).await?;
    let Some(state) = state else { return broken("it is there, and nothing is to be removed") };
    let mut left = desired.clone();
    let kept = desired.annotations.iter().filter(|(key, value)| state.annotations.get(*key) != Some(*value));
    left.annotations = std::sync::Arc::new(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
    work.remove(&left).await?;
    Ok(left)
}

pub(in crate::cases) async fn remarks_can_be_told(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let desired = work.everything("web", &nodes)?;
    let changed = work.otherwise(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed, &gone(&desired)] {
        let plan = work.plan(wanted).await?;
        plan.warnings.iter().try_for_each(can_be_told)?;
        plan.steps.iter().filter_map(|step| step.dispensable.as_deref()).try_for_each(is_a_reason)?;
        let state = work.converge(wanted).await?;
        state.iter().flat_map(|state| state.annotations.keys()).try_for_each(|key| is_a_key(key))?;
    }
    Ok(())
}

fn can_be_told(warning: &Warning) -> CaseResult {
    is_a_reason(&warning.reason)?;
    require(!warning.message.trim().is_empty(), || format!("{} says nothing", warning.reason))
}

/// A CamelCase word, as the reason of an Event is.
fn is_a_reason(reason: &str) -> CaseResult {
    let is_camel = reason.starts_with(|first: char| first.is_ascii_uppercase());
    let is_word = is_camel && reason.chars().all(|letter| letter.is_ascii_alphanumeric());
    require(is_word, || format!("{reason:?} is no reason for an Event"))
}

/// `prefix/name`, as the keys of annotations are that are not everybody's.
fn is_a_key(key: &str) -> CaseResult {
    let plain = |text: &str| {
        let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        !text.is_empty() && text.chars().all(is_fit)
    };
    let is_key = key.split_once('/').is_some_and(|(prefix, name)| plain(prefix) && plain(name));
    require(is_key, || format!("{key:?} is no key of an annotation"))
}
