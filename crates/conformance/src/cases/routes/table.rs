//! Rules about what is in the table, and whose it is.

use std::collections::BTreeSet;

use bowline_cloud::ErrorKind;
use bowline_core::{Instance, Route, RouteSpec};

use crate::routing::Routing;
use crate::scene::{CaseResult, Scene, broken, require};

/// As many as a listing of a cloud has on more than one page.
const MANY: usize = 200;

/// UID of another cluster.
const ANOTHER_UID: &str = "0b9e1f5c-0000-4000-8000-00000000000b";

pub(in crate::cases) async fn only_ours(scene: &Scene) -> CaseResult {
    let ours = Routing::of(scene)?;
    let theirs = ours.elsewhere();
    let [a, b] = [ours.machine("node-1").await, ours.machine("node-2").await];
    let here = ours.lead(&ours.spec(1, &a)?, &a).await?;
    let there = theirs.lead(&theirs.spec(2, &b)?, &b).await?;
    for (own, other) in [((&ours, &here), (&theirs, &there)), ((&theirs, &there), (&ours, &here))] {
        sees_its_own(own, other).await?;
    }
    one_range_in_two_clusters(&ours, &theirs, (&here, &b)).await?;
    a_handmade_route_is_nobodys(&ours, &b).await?;
    let (mut left, others) = (ours.table().await, theirs.list().await?);
    left.retain(|one| one.id != here.id);
    ours.remove(&here).await?;
    ours.nothing_changed_since(&left).await?;
    let (mut before, after) = (ids(&others), ids(&theirs.list().await?));
    before.remove(&here.id);
    require(after == before, || format!("the other cluster's {before:?} became {after:?}"))
}

/// With marks, the other cluster's route is not listed; without, all is listed that is in the table.
async fn sees_its_own((own, route): (&Routing<'_>, &Route), (other, foreign): (&Routing<'_>, &Route)) -> CaseResult {
    let listed = own.list().await?;
    require(ids(&listed).contains(&route.id), || format!("{route:?} is not listed: {listed:?}"))?;
    if route.stamped {
        let strange = listed.iter().find(|one| one.destination == foreign.destination);
        return require(strange.is_none(), || {
            format!("{:?} lists a route of {:?}: {strange:?}", own.cluster, other.cluster)
        });
    }
    let (listed, there) = (ids(&listed), own.table().await.into_iter().map(|one| one.id).collect());
    require(listed == there, || format!("without marks all is listed; there are {there:?}, and it lists {listed:?}"))
}

fn ids(routes: &[Route]) -> BTreeSet<String> {
    routes.iter().map(|route| route.id.clone()).collect()
}

/// Two clusters with one pod range: each has its own route, or the second is told that there is one.
async fn one_range_in_two_clusters(
    ours: &Routing<'_>,
    theirs: &Routing<'_>,
    (here, machine): (&Route, &Instance),
) -> CaseResult {
    let (before, spec) = (ours.table().await, theirs.spec(1, machine)?);
    match theirs.attempt(&spec).await? {
        Ok(_) => drop(theirs.is_there(&spec, machine).await?),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => ours.nothing_changed_since(&before).await?,
        Err(error) => return broken(format!("the range of another cluster is {:?}: {error}", error.kind())),
    }
    let listed = ours.list().await?;
    require(ids(&listed).contains(&here.id), || format!("{here:?} is not listed any more: {listed:?}"))?;
    let same = listed.iter().filter(|one| one.destination == here.destination && one.stamped).count();
    require(same <= 1, || format!("a route of another cluster is told as ours: {listed:?}"))
}

/// What somebody has put there by hand may be listed, but does not carry our mark.
async fn a_handmade_route_is_nobodys(ours: &Routing<'_>, machine: &Instance) -> CaseResult {
    let handmade = ours.put_foreign(ours.range(3)?, machine).await?;
    let listed = ours.list().await?;
    let told = listed.iter().find(|one| one.id == handmade.id);
    require(told.is_none_or(|told| !told.stamped), || format!("it bears no mark, and is told as ours: {told:?}"))
}

pub(in crate::cases) async fn routes_carry_the_cluster_uid(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let [a, b] = [work.machine("node-1").await, work.machine("node-2").await];
    let ours = work.spec(1, &a)?;
    let made = work.create(&ours).await?;
    require(made.cluster_uid == ours.cluster_uid, || format!("{:?} became {made:?}", ours.cluster_uid))?;
    work.is_listed(&made).await?;
    // A cluster of the same name, with the same pod CIDRs.
    let theirs = RouteSpec { cluster_uid: Some(ANOTHER_UID.to_owned()), ..work.spec(1, &b)? };
    match work.attempt(&theirs).await? {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return broken(format!("the range of another cluster is {:?}: {error}", error.kind())),
        Ok(second) => {
            require(second.cluster_uid == theirs.cluster_uid, || format!("{theirs:?} became {second:?}"))?;
        }
    }
    work.is_listed(&made).await
}

pub(in crate::cases) async fn created_route_is_listed(scene: &Scene) -> CaseResult {
    let mut work = Routing::of(scene)?;
    let machines = work.machines(work.room(3)?).await;
    let mut made = Vec::new();
    for (number, machine) in (1..).zip(&machines) {
        let spec = work.spec(number, machine)?;
        let route = work.create(&spec).await?;
        work.is_current(&spec, machine, &route).await?;
        made.push((spec, machine, route));
    }
    // The first is told as before when there are others, and to a manager that did not make it.
    work.restart().await;
    for (spec, machine, route) in &made {
        work.is_current(spec, machine, route).await?;
    }
    let listed = work.list().await?;
    require(listed.len() == made.len(), || format!("{} routes were made, and listed are {listed:?}", made.len()))
}

pub(in crate::cases) async fn route_listing_is_complete(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let machines = work.machines(5).await;
    let mut made = Vec::new();
    for (number, machine) in (0..).zip(machines.iter().cycle()).take(work.room(MANY)?) {
        made.push(work.create(&work.spec(number, machine)?).await?);
    }
    lists_exactly(&work, &made).await?;
    let mut kept = Vec::new();
    for (number, route) in made.into_iter().enumerate() {
        match number % 3 {
            0 => work.delete(&route).await?,
            _ => kept.push(route),
        }
    }
    lists_exactly(&work, &kept).await
}

/// Each of these, once, and nothing else.
async fn lists_exactly(work: &Routing<'_>, routes: &[Route]) -> CaseResult {
    let listed = work.list().await?;
    let (count, there, told) = (listed.len(), ids(routes), ids(&listed));
    let missing: Vec<_> = there.difference(&told).collect();
    require(missing.is_empty(), || format!("{} routes are there, and these are not listed: {missing:?}", there.len()))?;
    require(count == there.len(), || format!("{} routes are there, and {count} are listed", there.len()))
}
