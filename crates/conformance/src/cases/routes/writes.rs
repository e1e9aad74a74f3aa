//! Rules about creating and deleting routes.

use bowline_cloud::ErrorKind;
use bowline_core::{Instance, IpFamily, Route, RouteSpec};
use futures::future::join_all;
use ipnet::IpNet;

use crate::context::{CaseContext, CaseFailure, CaseResult, expect_ok, fail, require};
use crate::route_fixture::{RouteFixture, expect_error, pod_cidr, route_to};

/// Limits of a case: parallel calls, and routes that fill a table. More would only take time.
const MAX_PARALLEL: usize = 64;
const MAX_ROUTES: usize = 1_000;
const ROUTES_AT_ONCE: usize = 8;

pub(in crate::cases) async fn create_is_idempotent(context: &CaseContext) -> CaseResult {
    let mut fixture = RouteFixture::new(context)?;
    let machine = fixture.add_machine("node-1").await;
    let spec = fixture.spec(1, &machine)?;
    let route = fixture.create_and_verify(&spec, &machine).await?;
    let before = fixture.table().await;
    // A recreated Node has another UID and the same machine.
    let recreated = RouteSpec { name_hint: "99999999-0000-4000-8000-000000000000".to_owned(), ..spec.clone() };
    for spec in [&spec, &recreated] {
        verify_not_created_again(&fixture, spec, &route).await?;
        fixture.restart().await;
        verify_not_created_again(&fixture, spec, &route).await?;
    }
    fixture.verify_unchanged(&before).await
}

async fn verify_not_created_again(fixture: &RouteFixture<'_>, spec: &RouteSpec, route: &Route) -> CaseResult {
    let again = fixture.create(spec).await?;
    require(again.id == route.id, || format!("{route:?} exists, but was created again as {again:?}"))
}

pub(in crate::cases) async fn taken_destination_is_reported(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let [a, b] = [fixture.add_machine("node-1").await, fixture.add_machine("node-2").await];
    let (first, second) = (fixture.spec(1, &a)?, fixture.spec(1, &b)?);
    fixture.create_and_verify(&first, &a).await?;
    verify_taken_destination(&fixture, &second, &b).await?;
    fixture.verify_in_table(&first, &a).await?;
    let foreign = fixture.put_foreign(fixture.pod_cidr(2)?, &a).await?;
    verify_taken_destination(&fixture, &fixture.spec(2, &b)?, &b).await?;
    let table = fixture.table().await;
    require(table.contains(&foreign), || format!("a user's route was changed: {foreign:?} is not in {table:?}"))
}

/// Creates a route whose destination another machine has: both exist, or the second fails with `AlreadyExists` and changes nothing.
async fn verify_taken_destination(fixture: &RouteFixture<'_>, spec: &RouteSpec, machine: &Instance) -> CaseResult {
    let before = fixture.table().await;
    match fixture.try_create(spec).await? {
        Ok(route) => {
            fixture.verify_in_table(spec, machine).await?;
            let mut now = fixture.table().await;
            now.retain(|one| one.id != route.id);
            require(now == before, || format!("the existing routes changed from {before:?} to {now:?}"))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fixture.verify_unchanged(&before).await,
        Err(error) => {
            fail(format!("the destination is taken: expected `AlreadyExists`, got {:?}: {error}", error.kind()))
        }
    }
}

pub(in crate::cases) async fn delete_is_idempotent(context: &CaseContext) -> CaseResult {
    let mut fixture = RouteFixture::new(context)?;
    let machine = fixture.add_machine("node-1").await;
    let spec = fixture.spec(1, &machine)?;
    let route = fixture.create_and_verify(&spec, &machine).await?;
    fixture.delete_and_verify(&route).await?;
    let listed = fixture.list().await?;
    require(listed.is_empty(), || format!("the route was deleted, but is still listed: {listed:?}"))?;
    fixture.delete_and_verify(&route).await?;
    fixture.restart().await;
    fixture.delete_and_verify(&route).await?;
    let again = fixture.create_and_verify(&spec, &machine).await?;
    fixture.delete_and_verify(&again).await?;
    fixture.verify_unchanged(&[]).await
}

pub(in crate::cases) async fn delete_is_exact(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let [a, b] = [fixture.add_machine("node-1").await, fixture.add_machine("node-2").await];
    verify_neighbours_stay(&fixture, &a).await?;
    let old = fixture.create_and_verify(&fixture.spec(2, &a)?, &a).await?;
    fixture.delete_and_verify(&old).await?;
    let newer = fixture.spec(2, &b)?;
    let new = fixture.create_and_verify(&newer, &b).await?;
    let before = fixture.table().await;
    fixture.delete(&old).await?;
    fixture.verify_unchanged(&before).await?;
    fixture.delete_and_verify(&new).await?;
    fixture.put_foreign(newer.destination, &b).await?;
    let before = fixture.table().await;
    for stale in [&old, &new] {
        if before.iter().all(|one| one.id != stale.id) {
            fixture.delete(stale).await?;
        }
    }
    fixture.verify_unchanged(&before).await
}

/// Deletes a route, and verifies that the one with the same first address and a longer prefix stays.
async fn verify_neighbours_stay(fixture: &RouteFixture<'_>, machine: &Instance) -> CaseResult {
    let wide = fixture.pod_cidr(1)?;
    let Ok(narrow) = IpNet::new(wide.addr(), wide.prefix_len() + 1) else {
        return fail("the pod CIDR cannot be split");
    };
    let stays = route_to(narrow, machine);
    let route = fixture.create_and_verify(&route_to(wide, machine), machine).await?;
    let stay = fixture.create_and_verify(&stays, machine).await?;
    fixture.delete_and_verify(&route).await?;
    fixture.verify_in_table(&stays, machine).await?;
    fixture.delete_and_verify(&stay).await
}

pub(in crate::cases) async fn ipv4_routes_are_created(context: &CaseContext) -> CaseResult {
    verify_family(context, IpFamily::IPv4).await
}

pub(in crate::cases) async fn ipv6_routes_are_created(context: &CaseContext) -> CaseResult {
    verify_family(context, IpFamily::IPv6).await
}

async fn verify_family(context: &CaseContext, family: IpFamily) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let machine = fixture.add_machine("node-1").await;
    let route = fixture.create_and_verify(&route_to(pod_cidr(family, 1), &machine), &machine).await?;
    fixture.delete_and_verify(&route).await
}

