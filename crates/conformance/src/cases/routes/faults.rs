//! Rules about crashes of the manager and faults of the cloud.

use bowline_cloud::{ErrorKind, Result as Answer, Retry};
use bowline_core::{Instance, Route, RouteSpec};

use crate::bench::InducedFault;
use crate::cases::faults::visible_faults;
use crate::context::{CaseContext, CaseResult, fail, require};
use crate::load_balancer_fixture::was_induced;
use crate::route_fixture::{RouteFixture, expect_error};

/// Maximum number of calls of a creation or deletion.
const MAX_CALLS: u64 = 100;

pub(in crate::cases) async fn route_writes_survive_every_crash(context: &CaseContext) -> CaseResult {
    let mut fixture = RouteFixture::new(context)?;
    let machines = fixture.add_machines(fixture.capacity(fixture.capabilities()?.batch.clamp(1, 3))?).await;
    let specs = (1..).zip(&machines).map(|(number, machine)| fixture.spec(number, machine));
    let specs = specs.collect::<CaseResult<Vec<_>>>()?;
    let is_complete = create_all(&fixture, &specs, &machines).await?;
    let marked = is_complete.iter().all(|route| route.stamped);
    delete_all(&fixture, &is_complete).await?;
    for calls in 1..MAX_CALLS {
        let created = verify_repeated_creation(&mut fixture, context, (&specs, &machines), calls).await?;
        let dropped = verify_abandoned_creation(&mut fixture, context, (&specs, marked), calls).await?;
        let gone = verify_repeated_deletion(&mut fixture, context, (&specs, &machines), calls).await?;
        if created && dropped && gone {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

async fn create_all(fixture: &RouteFixture<'_>, specs: &[RouteSpec], machines: &[Instance]) -> CaseResult<Vec<Route>> {
    let mut routes = Vec::with_capacity(specs.len());
    for (spec, machine) in specs.iter().zip(machines) {
        routes.push(fixture.create_and_verify(spec, machine).await?);
    }
    Ok(routes)
}

async fn delete_all(fixture: &RouteFixture<'_>, routes: &[Route]) -> CaseResult {
    for route in routes {
        fixture.delete_and_verify(route).await?;
    }
    Ok(())
}

/// Crashes during the creation and creates the routes again: each exists once. Returns whether the creation was complete before.
async fn verify_repeated_creation(
    fixture: &mut RouteFixture<'_>,
    context: &CaseContext,
    (specs, machines): (&[RouteSpec], &[Instance]),
    calls: u64,
) -> CaseResult<bool> {
    let is_complete = crash_and_restart(fixture, context, calls, Write::Create(specs)).await?;
    let routes = create_all(fixture, specs, machines).await?;
    let table = fixture.table().await;
    require(table.len() == specs.len(), || format!("a crash after {calls} calls left duplicates: {table:?}"))?;
    delete_all(fixture, &routes).await?;
    Ok(is_complete)
}

/// Crashes during the creation and deletes all listed routes, as if the Nodes were gone: the routes are listed with their marks, and
/// none is left.
async fn verify_abandoned_creation(
    fixture: &mut RouteFixture<'_>,
    context: &CaseContext,
    (specs, marked): (&[RouteSpec], bool),
    calls: u64,
) -> CaseResult<bool> {
    let is_complete = crash_and_restart(fixture, context, calls, Write::Create(specs)).await?;
    for route in fixture.list().await? {
        require(route.stamped == marked, || {
            format!("a crash after {calls} calls left a route without a mark: {route:?}")
        })?;
        fixture.delete_and_verify(&route).await?;
    }
    let left = fixture.table().await;
    require(left.is_empty(), || format!("a crash after {calls} calls left routes that are not listed: {left:?}"))?;
    Ok(is_complete)
}

async fn verify_repeated_deletion(
    fixture: &mut RouteFixture<'_>,
    context: &CaseContext,
    (specs, machines): (&[RouteSpec], &[Instance]),
    calls: u64,
) -> CaseResult<bool> {
    let routes = create_all(fixture, specs, machines).await?;
    let is_complete = crash_and_restart(fixture, context, calls, Write::Delete(&routes)).await?;
    delete_all(fixture, &routes).await?;
    let left = fixture.table().await;
    require(left.is_empty(), || format!("a crash after {calls} calls left {left:?}"))?;
    Ok(is_complete)
}

/// Write during which the manager crashes.
enum Write<'a> {
    Create(&'a [RouteSpec]),
    Delete(&'a [Route]),
}

/// Writes, crashes the manager after this number of calls and restarts it. Returns whether the write was complete before.
async fn crash_and_restart(
    fixture: &mut RouteFixture<'_>,
    context: &CaseContext,
    calls: u64,
    write: Write<'_>,
) -> CaseResult<bool> {
    let crashed = was_induced(context.bench().crash_after(Some(calls)).await, "crash after a number of calls")?;
    let succeeded = match write {
        Write::Create(specs) => fixture.try_create_all(specs).await?.iter().all(Answer::is_ok),
        Write::Delete(routes) => fixture.try_delete_all(routes).await?.iter().all(Answer::is_ok),
    };
    context.bench().crash_after(None).await;
    fixture.restart().await;
    Ok(succeeded || !crashed)
}

pub(in crate::cases) async fn route_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let machine = fixture.add_machine("node-1").await;
    let route = fixture.create_and_verify(&fixture.spec(1, &machine)?, &machine).await?;
    let (before, new) = (fixture.table().await, fixture.spec(2, &machine)?);
    for (fault, kind) in visible_faults(context) {
        context.inject(fault).await?;
        verify_error("list", fault, kind, fixture.provider()?.list(&fixture.cluster).await)?;
        verify_error("create", fault, kind, fixture.try_create(&new).await?)?;
        for deleted in fixture.try_delete_all(std::slice::from_ref(&route)).await? {
            verify_error("delete", fault, kind, deleted)?;
        }
        context.clear_faults().await;
        // After a garbled response the outcome of the write is unknown.
        if fault != InducedFault::Garbled {
            fixture.verify_unchanged(&before).await?;
        }
    }
    for route in fixture.list().await? {
        fixture.delete_and_verify(&route).await?;
    }
    fixture.verify_unchanged(&[]).await
}

/// Verifies the kind of the error, and its delay if the cloud asked for one.
fn verify_error<T>(call: &str, fault: InducedFault, kind: ErrorKind, answer: Answer<T>) -> CaseResult {
    let advice = expect_error(&format!("{call} with {fault:?}"), answer, kind)?.retry_advice();
    let InducedFault::Throttled(delay) = fault else { return Ok(()) };
    require(advice == Retry::After(delay), || {
        format!("{call}: the cloud asked for a delay of {delay:?}, the retry advice is {advice:?}")
    })
}
