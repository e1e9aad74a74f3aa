//! Rules about load balancer kinds.

use std::collections::BTreeSet;

use bowline_cloud::ErrorKind;
use bowline_core::DesiredLoadBalancer;

use crate::bench::SeenLoadBalancer;
use crate::context::{CaseContext, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, without_spec};

pub(in crate::cases) async fn kind_is_as_declared(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let kinds = &fixture.capabilities()?.kinds;
    let names: BTreeSet<_> = kinds.iter().map(|kind| kind.name).collect();
    require(names.len() == kinds.len(), || format!("two kinds of load balancers have the same name: {names:?}"))?;
    let first = kinds.first().map(|kind| kind.requested_by).unwrap_or_default();
    require(first.is_empty(), || format!("the first kind must be the one without annotations, not with {first:?}"))?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    let requested = fixture
        .requested_kind(&desired)?
        .or_else(|error| fail(format!("the requested kind is not declared: {error}")))?;
    let wanted = fixture.kind()?.name;
    require(requested.name == wanted, || {
        format!("a Service with {:?} requests the kind {:?}, not {wanted:?}", desired.annotations, requested.name)
    })
}

/// The same Service for each other kind.
fn others(fixture: &LoadBalancerFixture<'_>, own: &DesiredLoadBalancer) -> CaseResult<Vec<DesiredLoadBalancer>> {
    let Some(spec) = own.spec.as_deref() else { return fail("the desired state has no spec") };
    let kinds = fixture.capabilities()?.kinds.iter().filter(|kind| Some(kind.name) != fixture.context().kind());
    kinds.map(|kind| fixture.desired_of_kind("web", kind, spec.clone())).collect()
}

/// Changes from this kind to each other kind, and back.
pub(in crate::cases) async fn kind_changes(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let own = fixture.desired("web", &[fixture.node("node-1").await])?;
    for other in others(&fixture, &own)? {
        for desired in [&own, &other, &own] {
            fixture.sync_and_verify(desired).await?;
            fixture.verify_no_changes(desired).await?;
        }
    }
    fixture.delete_and_verify(&without_spec(&own)).await
}

/// Requests each other kind for an existing load balancer, and its own again.
pub(in crate::cases) async fn fixed_kind_is_kept(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let own = fixture.desired("web", &[fixture.node("node-1").await])?;
    fixture.sync_and_verify(&own).await?;
    let before = fixture.load_balancer(&own.key).await?;
    for other in others(&fixture, &own)? {
        match fixture.try_sync(&other).await? {
            Err(error) if !matches!(error.kind(), ErrorKind::InvalidConfig | ErrorKind::Unsupported) => {
                return fail(format!(
                    "another kind was requested: expected `InvalidConfig` or `Unsupported`, got {error}"
                ));
            }
            _ => {}
        }
        let fixed = |seen: &SeenLoadBalancer| (seen.id.clone(), seen.addresses.clone(), seen.internal);
        let after = fixture.load_balancer(&own.key).await?;
        require(fixed(&after) == fixed(&before), || {
            format!("another kind was requested, and the load balancer changed from {before:?} to {after:?}")
        })?;
        fixture.verify_no_changes(&own).await?;
        fixture.sync_and_verify(&own).await?;
    }
    fixture.delete_and_verify(&without_spec(&own)).await
}
