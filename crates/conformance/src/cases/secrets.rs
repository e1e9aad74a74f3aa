//! Rules about Secrets. They do not apply to a provider that names none.

use std::collections::BTreeSet;

use bowline_cloud::{CloudProvider, SecretData};

use crate::bench::SecretBench;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// A value that no cloud accepts and no error may show.
const BAD: &str = "swordfish \u{7} of the suite";

/// Controls for Secrets, if the provider names some.
fn controls(scene: &Scene) -> CaseResult<&dyn SecretBench> {
    if scene.provider().secrets().is_empty() {
        return Err(CaseFailure::NotApplicable("no Secrets"));
    }
    scene.bench().secret_store().ok_or_else(|| CaseFailure::BenchCannot("rotate credentials".to_owned()))
}

async fn check(provider: &dyn CloudProvider, when: &str) -> CaseResult {
    provider.check().await.or_else(|error| broken(format!("the check fails {when}: {error}")))
}

pub(super) async fn secrets_are_declared(scene: &Scene) -> CaseResult {
    let first = scene.provider().secrets();
    if first.is_empty() {
        return Err(CaseFailure::NotApplicable("no Secrets"));
    }
    let distinct: BTreeSet<_> = first.iter().collect();
    require(distinct.len() == first.len(), || format!("a Secret is named twice: {first:?}"))?;
    for again in [scene.provider().secrets(), scene.bench().restarted().await.secrets()] {
        require(again == first, || format!("the Secrets were {first:?}, and are {again:?}"))?;
    }
    Ok(())
}

pub(super) async fn bad_secret_is_refused(scene: &Scene) -> CaseResult {
    let controls = controls(scene)?;
    let provider = scene.provider();
    for secret in provider.secrets() {
        let good = controls.contents(&secret).await;
        if provider.on_secret(&secret, Some(&SecretData::default())).await.is_ok() {
            return broken(format!("the Secret {secret} is taken without any keys"));
        }
        check(provider, "after a Secret without keys").await?;
        let bad: SecretData = good.keys().map(|key| (key, BAD)).collect();
        // Not every credential can be seen to be wrong before it is used.
        match provider.on_secret(&secret, Some(&bad)).await {
            Ok(()) => provider.on_secret(&secret, Some(&good)).await.or_else(|error| broken(error.to_string()))?,
            Err(error) => {
                let shown = format!("{error} {error:?}");
                require(!shown.contains("swordfish"), || "an error shows a value of the Secret".to_owned())?;
            }
        }
        check(provider, "after a Secret that was refused").await?;
    }
    Ok(())
}

pub(super) async fn rotated_secret_is_used(scene: &Scene) -> CaseResult {
    let controls = controls(scene)?;
    check(scene.provider(), "before anything has changed").await?;
    controls.rotate().await;
    if scene.provider().check().await.is_ok() {
        return Err(CaseFailure::BenchCannot("make the cloud refuse the former credentials".to_owned()));
    }
    for secret in scene.provider().secrets() {
        let contents = controls.contents(&secret).await;
        let taken = scene.provider().on_secret(&secret, Some(&contents)).await;
        taken.or_else(|error| broken(format!("the rotated Secret {secret} is refused: {error}")))?;
    }
    check(scene.provider(), "with the rotated credentials").await?;
    check(&*scene.bench().restarted().await, "with the rotated credentials, after a restart").await
}
