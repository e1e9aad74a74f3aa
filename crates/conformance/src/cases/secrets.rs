//! Rules about Secrets. They are not applicable to a provider that names none.

use std::collections::BTreeSet;

use bowline_cloud::{CloudProvider, SecretData};

use crate::bench::SecretBench;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};

/// Value that no cloud accepts and that no error may contain.
const BAD: &str = "swordfish \u{7} of the suite";

/// Controls for Secrets, if the provider names some.
fn controls(context: &CaseContext) -> CaseResult<&dyn SecretBench> {
    if context.provider().secrets().is_empty() {
        return Err(CaseFailure::NotApplicable("no Secrets"));
    }
    context.bench().secret_store().ok_or_else(|| CaseFailure::BenchCannot("rotate credentials".to_owned()))
}

async fn check(provider: &dyn CloudProvider, when: &str) -> CaseResult {
    provider.check().await.or_else(|error| fail(format!("the check failed {when}: {error}")))
}

pub(super) async fn secrets_are_declared(context: &CaseContext) -> CaseResult {
    let first = context.provider().secrets();
    if first.is_empty() {
        return Err(CaseFailure::NotApplicable("no Secrets"));
    }
    let distinct: BTreeSet<_> = first.iter().collect();
    require(distinct.len() == first.len(), || format!("a Secret is named twice: {first:?}"))?;
    for again in [context.provider().secrets(), context.bench().restarted().await.secrets()] {
        require(again == first, || format!("the named Secrets changed from {first:?} to {again:?}"))?;
    }
    Ok(())
}

pub(super) async fn bad_secret_is_refused(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let provider = context.provider();
    for secret in provider.secrets() {
        let good = controls.contents(&secret).await;
        if provider.on_secret(&secret, Some(&SecretData::default())).await.is_ok() {
            return fail(format!("the Secret {secret} is accepted without any keys"));
        }
        check(provider, "after a Secret without keys").await?;
        let bad: SecretData = good.keys().map(|key| (key, BAD)).collect();
        // Not every credential can be validated before it is used.
        match provider.on_secret(&secret, Some(&bad)).await {
            Ok(()) => provider.on_secret(&secret, Some(&good)).await.or_else(|error| fail(error.to_string()))?,
            Err(error) => {
                let shown = format!("{error} {error:?}");
                require(!shown.contains("swordfish"), || "an error contains a value of the Secret".to_owned())?;
            }
        }
        check(provider, "after a rejected Secret").await?;
    }
    Ok(())
}

pub(super) async fn rotated_secret_is_used(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    check(context.provider(), "before the rotation").await?;
    controls.rotate().await;
    if context.provider().check().await.is_ok() {
        return Err(CaseFailure::BenchCannot("make the cloud reject the previous credentials".to_owned()));
    }
    for secret in context.provider().secrets() {
        let contents = controls.contents(&secret).await;
        let taken = context.provider().on_secret(&secret, Some(&contents)).await;
        taken.or_else(|error| fail(format!("the rotated Secret {secret} is rejected: {error}")))?;
    }
    check(context.provider(), "with the rotated credentials").await?;
    check(&*context.bench().restarted().await, "with the rotated credentials, after a restart").await
}
