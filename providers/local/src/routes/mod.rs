//! Routes: one table per cluster, each route from a destination CIDR to a machine.
//!
//! ```text
//!  management and user calls ──► RouteTables in the World ──► snapshot file
//!                                     └─► route_changes(): notification
//! ```
//!
//! A route of a deleted machine becomes a blackhole: clouds keep such records, and controllers have to delete them.

mod provider;
mod records;
mod tables;

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::api::{CreateRouteRequest, RouteView};
use crate::cloud::{CloudError, LocalCloud, World};

pub use records::{NewRoute, RouteRecord};
pub(crate) use tables::RouteTables;

/// Names under which user calls are counted and faults are injected.
pub(crate) const LIST: &str = "list-routes";
pub(crate) const CREATE: &str = "create-route";
pub(crate) const DELETE: &str = "delete-route";

/// Write calls.
pub(crate) const WRITE_CALLS: [&str; 2] = [CREATE, DELETE];

/// Management calls.
impl LocalCloud {
    /// Returns the routes of a cluster, by destination.
    pub fn routes(&self, cluster: &str) -> Vec<RouteRecord> {
        self.read(|world| world.routes.of(cluster).map(|route| RouteRecord::clone(route)).collect())
    }

    /// Returns all route tables, by cluster name.
    pub fn route_tables(&self) -> BTreeMap<String, Vec<RouteRecord>> {
        let copied = |(cluster, routes): (String, Vec<&RouteRecord>)| (cluster, routes.into_iter().cloned().collect());
        self.read(|world| world.routes.by_cluster().into_iter().map(copied).collect())
    }

    /// Creates a route.
    pub fn add_route(&self, cluster: &str, route: NewRoute) -> Result<RouteRecord, CloudError> {
        let limit = self.max_routes();
        let created = self.edit_routes(|world| {
            world.fleet.get(&route.machine)?;
            world.routes.add(cluster, route, limit)
        })?;
        Ok(RouteRecord::clone(&created))
    }

    /// Deletes a route.
    pub fn remove_route(&self, cluster: &str, id: &str) -> Result<(), CloudError> {
        self.edit_routes(|world| world.routes.remove(cluster, id))
    }

    /// Maximum number of routes per table; `None` for no limit.
    pub fn max_routes(&self) -> Option<usize> {
        self.shared.max_routes
    }

    /// Notifies of changes of routes and their machines, without details. A receiver that then reads all routes misses no change.
    pub fn route_changes(&self) -> watch::Receiver<u64> {
        self.shared.route_changes.subscribe()
    }
}

/// User calls.
impl LocalCloud {
    /// Lists a table, from the current or past resources.
    pub(crate) fn list_routes(&self, world: Option<&World>, cluster: &str) -> Vec<RouteView> {
        self.view(world, |world| world.routes.of(cluster).map(|route| view(world, route)).collect())
    }

    /// Creates a route, or returns the existing one to the same machine.
    pub(crate) fn create_route(&self, request: CreateRouteRequest) -> Result<RouteView, CloudError> {
        let limit = [request.limit, self.max_routes()].into_iter().flatten().min();
        self.edit_routes(|world| {
            let machine = world.fleet.only(&request.machine)?.spec.id.clone();
            let CreateRouteRequest { cluster, node, name, destination, addresses, cluster_uid, .. } = request;
            let route = NewRoute { name, destination, machine, addresses, stamped: true, cluster_uid };
            let created = world.routes.create_for_node(cluster.as_str(), route, node.as_str(), limit)?;
            Ok(view(world, &created))
        })
    }

    fn edit_routes<T>(&self, edit: impl FnOnce(&mut World) -> Result<T, CloudError>) -> Result<T, CloudError> {
        let result = self.edit(&mut self.state(), edit)?;
        self.notify_route_change();
        Ok(result)
    }

    /// Sends the notification after a change of routes or machines.
    pub(crate) fn notify_route_change(&self) {
        self.shared.route_changes.send_modify(|number| *number = number.wrapping_add(1));
    }
}

/// Route with the name of its machine.
fn view(world: &World, route: &RouteRecord) -> RouteView {
    let machine = world.fleet.get(&route.spec.machine).ok().filter(|_| !route.blackhole);
    RouteView { route: route.clone(), machine_name: machine.map(|machine| machine.spec.name.clone()) }
}
