//! Rules about the provider as a whole.

use bowline_cloud::{CloudProvider, ErrorKind, Facts};

use crate::bench::InducedFault;
use crate::context::{CaseContext, CaseResult, fail, instance_ref, require};

pub(super) async fn capabilities_match_traits(context: &CaseContext) -> CaseResult {
    let (provider, capabilities) = (context.provider(), context.provider().capabilities());
    let table = [
        ("instances", capabilities.instances.is_some(), provider.instances().is_some()),
        ("load balancers", capabilities.load_balancers.is_some(), provider.load_balancers().is_some()),
        ("routes", capabilities.routes.is_some(), provider.routes().is_some()),
    ];
    for (what, claimed, there) in table {
        require(claimed == there, || format!("{what}: claimed: {claimed}, implemented: {there}"))?;
    }
    if let Some(balancers) = &capabilities.load_balancers {
        require(!balancers.kinds.is_empty(), || "the provider claims load balancers and no kind of them".to_owned())?;
        for kind in &balancers.kinds {
            let protocols = kind.tcp || kind.udp || kind.sctp;
            let families = !kind.ip_families.is_empty();
            require(protocols && families, || {
                format!("the kind claims no protocol or no IP family, so no Service could use it: {kind:?}")
            })?;
        }
    }
    if let Some(routes) = &capabilities.routes {
        let families = !routes.ip_families.is_empty();
        require(families, || "routes: no IP family is claimed, so no route could be created".to_owned())?;
        require(routes.max_parallel >= 1, || "routes: max_parallel is 0, so no call could be made".to_owned())?;
        require(routes.max_routes != Some(0), || "routes: max_routes is 0, so no route could be created".to_owned())?;
    }
    let Some(capabilities) = &capabilities.instances else { return Ok(()) };
    require(capabilities.batch_lookup >= 1, || "batch_lookup is 0, so no machine could be looked up".to_owned())?;
    require(capabilities.max_parallel >= 1, || "max_parallel is 0, so no call could be made".to_owned())?;
    require(capabilities.list_page != Some(0), || "list_page is 0, so a listing would never end".to_owned())
}

/// Starts the provider on a healthy cloud.
async fn start(provider: &dyn CloudProvider) -> CaseResult<Facts> {
    provider.start().await.or_else(|error| fail(format!("the start on a healthy cloud failed: {error}")))
}

pub(super) async fn start_is_repeatable(context: &CaseContext) -> CaseResult {
    let first = start(context.provider()).await?;
    for _ in 0..2 {
        let next = start(context.provider()).await?;
        require(next == first, || format!("the facts changed from {first:?} to {next:?} at the next start"))?;
    }
    let Some(controls) = context.bench().load_balancers() else { return Ok(()) };
    let writes = controls.writes().await.unwrap_or_default();
    require(writes == 0, || format!("three starts made {writes} write calls"))
}

pub(super) async fn start_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    let table = [
        (InducedFault::Unauthenticated, ErrorKind::Unauthenticated),
        (InducedFault::Forbidden, ErrorKind::PermissionDenied),
        (InducedFault::Broken, ErrorKind::Unavailable),
    ];
    for (fault, kind) in table.into_iter().filter(|(fault, _)| context.bench().can_affect_machines(*fault)) {
        context.inject(fault).await?;
        // A start that makes no call succeeds.
        if let Err(error) = context.bench().restarted().await.start().await {
            require(error.kind() == kind, || {
                format!("{fault:?}: expected an error of kind {kind:?}, got {:?}: {error}", error.kind())
            })?;
        }
    }
    context.clear_faults().await;
    start(&*context.bench().restarted().await).await.map(drop)
}

pub(super) async fn facts_only_lower_capabilities(context: &CaseContext) -> CaseResult {
    let facts = start(context.provider()).await?;
    let beyond = facts.capabilities.and_then(|left| left.exceeds(context.provider().capabilities()));
    require(beyond.is_none(), || format!("the facts have capabilities that are not claimed: {beyond:?}"))
}

pub(super) async fn check_calls_the_cloud(context: &CaseContext) -> CaseResult {
    if let Err(error) = context.provider().check().await {
        return fail(format!("the check of a healthy cloud failed: {error}"));
    }
    let table = [
        (InducedFault::Unauthenticated, ErrorKind::Unauthenticated),
        (InducedFault::Forbidden, ErrorKind::PermissionDenied),
    ];
    for (fault, kind) in table.into_iter().filter(|(fault, _)| context.bench().can_affect_machines(*fault)) {
        context.inject(fault).await?;
        match context.provider().check().await {
            Ok(()) => return fail(format!("{fault:?}: the check passed")),
            Err(error) => require(error.kind() == kind, || {
                format!("{fault:?}: expected an error of kind {kind:?}, got {:?}: {error}", error.kind())
            })?,
        }
    }
    Ok(())
}

pub(super) async fn prefix_is_owned(context: &CaseContext) -> CaseResult {
    let instance = context.add("node-1").await;
    let found = context.instance(&instance_ref(&instance)).await?;
    let Some(id) = &found.provider_id else { return fail("the machine has no provider ID") };
    let prefixes = &context.provider().info().id_prefixes;
    require(context.provider().owns(id), || {
        format!("the provider returns {id:?} and does not own it; its prefixes are {prefixes:?}")
    })
}
