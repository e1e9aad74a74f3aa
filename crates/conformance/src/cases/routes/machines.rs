//! Rules about target machines.

use bowline_core::{Instance, ProviderId, Route, RouteSpec};

use crate::context::{CaseContext, CaseResult, fail, require};
use crate::route_fixture::{RouteFixture, verify_node};

pub(in crate::cases) async fn route_uses_id_before_name(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let [a, b] = [fixture.add_machine("node-1").await, fixture.add_machine("node-2").await];
    // The Node has the name of one machine and the ID of another.
    let spec = RouteSpec { node: a.name.as_str().into(), ..fixture.spec(1, &b)? };
    let route = fixture.create_and_verify(&spec, &b).await?;
    verify_node(&spec, &route)?;
    fixture.delete_and_verify(&route).await?;
    if !fixture.looks_up_names() {
        return Ok(());
    }
    let spec = RouteSpec { provider_id: None, ..fixture.spec(2, &b)? };
    let route = fixture.create_and_verify(&spec, &b).await?;
    verify_node(&spec, &route)?;
    fixture.delete_and_verify(&route).await
}

pub(in crate::cases) async fn route_of_a_deleted_machine_is_reported(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let other = fixture.add_machine("other").await;
    // A controller that has not listed since deletes the route that `create` returned.
    for (number, name) in [(1, "as-listed"), (2, "as-created")] {
        let machine = fixture.add_machine(name).await;
        let created = fixture.create_and_verify(&fixture.spec(number, &machine)?, &machine).await?;
        context.bench().delete(&machine).await;
        let listed = verify_has_no_target(&fixture, &created).await?;
        let known = if name == "as-listed" { listed.unwrap_or(created) } else { created };
        fixture.delete_and_verify(&known).await?;
        fixture.create_and_verify(&fixture.spec(number, &other)?, &other).await?;
    }
    Ok(())
}

/// Verifies that the route is listed without a target, if it is listed. Returns the listed route.
async fn verify_has_no_target(fixture: &RouteFixture<'_>, created: &Route) -> CaseResult<Option<Route>> {
    let mut listed = fixture.list().await?;
    listed.retain(|one| one.destination == created.destination);
    let listed = listed.pop();
    let has_no_target = listed.as_ref().is_none_or(|one| one.blackhole || one.node.is_none());
    require(has_no_target, || format!("the machine is gone, but the route is listed as {listed:?}"))?;
    Ok(listed)
}

pub(in crate::cases) async fn route_to_a_missing_machine_is_an_error(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let gone = fixture.add_machine("node-1").await;
    context.bench().delete(&gone).await;
    verify_rejected(&fixture, &fixture.spec(1, &gone)?).await?;
    // A new machine with that name is another machine.
    let twin = fixture.add_machine("node-1").await;
    if twin.provider_id != gone.provider_id {
        verify_rejected(&fixture, &fixture.spec(1, &gone)?).await?;
    }
    verify_rejected(&fixture, &foreign(&fixture, &twin)?).await?;
    fixture.create_and_verify(&fixture.spec(1, &twin)?, &twin).await.map(drop)
}

/// Route that the Node of another cloud would request.
fn foreign(fixture: &RouteFixture<'_>, machine: &Instance) -> CaseResult<RouteSpec> {
    let provider_id = Some(ProviderId::of("foreign-cloud", &machine.id));
    Ok(RouteSpec { provider_id, ..fixture.spec(1, machine)? })
}

async fn verify_rejected(fixture: &RouteFixture<'_>, spec: &RouteSpec) -> CaseResult {
    let before = fixture.table().await;
    match fixture.try_create(spec).await? {
        Ok(route) => fail(format!("the machine does not exist, but a route was created: {route:?}")),
        Err(_) => fixture.verify_unchanged(&before).await,
    }
}
