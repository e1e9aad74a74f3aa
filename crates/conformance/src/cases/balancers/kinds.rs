//! Rules about kinds of load balancers.

use std::collections::BTreeSet;

use crate::balancing::{Balancing, gone};
use crate::scene::{CaseResult, Scene, broken, require};

pub(in crate::cases) async fn kind_is_as_declared(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let kinds = &work.group()?.kinds;
    let names: BTreeSet<_> = kinds.iter().map(|kind| kind.name).collect();
    require(names.len() == kinds.len(), || format!("two kinds of load balancers have one name: {names:?}"))?;
    let first = kinds.first().map(|kind| kind.requested_by).unwrap_or_default();
    require(first.is_empty(), || {
        format!("the first kind is what a Service gets without annotations, not by {first:?}")
    })?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    let requested = work.requested_kind(&desired)?.or_else(|error| broken(format!("no kind is declared: {error}")))?;
    let wanted = work.caps()?.name;
    require(requested.name == wanted, || {
        format!("a Service with {:?} requests the kind {:?}, not {wanted:?}", desired.annotations, requested.name)
    })
}

/// From this kind to each other one, and back.
pub(in crate::cases) async fn kind_changes(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let own = work.desired("web", &[work.node("node-1").await])?;
    let Some(spec) = own.spec.as_deref() else { return broken("a Service without spec") };
    let others = work.group()?.kinds.iter().filter(|kind| Some(kind.name) != scene.kind());
    for other in others {
        let other = work.requesting("web", other, spec.clone())?;
        for desired in [&own, &other, &own] {
            work.fulfil(desired).await?;
            work.rests(desired).await?;
        }
    }
    work.remove(&gone(&own)).await
}
