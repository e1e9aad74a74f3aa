//! Rules about machine lookups while the cloud fails.

use std::time::Duration;

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::InstanceState;

use crate::bench::InducedFault;
use crate::context::{CaseContext, CaseFailure, CaseResult, by_name, fail, instance_ref, require};

const SEVEN: Duration = Duration::from_secs(7);

/// Faults, each with the kind of the error that the provider must return.
const FAULTS: [(InducedFault, ErrorKind); 6] = [
    (InducedFault::Unauthenticated, ErrorKind::Unauthenticated),
    (InducedFault::Forbidden, ErrorKind::PermissionDenied),
    (InducedFault::Throttled(SEVEN), ErrorKind::RateLimited),
    (InducedFault::Broken, ErrorKind::Unavailable),
    (InducedFault::Empty, ErrorKind::Unexpected),
    (InducedFault::Garbled, ErrorKind::Unexpected),
];

/// Faults that can occur in calls about machines.
fn faults(context: &CaseContext) -> impl Iterator<Item = (InducedFault, ErrorKind)> {
    FAULTS.into_iter().filter(|(fault, _)| context.bench().can_affect_machines(*fault))
}

/// Faults that a listing can detect: an empty answer looks like an empty account.
pub(super) fn visible_faults(context: &CaseContext) -> impl Iterator<Item = (InducedFault, ErrorKind)> {
    let can_occur = |fault: &InducedFault| *fault != InducedFault::Empty && context.bench().can_occur(*fault);
    FAULTS.into_iter().filter(move |(fault, _)| can_occur(fault))
}

pub(super) async fn gone_is_certain(context: &CaseContext) -> CaseResult {
    let (here, gone) = (context.add("here").await, context.add_and_delete("gone").await);
    let state = context.state(&instance_ref(&gone)).await?;
    require(state == InstanceState::Gone, || format!("a deleted machine is reported as {state:?}"))?;
    context.inject(InducedFault::Empty).await?;
    context.error(&instance_ref(&here)).await?;
    context.error(&instance_ref(&gone)).await?;
    context.clear_faults().await;
    context.instance(&instance_ref(&here)).await.map(drop)
}

pub(super) async fn error_is_no_answer(context: &CaseContext) -> CaseResult {
    let (here, gone) = (context.add("here").await, context.add_and_delete("gone").await);
    let by_id = [instance_ref(&here), instance_ref(&gone)];
    let names = if context.instance_capabilities()?.lookup_by_name {
        vec![by_name("here"), by_name("gone")]
    } else {
        Vec::new()
    };
    for (fault, _) in faults(context) {
        context.inject(fault).await?;
        // A name that no machine has looks the same as an empty cloud.
        let names = names.iter().filter(|_| fault != InducedFault::Empty);
        let references: Vec<_> = by_id.iter().chain(names).cloned().collect();
        for (reference, answer) in references.iter().zip(context.find(&references).await?) {
            match answer {
                Ok(state) => return fail(format!("{fault:?}: expected an error, got {state:?}")),
                Err(error) if error.known_state().is_some() && reference.node == *"gone" => {
                    return fail(format!(
                        "{fault:?}: the error claims to know the state of a deleted machine: {error}"
                    ));
                }
                Err(_) => {}
            }
        }
    }
    context.clear_faults().await;
    context.instance(&instance_ref(&here)).await.map(drop)
}

pub(super) async fn errors_have_a_kind(context: &CaseContext) -> CaseResult {
    let here = context.add("here").await;
    for (fault, kind) in faults(context) {
        context.inject(fault).await?;
        let error = context.error(&instance_ref(&here)).await?;
        require(error.kind() == kind, || {
            format!("{fault:?}: expected an error of kind {kind:?}, got {:?}: {error}", error.kind())
        })?;
    }
    Ok(())
}

pub(super) async fn listing_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    context.add("here").await;
    // Because of the missing fault, a listing alone never proves that a machine is gone.
    for (fault, kind) in faults(context).filter(|(fault, _)| *fault != InducedFault::Empty) {
        context.inject(fault).await?;
        match context.instances()?.list(None).await {
            Ok(page) => {
                return fail(format!("{fault:?}: expected an error, got a page of {} machines", page.instances.len()));
            }
            Err(error) => require(error.kind() == kind, || {
                format!("{fault:?}: expected an error of kind {kind:?}, got {:?}: {error}", error.kind())
            })?,
        }
    }
    Ok(())
}

pub(super) async fn throttling_carries_its_delay(context: &CaseContext) -> CaseResult {
    if !context.bench().can_affect_machines(InducedFault::Throttled(SEVEN)) {
        return Err(CaseFailure::NotApplicable("the cloud never throttles"));
    }
    let here = context.add("here").await;
    context.inject(InducedFault::Throttled(SEVEN)).await?;
    let advice = context.error(&instance_ref(&here)).await?.retry_advice();
    require(advice == Retry::After(SEVEN), || {
        format!("the cloud asked for a delay of {SEVEN:?}, the retry advice is {advice:?}")
    })
}
