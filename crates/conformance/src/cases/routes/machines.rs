//! Rules about the machines that routes lead to.

use bowline_core::{Instance, ProviderId, Route, RouteSpec};

use crate::routing::{Routing, leads_to_its_node};
use crate::scene::{CaseResult, Scene, broken, require};

pub(in crate::cases) async fn id_leads_before_name(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let [a, b] = [work.machine("node-1").await, work.machine("node-2").await];
    // The Node has the name of one machine, and the ID of another.
    let spec = RouteSpec { node: a.name.as_str().into(), ..work.spec(1, &b)? };
    let route = work.lead(&spec, &b).await?;
    leads_to_its_node(&spec, &route)?;
    work.remove(&route).await?;
    if !work.finds_names() {
        return Ok(());
    }
    let spec = RouteSpec { provider_id: None, ..work.spec(2, &b)? };
    let route = work.lead(&spec, &b).await?;
    leads_to_its_node(&spec, &route)?;
    work.remove(&route).await
}

pub(in crate::cases) async fn route_of_a_lost_machine_is_told(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let heir = work.machine("heir").await;
    // A controller that has not listed since deletes what it was told at creation.
    for (number, name) in [(1, "as-listed"), (2, "as-created")] {
        let machine = work.machine(name).await;
        let made = work.lead(&work.spec(number, &machine)?, &machine).await?;
        scene.bench().delete(&machine).await;
        let listed = leads_nowhere(&work, &made).await?;
        let known = if name == "as-listed" { listed.unwrap_or(made) } else { made };
        work.remove(&known).await?;
        work.lead(&work.spec(number, &heir)?, &heir).await?;
    }
    Ok(())
}

/// The route as it is listed now, if it is.
async fn leads_nowhere(work: &Routing<'_>, made: &Route) -> CaseResult<Option<Route>> {
    let mut listed = work.list().await?;
    listed.retain(|one| one.destination == made.destination);
    let listed = listed.pop();
    let told = listed.as_ref().is_none_or(|one| one.blackhole || one.node.is_none());
    require(told, || format!("its machine is gone, and it is listed as {listed:?}"))?;
    Ok(listed)
}

pub(in crate::cases) async fn route_to_a_missing_machine_is_an_error(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let gone = work.machine("node-1").await;
    scene.bench().delete(&gone).await;
    leads_nobody(&work, &work.spec(1, &gone)?).await?;
    // Another machine of that name is another machine.
    let twin = work.machine("node-1").await;
    if twin.provider_id != gone.provider_id {
        leads_nobody(&work, &work.spec(1, &gone)?).await?;
    }
    leads_nobody(&work, &foreign(&work, &twin)?).await?;
    work.lead(&work.spec(1, &twin)?, &twin).await.map(drop)
}

/// What the Node of another cloud would ask for.
fn foreign(work: &Routing<'_>, machine: &Instance) -> CaseResult<RouteSpec> {
    let provider_id = Some(ProviderId::of("somebody-elses-cloud", &machine.id));
    Ok(RouteSpec { provider_id, ..work.spec(1, machine)? })
}

async fn leads_nobody(work: &Routing<'_>, spec: &RouteSpec) -> CaseResult {
    let before = work.table().await;
    match work.attempt(spec).await? {
        Ok(route) => broken(format!("there is no such machine, and it made {route:?}")),
        Err(_) => work.nothing_changed_since(&before).await,
    }
}
