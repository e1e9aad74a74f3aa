//! Flaws in routes.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{ClusterName, IpFamily, Route as CloudRoute, RouteSpec};
use bowline_local::NewRoute;

use crate::flaws::broken::Break::{
    Claims, Config, Create, CreateAll, Delete, Error as Fault, Lock, Route, Table, Wanted,
};
use crate::flaws::broken::{Broken, Flaw, fails, flaws, later};

/// Routes of the cluster with its mark and this destination.
async fn same(it: &Broken, cluster: &ClusterName, spec: &RouteSpec) -> Result<Vec<CloudRoute>> {
    let mut routes = it.routes().list_routes(cluster).await?;
    routes.retain(|route| route.stamped && route.destination == spec.destination);
    Ok(routes)
}

async fn real(it: &Broken, cluster: &ClusterName, spec: &RouteSpec) -> Result<CloudRoute> {
    it.routes().create_route(cluster, spec).await
}

/// Replaces an error of this kind by an unexpected one.
fn unexpected_if(error: Error, kind: ErrorKind) -> Error {
    if error.kind() == kind { Error::new(ErrorKind::Unexpected, "flaw", error.to_string()) } else { error }
}

/// Deletes all matching routes.
async fn delete_all(it: &Broken, cluster: &ClusterName, matches: impl Fn(&CloudRoute) -> bool) -> Result<()> {
    for route in it.routes().list_routes(cluster).await?.iter().filter(|route| matches(route)) {
        it.routes().delete_route(cluster, route).await?;
    }
    Ok(())
}

/// Reads the tables of all clusters, creates a route, and writes the tables back: a route that was created meanwhile is lost.
async fn whole(it: &Broken, cluster: &ClusterName, spec: &RouteSpec) -> Result<CloudRoute> {
    let before = it.cloud.route_tables();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let created = real(it, cluster, spec).await?;
    for (table, routes) in it.cloud.route_tables() {
        let was_there = |id: &String| before.get(&table).is_some_and(|old| old.iter().any(|route| route.id == *id));
        for route in routes.iter().filter(|route| route.id != created.id && !was_there(&route.id)) {
            it.cloud.remove_route(&table, &route.id).unwrap();
        }
    }
    Ok(created)
}

/// Correct: all its writes have one lock.
pub(crate) static WHOLE_TABLE: Flaw = Flaw {
    name: "writes the tables of all clusters under one lock",
    cases: &[],
    breaks: &[
        Lock(|_, _| Some("table".to_owned())),
        Create(later!(|it, cluster, spec| { whole(it, cluster, spec).await })),
    ],
};

/// Rejects routes of the other IP family.
async fn only(family: IpFamily, it: &Broken, cluster: &ClusterName, spec: &RouteSpec) -> Result<CloudRoute> {
    match spec.destination.addr().is_ipv4() == (family == IpFamily::IPv4) {
        true => real(it, cluster, spec).await,
        false => fails(ErrorKind::InvalidConfig),
    }
}

