//! Rules about the provider as a whole.

use bowline_cloud::{CloudProvider, ErrorKind, Facts};

use crate::bench::InducedFault;
use crate::scene::{CaseResult, Scene, broken, of, require};

pub(super) async fn capabilities_match_traits(scene: &Scene) -> CaseResult {
    let (provider, capabilities) = (scene.provider(), scene.provider().capabilities());
    let table = [
        ("instances", capabilities.instances.is_some(), provider.instances().is_some()),
        ("load balancers", capabilities.load_balancers.is_some(), provider.load_balancers().is_some()),
        ("routes", capabilities.routes.is_some(), provider.routes().is_some()),
    ];
    for (what, claimed, there) in table {
        require(claimed == there, || format!("{what}: claimed is {claimed}, handed out is {there}"))?;
    }
    if let Some(balancers) = &capabilities.load_balancers {
        require(!balancers.kinds.is_empty(), || "it claims load balancers, and no kind of them".to_owned())?;
        for kind in &balancers.kinds {
            let protocols = kind.tcp || kind.udp || kind.sctp;
            let families = !kind.ip_families.is_empty();
            require(protocols && families, || {
                format!("no Service could have this: no protocol or no family: {kind:?}")
            })?;
        }
    }
    if let Some(routes) = &capabilities.routes {
        let families = !routes.ip_families.is_empty();
        require(families, || "it claims no family of addresses, so no range could be led anywhere".to_owned())?;
        require(routes.max_parallel >= 1, || "max_parallel of routes is 0: no call could be made".to_owned())?;
        require(routes.max_routes != Some(0), || "max_routes is 0: no range could be led anywhere".to_owned())?;
    }
    let Some(numbers) = &capabilities.instances else { return Ok(()) };
    require(numbers.batch_lookup >= 1, || "batch_lookup is 0: nothing could be asked for".to_owned())?;
    require(numbers.max_parallel >= 1, || "max_parallel is 0: no call could be made".to_owned())?;
    require(numbers.list_page != Some(0), || "list_page is 0: a listing would never end".to_owned())
}

/// Starts the provider on a sound cloud.
async fn start(provider: &dyn CloudProvider) -> CaseResult<Facts> {
    provider.start().await.or_else(|error| broken(format!("the start on a sound cloud fails: {error}")))
}

pub(super) async fn start_may_come_again(scene: &Scene) -> CaseResult {
    let first = start(scene.provider()).await?;
    for _ in 0..2 {
        let next = start(scene.provider()).await?;
        require(next == first, || format!("the facts were {first:?}, and are {next:?} at the next start"))?;
    }
    let Some(hands) = scene.bench().balancers() else { return Ok(()) };
    let writes = hands.writes().await.unwrap_or_default();
    require(writes == 0, || format!("three starts made {writes} writing calls"))
}

pub(super) async fn start_tells_why_it_fails(scene: &Scene) -> CaseResult {
    let table = [
        (InducedFault::Unauthenticated, ErrorKind::Unauthenticated),
        (InducedFault::Forbidden, ErrorKind::PermissionDenied),
        (InducedFault::Broken, ErrorKind::Unavailable),
    ];
    for (trouble, kind) in table {
        scene.trouble(trouble).await?;
        // A start that asks the cloud for nothing succeeds all the same.
        if let Err(error) = scene.bench().restarted().await.start().await {
            require(error.kind() == kind, || format!("{trouble:?} is {:?}: {error}", error.kind()))?;
        }
    }
    scene.mend().await;
    start(&*scene.bench().restarted().await).await.map(drop)
}

pub(super) async fn facts_only_lower_capabilities(scene: &Scene) -> CaseResult {
    let facts = start(scene.provider()).await?;
    let beyond = facts.capabilities.and_then(|left| left.beyond(scene.provider().capabilities()));
    require(beyond.is_none(), || format!("not claimed, and yet in the facts: {beyond:?}"))
}

pub(super) async fn check_asks_the_cloud(scene: &Scene) -> CaseResult {
    if let Err(error) = scene.provider().check().await {
        return broken(format!("the check of a sound cloud fails: {error}"));
    }
    for (trouble, kind) in [
        (InducedFault::Unauthenticated, ErrorKind::Unauthenticated),
        (InducedFault::Forbidden, ErrorKind::PermissionDenied),
    ] {
        scene.trouble(trouble).await?;
        match scene.provider().check().await {
            Ok(()) => return broken(format!("the check passes in spite of {trouble:?}")),
            Err(error) => require(error.kind() == kind, || format!("{trouble:?} is {:?}: {error}", error.kind()))?,
        }
    }
    Ok(())
}

pub(super) async fn prefix_is_owned(scene: &Scene) -> CaseResult {
    let instance = scene.add("node-1").await;
    let found = scene.instance(&of(&instance)).await?;
    let Some(id) = &found.provider_id else { return broken("a machine without provider ID") };
    let prefixes = &scene.provider().info().id_prefixes;
    require(scene.provider().owns(id), || {
        format!("it hands out {id:?} and does not own it; its prefixes are {prefixes:?}")
    })
}
