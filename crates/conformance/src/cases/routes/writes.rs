//! Rules about making and removing routes.

use bowline_cloud::ErrorKind;
use bowline_core::{Instance, IpFamily, Route, RouteSpec};
use futures::future::join_all;
use ipnet::IpNet;

use crate::routing::{Routing, fails, leading, range, sound};
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// More calls at once, or more routes to fill a table with, would only take time.
const MANY: usize = 64;
const LARGEST: usize = 1_000;
const ROUTES_AT_ONCE: usize = 8;

pub(in crate::cases) async fn create_is_idempotent(scene: &Scene) -> CaseResult {
    let mut work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let spec = work.spec(1, &machine)?;
    let route = work.lead(&spec, &machine).await?;
    let before = work.table().await;
    // A Node that was deleted and came back has another UID, and the same machine.
    let reborn = RouteSpec { name_hint: "99999999-0000-4000-8000-000000000000".to_owned(), ..spec.clone() };
    for spec in [&spec, &reborn] {
        is_made_once(&work, spec, &route).await?;
        work.restart().await;
        is_made_once(&work, spec, &route).await?;
    }
    work.nothing_changed_since(&before).await
}

async fn is_made_once(work: &Routing<'_>, spec: &RouteSpec, route: &Route) -> CaseResult {
    let again = work.create(spec).await?;
    require(again.id == route.id, || format!("what is there already, {route:?}, was made again as {again:?}"))
}

pub(in crate::cases) async fn taken_destination_is_told(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let [a, b] = [work.machine("node-1").await, work.machine("node-2").await];
    let (first, second) = (work.spec(1, &a)?, work.spec(1, &b)?);
    work.lead(&first, &a).await?;
    told_or_beside(&work, &second, &b).await?;
    work.is_there(&first, &a).await?;
    let handmade = work.put_foreign(work.range(2)?, &a).await?;
    told_or_beside(&work, &work.spec(2, &b)?, &b).await?;
    let table = work.table().await;
    require(table.contains(&handmade), || format!("what is not ours was touched: {handmade:?} in {table:?}"))
}

