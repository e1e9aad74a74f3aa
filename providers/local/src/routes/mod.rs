//! Routes: a table per cluster, each route from a range to a machine.
//!
//! ```text
//!  the owner's hands, users' calls ──► RouteTables in the World ──► snapshot file
//!                                          │ route_changes(): something is different now
//!                                          └─► wanted_routes(): all that a data plane should carry
//! ```
//!
//! A route outlives its machine as a blackhole: clouds keep such records, and somebody has to clean them up.

mod provider;
mod records;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::api::{CreateRouteRequest, RouteView};
use crate::cloud::{CloudError, LocalCloud, Machine, World};

pub use records::{NewRoute, RouteRecord};
pub(crate) use tables::RouteTables;

/// What the calls of the cloud's users are counted as.
pub(crate) const LIST: &str = "list-routes";
pub(crate) const CREATE: &str = "create-route";
pub(crate) const DELETE: &str = "delete-route";

/// Those that change something.
pub(crate) const WRITING: [&str; 2] = [CREATE, DELETE];

/// A route that a data plane should carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedRoute {
    /// Whose table it is in.
    pub cluster: String,
    /// The route.
    pub route: Arc<RouteRecord>,
    /// The machine that it leads to; `None` for a blackhole.
    pub machine: Option<Arc<Machine>>,
}

/// The owner's hands.
impl LocalCloud {
    /// The routes of this cluster, by range.
    pub fn routes(&self, cluster: &str) -> Vec<RouteRecord> {
        self.read(|world| world.routes.of(cluster).map(|route| RouteRecord::clone(route)).collect())
    }

    /// The routes of all clusters that have any, by the cluster's name.
    pub fn route_tables(&self) -> BTreeMap<String, Vec<RouteRecord>> {
        let copy = |route: &Arc<RouteRecord>| RouteRecord::clone(route);
        let table = |(cluster, routes): (&str, Vec<&Arc<RouteRecord>>)| {
            (cluster.to_owned(), routes.into_iter().map(copy).collect())
        };
        self.read(|world| world.routes.tables().map(table).collect())
    }

    /// Makes a route.
    pub fn add_route(&self, cluster: &str, route: NewRoute) -> Result<RouteRecord, CloudError> {
        let most = self.max_routes();
        let made = self.edit_routes(|world| {
            world.fleet.get(&route.machine)?;
            world.routes.add(cluster, route, most)
        })?;
        Ok(RouteRecord::clone(&made))
    }

    /// Removes a route.
    pub fn remove_route(&self, cluster: &str, id: &str) -> Result<(), CloudError> {
        self.edit_routes(|world| world.routes.remove(cluster, id))
    }

    /// How many routes one table may have; `None` without a limit.
    pub fn max_routes(&self) -> Option<usize> {
        self.shared.max_routes
    }

    /// All routes of all tables with the machines that they lead to, as one moment has them: what a data plane should
    /// carry, whole. Ask again after each of the [`route_changes`](LocalCloud::route_changes).
    pub fn wanted_routes(&self) -> Vec<WantedRoute> {
        self.read(|world| {
            let wanted = |(cluster, route): (&str, &Arc<RouteRecord>)| WantedRoute {
                cluster: cluster.to_owned(),
                route: route.clone(),
                machine: world.fleet.get(&route.spec.machine).ok().filter(|_| !route.blackhole).cloned(),
            };
            world.routes.iter().map(wanted).collect()
        })
    }

    /// Tells whenever routes, or the machines that they lead to, may be different. It tells that, and not how: whoever
    /// misses some of it misses nothing, for [`wanted_routes`](LocalCloud::wanted_routes) is always whole.
    pub fn route_changes(&self) -> watch::Receiver<u64> {
        self.shared.route_changes.subscribe()
    }
}

/// The calls of the cloud's users.
impl LocalCloud {
    /// The table as this world has it, which may be a past one.
    pub(crate) fn list_routes(&self, world: Option<&World>, cluster: &str) -> Vec<RouteView> {
        self.view(world, |world| world.routes.of(cluster).map(|route| seen(world, route)).collect())
    }

    /// Leads a range to a machine, unless it is led there already; the route.
    pub(crate) fn lead(&self, asked: CreateRouteRequest) -> Result<RouteView, CloudError> {
        let most = [asked.limit, self.max_routes()].into_iter().flatten().min();
        self.edit_routes(|world| {
            let machine = world.fleet.only(&asked.machine)?.spec.id.clone();
            let CreateRouteRequest { cluster, name, destination, addresses, .. } = asked;
            let route = NewRoute { name, destination, machine, addresses, stamped: true };
            let made = world.routes.lead(cluster.as_str(), route, most)?;
            Ok(seen(world, &made))
        })
    }

    fn edit_routes<T>(&self, edit: impl FnOnce(&mut World) -> Result<T, CloudError>) -> Result<T, CloudError> {
        let outcome = self.edit(&mut self.now(), edit)?;
        self.tell_of_routes();
        Ok(outcome)
    }

    /// After every change of routes and machines.
    pub(crate) fn tell_of_routes(&self) {
        self.shared.route_changes.send_modify(|number| *number = number.wrapping_add(1));
    }
}

/// A route with the name of its machine.
fn seen(world: &World, route: &RouteRecord) -> RouteView {
    let machine = world.fleet.get(&route.spec.machine).ok().filter(|_| !route.blackhole);
    RouteView { route: route.clone(), machine_name: machine.map(|machine| machine.spec.name.clone()) }
}
