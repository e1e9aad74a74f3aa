//! Rules about annotations of the Service, warnings and best-effort steps.

use std::collections::BTreeMap;

use bowline_core::{DesiredLoadBalancer, LoadBalancerState, Warning};

use crate::context::{CaseContext, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, with_annotations, without_spec};

pub(in crate::cases) async fn annotations_identify_the_load_balancer(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let before = fixture.resources().await;
    let plain = fixture.full_featured("web", &nodes)?;
    let annotations = fixture.apply_and_collect_annotations(&plain).await?;
    let state = fixture.sync_and_verify(&plain).await?;
    verify_annotations(&state, &annotations)?;
    // The controller writes the annotations to the Service; then the user changes the Service.
    let desired = with_annotations(&plain, &state.annotations);
    fixture.verify_no_changes(&desired).await?;
    let again = fixture.sync_and_verify(&desired).await?;
    let is_same = again.status == state.status && again.annotations == state.annotations;
    require(is_same, || format!("the state changed from {state:?} to {again:?} once the Service had its annotations"))?;
    let id = fixture.load_balancer(&plain.key).await?.id;
    fixture.sync_and_verify(&fixture.changed(&desired, nodes.get(..1).unwrap_or_default())?).await?;
    let kept = fixture.load_balancer(&plain.key).await?.id;
    require(kept == id, || format!("the annotations identify {id}, but the Service now has {kept}"))?;
    let left = delete_as_controller(&fixture, &desired).await?;
    fixture.verify_unchanged(&before).await?;
    // The remaining annotations must not identify the deleted load balancer.
    fixture.sync_and_verify(&left).await?;
    delete_as_controller(&fixture, &left).await?;
    fixture.verify_unchanged(&before).await
}

/// Verifies that the final state has the annotations that the steps returned.
fn verify_annotations(state: &LoadBalancerState, returned: &BTreeMap<String, String>) -> CaseResult {
    let of_state = &state.annotations;
    let is_included = returned.iter().all(|(key, value)| of_state.get(key) == Some(value));
    require(is_included, || format!("the steps returned the annotations {returned:?}, the state has {of_state:?}"))
}

/// Deletes the load balancer as the controller does, which first removes the annotations that identify it. Returns the Service with
/// the remaining annotations.
async fn delete_as_controller(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
) -> CaseResult<DesiredLoadBalancer> {
    let state = fixture.state(&without_spec(desired)).await?;
    let Some(state) = state else { return fail("the load balancer exists, but no state is observed for its deletion") };
    let mut left = desired.clone();
    let kept = desired.annotations.iter().filter(|(key, value)| state.annotations.get(*key) != Some(*value));
    left.annotations = std::sync::Arc::new(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
    fixture.delete_and_verify(&left).await?;
    Ok(left)
}

pub(in crate::cases) async fn warnings_are_valid_events(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let desired = fixture.full_featured("web", &nodes)?;
    let changed = fixture.changed(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed, &without_spec(&desired)] {
        let plan = fixture.plan(wanted).await?;
        plan.warnings.iter().try_for_each(verify_warning)?;
        plan.steps.iter().filter_map(|step| step.best_effort.as_deref()).try_for_each(verify_reason)?;
        let state = fixture.sync(wanted).await?;
        state.iter().flat_map(|state| state.annotations.keys()).try_for_each(|key| verify_annotation_key(key))?;
    }
    Ok(())
}

fn verify_warning(warning: &Warning) -> CaseResult {
    verify_reason(&warning.reason)?;
    require(!warning.message.trim().is_empty(), || format!("the warning {} has no message", warning.reason))
}

/// Verifies that the text is a CamelCase word, as the reason of an Event must be.
fn verify_reason(reason: &str) -> CaseResult {
    let is_camel = reason.starts_with(|first: char| first.is_ascii_uppercase());
    let is_word = is_camel && reason.chars().all(|letter| letter.is_ascii_alphanumeric());
    require(is_word, || format!("{reason:?} is not a valid Event reason"))
}

/// Verifies that the key has the form `prefix/name`: keys without a prefix are reserved for users.
fn verify_annotation_key(key: &str) -> CaseResult {
    let is_valid = |text: &str| {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        !text.is_empty() && text.chars().all(is_allowed)
    };
    let is_key = key.split_once('/').is_some_and(|(prefix, name)| is_valid(prefix) && is_valid(name));
    require(is_key, || format!("{key:?} is not a valid annotation key"))
}