/// The range leads to another machine already: either it may lead to both, or that is told and nothing is changed.
async fn told_or_beside(work: &Routing<'_>, spec: &RouteSpec, machine: &Instance) -> CaseResult {
    let before = work.table().await;
    match work.attempt(spec).await? {
        Ok(route) => {
            work.is_there(spec, machine).await?;
            let mut now = work.table().await;
            now.retain(|one| one.id != route.id);
            require(now == before, || format!("{before:?} was to stay, and became {now:?}"))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => work.nothing_changed_since(&before).await,
        Err(error) => broken(format!("that the range is taken is {:?}: {error}", error.kind())),
    }
}

pub(in crate::cases) async fn delete_is_idempotent(scene: &Scene) -> CaseResult {
    let mut work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let spec = work.spec(1, &machine)?;
    let route = work.lead(&spec, &machine).await?;
    work.remove(&route).await?;
    let listed = work.list().await?;
    require(listed.is_empty(), || format!("it is deleted, and still listed: {listed:?}"))?;
    work.remove(&route).await?;
    work.restart().await;
    work.remove(&route).await?;
    let again = work.lead(&spec, &machine).await?;
    work.remove(&again).await?;
    work.nothing_changed_since(&[]).await
}

pub(in crate::cases) async fn delete_is_exact(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let [a, b] = [work.machine("node-1").await, work.machine("node-2").await];
    neighbours_stay(&work, &a).await?;
    let old = work.lead(&work.spec(2, &a)?, &a).await?;
    work.remove(&old).await?;
    let newer = work.spec(2, &b)?;
    let new = work.lead(&newer, &b).await?;
    let before = work.table().await;
    work.delete(&old).await?;
    work.nothing_changed_since(&before).await?;
    work.remove(&new).await?;
    work.put_foreign(newer.destination, &b).await?;
    let before = work.table().await;
    for stale in [&old, &new] {
        if before.iter().all(|one| one.id != stale.id) {
            work.delete(stale).await?;
        }
    }
    work.nothing_changed_since(&before).await
}

/// A range with the same first address is another one.
async fn neighbours_stay(work: &Routing<'_>, machine: &Instance) -> CaseResult {
    let wide = work.range(1)?;
    let Ok(narrow) = IpNet::new(wide.addr(), wide.prefix_len() + 1) else { return broken("a range cannot be halved") };
    let stays = leading(narrow, machine);
    let route = work.lead(&leading(wide, machine), machine).await?;
    let stay = work.lead(&stays, machine).await?;
    work.remove(&route).await?;
    work.is_there(&stays, machine).await?;
    work.remove(&stay).await
}

pub(in crate::cases) async fn ipv4_ranges_are_led(scene: &Scene) -> CaseResult {
    is_led(scene, IpFamily::IPv4).await
}

pub(in crate::cases) async fn ipv6_ranges_are_led(scene: &Scene) -> CaseResult {
    is_led(scene, IpFamily::IPv6).await
}

async fn is_led(scene: &Scene, family: IpFamily) -> CaseResult {
    let work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let route = work.lead(&leading(range(family, 1), &machine), &machine).await?;
    work.remove(&route).await
}

pub(in crate::cases) async fn parallel_writes_all_count(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let machines = work.machines(3).await;
    let count = work.room(work.caps()?.max_parallel.min(MANY))?;
    let specs = (1..).zip(machines.iter().cycle()).take(count).map(|(number, machine)| work.spec(number, machine));
    let specs = specs.collect::<CaseResult<Vec<_>>>()?;
    let layers = work.layers().await;
    let made = join_all(specs.iter().map(|spec| layers.create_route(&work.cluster, spec))).await;
    let made = made.into_iter().map(sound).collect::<CaseResult<Vec<_>>>()?;
    for (spec, machine) in specs.iter().zip(machines.iter().cycle()) {
        work.is_there(spec, machine).await?;
    }
    let gone = join_all(made.iter().map(|route| layers.delete_route(&work.cluster, route))).await;
    gone.into_iter().try_for_each(sound)?;
    work.nothing_changed_since(&[]).await
}

/// Two clusters write at the same time through the layers of one provider: if their writes have one lock, none is lost.
pub(in crate::cases) async fn locked_route_writes_do_not_overlap(scene: &Scene) -> CaseResult {
    let mut work = Routing::of(scene)?;
    let lock = work.provider()?.lock(&work.cluster);
    if lock.is_none() {
        return Err(CaseFailure::NotApplicable("writes of routes need no lock"));
    }
    let again = work.provider()?.lock(&work.cluster);
    work.restart().await;
    for again in [again, work.provider()?.lock(&work.cluster)] {
        require(again == lock, || format!("the lock was {lock:?}, and is {again:?}"))?;
    }
    let (machines, other, layers) = (work.machines(2).await, work.elsewhere(), work.layers().await);
    let specs = (1..).zip(machines.iter().cycle()).take(work.room(ROUTES_AT_ONCE)?);
    let specs = specs.map(|(number, machine)| work.spec(number, machine)).collect::<CaseResult<Vec<_>>>()?;
    let clusters = [&work, &other].map(|routing| &routing.cluster);
    let writes = || (0..).zip(&specs).map(|(number, spec)| (clusters[number % 2], spec));
    let made = join_all(writes().map(|(cluster, spec)| layers.create_route(cluster, spec))).await;
    let made = made.into_iter().map(sound).collect::<CaseResult<Vec<_>>>()?;
    for ((cluster, spec), machine) in writes().zip(machines.iter().cycle()) {
        let routing = if *cluster == work.cluster { &work } else { &other };
        routing.is_there(spec, machine).await?;
    }
    let gone = join_all(writes().zip(&made).map(|((cluster, _), route)| layers.delete_route(cluster, route))).await;
    gone.into_iter().try_for_each(sound)?;
    work.nothing_changed_since(&[]).await?;
    other.nothing_changed_since(&[]).await
}

pub(in crate::cases) async fn route_limit_is_told(scene: &Scene) -> CaseResult {
    let work = Routing::of(scene)?;
    let machine = work.machine("node-1").await;
    let most = work.caps()?.max_routes.unwrap_or_default();
    if most > LARGEST {
        return Err(CaseFailure::BenchCannot(format!("have a table that is filled by fewer than {most} routes")));
    }
    let mut made = Vec::new();
    for number in (0..).take(most) {
        made.push(work.create(&work.spec(number, &machine)?).await?);
    }
    let (full, over) = (work.table().await, work.spec(u16::MAX >> 4, &machine)?);
    fails("one route too many", work.attempt(&over).await?, ErrorKind::QuotaExceeded)?;
    work.nothing_changed_since(&full).await?;
    // What is there takes no more room when it comes again, and what goes makes room.
    let Some(first) = made.first() else { return broken("max_routes is 0: no range could be led anywhere") };
    let again = work.create(&work.spec(0, &machine)?).await?;
    require(again.id == first.id, || format!("in a full table, {first:?} was made again as {again:?}"))?;
    work.delete(first).await?;
    work.lead(&over, &machine).await.map(drop)
}