flaws! {
    "lists the routes of all clusters", [list_returns_only_our_routes],
        Table(later!(|it, _cluster| {
            let mut routes = Vec::new();
            for cluster in it.cloud.route_tables().keys() {
                routes.extend(it.routes().list_routes(&ClusterName::from(cluster.as_str())).await?);
            }
            Ok(routes)
        }));
    "reports marks on all routes", [list_returns_only_our_routes], Route(|_, route| route.stamped = true);
    "loses the cluster UID", [routes_carry_the_cluster_uid], Route(|_, route| route.cluster_uid = None);
    "lets another cluster with the same name take over a destination", [routes_carry_the_cluster_uid],
        Create(later!(|it, cluster, spec| {
            delete_all(it, cluster, |route| {
                route.destination == spec.destination && route.cluster_uid != spec.cluster_uid
            })
            .await?;
            real(it, cluster, spec).await
        }));
    "lists only the routes that this process has created", [route_writes_survive_every_crash],
        Create(later!(|it, cluster, spec| {
            let created = real(it, cluster, spec).await?;
            it.memory().created.insert(created.id.clone());
            Ok(created)
        })),
        Table(later!(|it, cluster| {
            let mut routes = it.routes().list_routes(cluster).await?;
            routes.retain(|route| it.memory().created.contains(&route.id));
            Ok(routes)
        }));
    "returns no addresses from create", [created_route_is_listed],
        Create(later!(|it, cluster, spec| { Ok(CloudRoute { node_addresses: None, ..real(it, cluster, spec).await? }) }));
    "returns only the first address", [created_route_is_listed],
        Route(|_, route| route.node_addresses.iter_mut().for_each(|addresses| addresses.truncate(1)));
    "lists only the first page of routes", [route_listing_is_complete],
        Table(later!(|it, cluster| { Ok(it.routes().list_routes(cluster).await?.into_iter().take(100).collect()) }));
    "identifies routes by the name hint", [create_is_idempotent],
        Create(later!(|it, cluster, spec| {
            let known = it.cloud.routes(cluster.as_str());
            let other =
                known.iter().any(|one| one.spec.destination == spec.destination && one.spec.name != spec.name_hint);
            if other { fails(ErrorKind::AlreadyExists) } else { real(it, cluster, spec).await }
        }));
    "refuses to create a second time", [create_is_idempotent route_limit_is_reported route_writes_survive_every_crash],
        Config(|config| config.routes.max_routes = Some(4)),
        Create(later!(|it, cluster, spec| {
            match same(it, cluster, spec).await?.as_slice() {
                [] => real(it, cluster, spec).await,
                _ => fails(ErrorKind::AlreadyExists),
            }
        }));
    "takes over a destination", [taken_destination_is_reported],
        Create(later!(|it, cluster, spec| {
            delete_all(it, cluster, |route| route.destination == spec.destination).await?;
            real(it, cluster, spec).await
        }));
    "ignores the machine of an existing route", [taken_destination_is_reported],
        Create(later!(|it, cluster, spec| {
            match same(it, cluster, spec).await?.pop() {
                Some(there) => Ok(there),
                None => real(it, cluster, spec).await,
            }
        }));
    "reports a taken destination as unexpected", [taken_destination_is_reported],
        Fault(|error| unexpected_if(error, ErrorKind::AlreadyExists));
    "fails to delete a deleted route", [delete_is_idempotent delete_is_exact route_writes_survive_every_crash],
        Delete(later!(|it, cluster, route| {
            match it.cloud.routes(cluster.as_str()).iter().any(|one| one.id == route.id) {
                true => it.routes().delete_route(cluster, route).await,
                false => fails(ErrorKind::NotFound),
            }
        }));
    "deletes by destination", [delete_is_exact],
        Delete(later!(|it, cluster, route| {
            delete_all(it, cluster, |one| one.destination == route.destination).await
        }));
    "deletes by first address", [delete_is_exact],
        Delete(later!(|it, cluster, route| {
            delete_all(it, cluster, |one| one.destination.addr() == route.destination.addr()).await
        }));
    "supports IPv6 routes only", [ipv4_routes_are_created],
        Create(later!(|it, cluster, spec| { only(IpFamily::IPv6, it, cluster, spec).await }));
    "supports IPv4 routes only", [ipv6_routes_are_created],
        Create(later!(|it, cluster, spec| { only(IpFamily::IPv4, it, cluster, spec).await }));
    "writes the whole table", [parallel_writes_all_take_effect],
        Create(later!(|it, cluster, spec| {
            let before = it.routes().list_routes(cluster).await?;
            tokio::task::yield_now().await;
            let created = real(it, cluster, spec).await?;
            delete_all(it, cluster, |route| *route != created && !before.contains(route)).await?;
            Ok(created)
        }));
    "names another lock each time", [locked_route_writes_do_not_overlap],
        Lock(|it, _| {
            it.memory().starts += 1;
            Some(it.memory().starts.to_string())
        });
    "names a lock for each cluster and writes the tables of all", [locked_route_writes_do_not_overlap],
        Lock(|_, cluster| Some(cluster.to_string())),
        Create(later!(|it, cluster, spec| { whole(it, cluster, spec).await }));
    "drops an answer of a batch", [one_route_answer_each],
        Claims(|claims| claims.routes.as_mut().unwrap().batch = 10),
        CreateAll(later!(|it, cluster, specs| {
            let mut answers = it.create_each(cluster, specs).await;
            answers.retain(|answer| answer.is_ok());
            answers
        }));
    "fails a batch for one bad route", [one_route_answer_each],
        Claims(|claims| claims.routes.as_mut().unwrap().batch = 10),
        CreateAll(later!(|it, cluster, specs| {
            let answers = it.create_each(cluster, specs).await;
            let failed = answers.iter().find_map(|answer| answer.as_ref().err().cloned());
            answers.into_iter().map(|answer| failed.clone().map_or(answer, Err)).collect()
        }));
    "claims batches and writes one by one", [batched_routes_save_calls],
        Claims(|claims| claims.routes.as_mut().unwrap().batch = 10);
    "claims one route too many", [route_limit_is_reported],
        Config(|config| config.routes.max_routes = Some(4)),
        Claims(|claims| claims.routes.as_mut().unwrap().max_routes = Some(5));
    "reports a full table as unexpected", [route_limit_is_reported],
        Config(|config| config.routes.max_routes = Some(4)),
        Fault(|error| unexpected_if(error, ErrorKind::QuotaExceeded));
    "counts an existing route twice", [route_limit_is_reported],
        Config(|config| config.routes.max_routes = Some(4)),
        Create(later!(|it, cluster, spec| {
            match it.cloud.routes(cluster.as_str()).len() {
                4.. => fails(ErrorKind::QuotaExceeded),
                _ => real(it, cluster, spec).await,
            }
        }));
    "looks up the machine by name only", [route_uses_id_before_name route_to_a_missing_machine_is_an_error],
        Wanted(|spec| spec.provider_id = None);
    "returns the machine's name as the Node", [route_uses_id_before_name],
        Route(|it, route| {
            let machine = route.provider_id.as_ref().and_then(|id| it.cloud.machine(id.rest()?).ok());
            route.node = machine.map(|machine| machine.spec.name.as_str().into());
        });
    "does not look up the machine by name", [route_uses_id_before_name],
        Create(later!(|it, cluster, spec| {
            match &spec.provider_id {
                Some(_) => real(it, cluster, spec).await,
                None => fails(ErrorKind::NotFound),
            }
        }));
    "reports a target for a deleted machine", [route_of_a_deleted_machine_is_reported],
        Route(|_, route| {
            route.blackhole = false;
            route.node = route.node.take().or(Some("node-1".into()));
        });
    "does not delete routes without a target", [route_of_a_deleted_machine_is_reported],
        Delete(later!(|it, cluster, route| {
            let known = it.cloud.routes(cluster.as_str()).into_iter().find(|one| one.id == route.id);
            match known.is_some_and(|known| known.blackhole) {
                true => fails(ErrorKind::NotFound),
                false => it.routes().delete_route(cluster, route).await,
            }
        }));
    "deletes only routes as they are listed now", [route_of_a_deleted_machine_is_reported],
        Delete(later!(|it, cluster, route| {
            match it.routes().list_routes(cluster).await?.contains(route) {
                true => it.routes().delete_route(cluster, route).await,
                false => Ok(()),
            }
        }));
    "reports success for a missing machine", [route_to_a_missing_machine_is_an_error],
        Create(later!(|it, cluster, spec| {
            match real(it, cluster, spec).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(CloudRoute::of(spec)),
                created => created,
            }
        }));
    "falls back to the name for a missing machine", [route_to_a_missing_machine_is_an_error],
        Create(later!(|it, cluster, spec| {
            match real(it, cluster, spec).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    real(it, cluster, &RouteSpec { provider_id: None, ..spec.clone() }).await
                }
                created => created,
            }
        }));
    "marks the route later", [route_writes_survive_every_crash],
        Create(later!(|it, cluster, spec| {
            let created = real(it, cluster, spec).await?;
            it.call().await.inspect_err(|_| {
                let machine = created.provider_id.as_ref().and_then(|id| id.rest()).unwrap().to_owned();
                let (name, destination) = (String::new(), created.destination);
                let unmarked = NewRoute { name, destination, machine, addresses: None, stamped: false, cluster_uid: None };
                it.cloud.remove_route(cluster.as_str(), &created.id).unwrap();
                it.cloud.add_route(cluster.as_str(), unmarked).unwrap();
            })?;
            Ok(created)
        }));
    "reports an error as an empty table", [route_errors_have_a_kind],
        Table(later!(|it, cluster| { it.routes().list_routes(cluster).await.or(Ok(Vec::new())) }));
}