pub(in crate::cases) async fn parallel_writes_all_take_effect(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let machines = fixture.add_machines(3).await;
    let count = fixture.capacity(fixture.capabilities()?.max_parallel.min(MAX_PARALLEL))?;
    let specs = (1..).zip(machines.iter().cycle()).take(count).map(|(number, machine)| fixture.spec(number, machine));
    let specs = specs.collect::<CaseResult<Vec<_>>>()?;
    let layers = fixture.layers().await;
    let created = join_all(specs.iter().map(|spec| layers.create_route(&fixture.cluster, spec))).await;
    let created = created.into_iter().map(expect_ok).collect::<CaseResult<Vec<_>>>()?;
    for (spec, machine) in specs.iter().zip(machines.iter().cycle()) {
        fixture.verify_in_table(spec, machine).await?;
    }
    let gone = join_all(created.iter().map(|route| layers.delete_route(&fixture.cluster, route))).await;
    gone.into_iter().try_for_each(expect_ok)?;
    fixture.verify_unchanged(&[]).await
}

/// Writes for two clusters at the same time through the layers of one provider: with a common lock, no write is lost.
pub(in crate::cases) async fn locked_route_writes_do_not_overlap(context: &CaseContext) -> CaseResult {
    let mut fixture = RouteFixture::new(context)?;
    let lock = fixture.provider()?.lock(&fixture.cluster);
    if lock.is_none() {
        return Err(CaseFailure::NotApplicable("route writes need no lock"));
    }
    let again = fixture.provider()?.lock(&fixture.cluster);
    fixture.restart().await;
    for again in [again, fixture.provider()?.lock(&fixture.cluster)] {
        require(again == lock, || format!("the lock changed from {lock:?} to {again:?}"))?;
    }
    let (machines, other, layers) = (fixture.add_machines(2).await, fixture.other_cluster(), fixture.layers().await);
    let specs = (1..).zip(machines.iter().cycle()).take(fixture.capacity(ROUTES_AT_ONCE)?);
    let specs = specs.map(|(number, machine)| fixture.spec(number, machine)).collect::<CaseResult<Vec<_>>>()?;
    let clusters = [&fixture, &other].map(|route_fixture| &route_fixture.cluster);
    let writes = || (0..).zip(&specs).map(|(number, spec)| (clusters[number % 2], spec));
    let created = join_all(writes().map(|(cluster, spec)| layers.create_route(cluster, spec))).await;
    let created = created.into_iter().map(expect_ok).collect::<CaseResult<Vec<_>>>()?;
    for ((cluster, spec), machine) in writes().zip(machines.iter().cycle()) {
        let route_fixture = if *cluster == fixture.cluster { &fixture } else { &other };
        route_fixture.verify_in_table(spec, machine).await?;
    }
    let gone = join_all(writes().zip(&created).map(|((cluster, _), route)| layers.delete_route(cluster, route))).await;
    gone.into_iter().try_for_each(expect_ok)?;
    fixture.verify_unchanged(&[]).await?;
    other.verify_unchanged(&[]).await
}

pub(in crate::cases) async fn route_limit_is_reported(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let machine = fixture.add_machine("node-1").await;
    let limit = fixture.capabilities()?.max_routes.unwrap_or_default();
    if limit > MAX_ROUTES {
        return Err(CaseFailure::BenchCannot(format!("limit the table to fewer than {limit} routes")));
    }
    let mut created = Vec::new();
    for number in (0..).take(limit) {
        created.push(fixture.create(&fixture.spec(number, &machine)?).await?);
    }
    let (full, over) = (fixture.table().await, fixture.spec(u16::MAX >> 4, &machine)?);
    expect_error("creating one route too many", fixture.try_create(&over).await?, ErrorKind::QuotaExceeded)?;
    fixture.verify_unchanged(&full).await?;
    // Creating an existing route needs no capacity, and deleting one frees it.
    let Some(first) = created.first() else { return fail("max_routes is 0, so no route could be created") };
    let again = fixture.create(&fixture.spec(0, &machine)?).await?;
    require(again.id == first.id, || format!("in a full table, {first:?} was created again as {again:?}"))?;
    fixture.delete(first).await?;
    fixture.create_and_verify(&over, &machine).await.map(drop)
}
