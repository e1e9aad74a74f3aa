//! Rules about listing and ownership.

use std::collections::BTreeSet;

use bowline_cloud::ErrorKind;
use bowline_core::{Instance, Route, RouteSpec};

use crate::context::{CaseContext, CaseResult, fail, require};
use crate::route_fixture::RouteFixture;

/// Number of routes that takes more than one page in most clouds.
const MANY_ROUTES: usize = 200;

/// UID of another cluster.
const ANOTHER_UID: &str = "0b9e1f5c-0000-4000-8000-00000000000b";

pub(in crate::cases) async fn list_returns_only_our_routes(context: &CaseContext) -> CaseResult {
    let ours = RouteFixture::new(context)?;
    let theirs = ours.other_cluster();
    let [a, b] = [ours.add_machine("node-1").await, ours.add_machine("node-2").await];
    let here = ours.create_and_verify(&ours.spec(1, &a)?, &a).await?;
    let there = theirs.create_and_verify(&theirs.spec(2, &b)?, &b).await?;
    for (own, other) in [((&ours, &here), (&theirs, &there)), ((&theirs, &there), (&ours, &here))] {
        verify_own_routes(own, other).await?;
    }
    verify_same_destination(&ours, &theirs, (&here, &b)).await?;
    verify_unmarked_route(&ours, &b).await?;
    let (mut left, others) = (ours.table().await, theirs.list().await?);
    left.retain(|one| one.id != here.id);
    ours.delete_and_verify(&here).await?;
    ours.verify_unchanged(&left).await?;
    let (mut before, after) = (ids(&others), ids(&theirs.list().await?));
    before.remove(&here.id);
    require(after == before, || format!("the routes of the other cluster changed from {before:?} to {after:?}"))
}

/// Verifies that the listing leaves out the other cluster's route if routes have marks, and has the whole table otherwise.
async fn verify_own_routes(
    (own, route): (&RouteFixture<'_>, &Route),
    (other, foreign): (&RouteFixture<'_>, &Route),
) -> CaseResult {
    let listed = own.list().await?;
    require(ids(&listed).contains(&route.id), || format!("{route:?} is not listed: {listed:?}"))?;
    if route.stamped {
        let strange = listed.iter().find(|one| one.destination == foreign.destination);
        return require(strange.is_none(), || {
            format!("{:?} lists a route of {:?}: {strange:?}", own.cluster, other.cluster)
        });
    }
    let (listed, there) = (ids(&listed), own.table().await.into_iter().map(|one| one.id).collect());
    require(listed == there, || format!("without marks the whole table is listed: expected {there:?}, got {listed:?}"))
}

fn ids(routes: &[Route]) -> BTreeSet<String> {
    routes.iter().map(|route| route.id.clone()).collect()
}

/// Creates a route with the same destination in both clusters: both exist, or the second fails with `AlreadyExists`.
async fn verify_same_destination(
    ours: &RouteFixture<'_>,
    theirs: &RouteFixture<'_>,
    (here, machine): (&Route, &Instance),
) -> CaseResult {
    let (before, spec) = (ours.table().await, theirs.spec(1, machine)?);
    match theirs.try_create(&spec).await? {
        Ok(_) => drop(theirs.verify_in_table(&spec, machine).await?),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => ours.verify_unchanged(&before).await?,
        Err(error) => {
            return fail(format!(
                "the destination is taken: expected `AlreadyExists`, got {:?}: {error}",
                error.kind()
            ));
        }
    }
    let listed = ours.list().await?;
    require(ids(&listed).contains(&here.id), || format!("{here:?} is no longer listed: {listed:?}"))?;
    let same = listed.iter().filter(|one| one.destination == here.destination && one.stamped).count();
    require(same <= 1, || format!("a route of another cluster is listed as ours: {listed:?}"))
}

/// Verifies that a user's route is not listed with our mark.
async fn verify_unmarked_route(ours: &RouteFixture<'_>, machine: &Instance) -> CaseResult {
    let foreign = ours.put_foreign(ours.pod_cidr(3)?, machine).await?;
    let listed = ours.list().await?;
    let found = listed.iter().find(|one| one.id == foreign.id);
    require(found.is_none_or(|found| !found.stamped), || format!("a user's route is listed as ours: {found:?}"))
}

pub(in crate::cases) async fn routes_carry_the_cluster_uid(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let [a, b] = [fixture.add_machine("node-1").await, fixture.add_machine("node-2").await];
    let ours = fixture.spec(1, &a)?;
    let created = fixture.create(&ours).await?;
    require(created.cluster_uid == ours.cluster_uid, || {
        format!("expected the cluster UID {:?}, got {created:?}", ours.cluster_uid)
    })?;
    fixture.verify_listed(&created).await?;
    // A cluster of the same name, with the same pod CIDRs.
    let theirs = RouteSpec { cluster_uid: Some(ANOTHER_UID.to_owned()), ..fixture.spec(1, &b)? };
    match fixture.try_create(&theirs).await? {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            return fail(format!(
                "the destination is taken: expected `AlreadyExists`, got {:?}: {error}",
                error.kind()
            ));
        }
        Ok(second) => {
            require(second.cluster_uid == theirs.cluster_uid, || format!("requested {theirs:?}, got {second:?}"))?;
        }
    }
    fixture.verify_listed(&created).await
}

pub(in crate::cases) async fn created_route_is_listed(context: &CaseContext) -> CaseResult {
    let mut fixture = RouteFixture::new(context)?;
    let machines = fixture.add_machines(fixture.capacity(3)?).await;
    let mut created = Vec::new();
    for (number, machine) in (1..).zip(&machines) {
        let spec = fixture.spec(number, machine)?;
        let route = fixture.create(&spec).await?;
        fixture.verify_reported(&spec, machine, &route).await?;
        created.push((spec, machine, route));
    }
    // The routes are reported in the same way after a restart.
    fixture.restart().await;
    for (spec, machine, route) in &created {
        fixture.verify_reported(spec, machine, route).await?;
    }
    let listed = fixture.list().await?;
    require(listed.len() == created.len(), || {
        format!("{} routes were created, but the listing is {listed:?}", created.len())
    })
}

pub(in crate::cases) async fn route_listing_is_complete(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let machines = fixture.add_machines(5).await;
    let mut created = Vec::new();
    for (number, machine) in (0..).zip(machines.iter().cycle()).take(fixture.capacity(MANY_ROUTES)?) {
        created.push(fixture.create(&fixture.spec(number, machine)?).await?);
    }
    verify_listing(&fixture, &created).await?;
    let mut kept = Vec::new();
    for (number, route) in created.into_iter().enumerate() {
        match number % 3 {
            0 => fixture.delete(&route).await?,
            _ => kept.push(route),
        }
    }
    verify_listing(&fixture, &kept).await
}

/// Verifies that the listing has exactly these routes, each once.
async fn verify_listing(fixture: &RouteFixture<'_>, routes: &[Route]) -> CaseResult {
    let listed = fixture.list().await?;
    let (count, there, found) = (listed.len(), ids(routes), ids(&listed));
    let missing: Vec<_> = there.difference(&found).collect();
    require(missing.is_empty(), || format!("{} routes exist, but these are not listed: {missing:?}", there.len()))?;
    require(count == there.len(), || format!("{} routes exist, but {count} are listed", there.len()))
}
