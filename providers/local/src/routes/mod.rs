//! Routes: a table per cluster, each route from a range to a machine.
//!
//! ```text
//!  the owner's hands, users' calls ──► RouteTables in the World ──► snapshot file
//!                                          └─► route_changes(): something is different now
//! ```
//!
//! A route outlives its machine as a blackhole: clouds keep such records, and somebody has to clean them up.

mod provider;
mod records;
mod tables;

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::api::{CreateRouteRequest, RouteView};
use crate::cloud::{CloudError, LocalCloud, World};

pub use records::{NewRoute, RouteRecord};
pub(crate) use tables::RouteTables;

/// What the calls of the cloud's users are counted as.
pub(crate) const LIST: &str = "list-routes";
pub(crate) const CREATE: &str = "create-route";
pub(crate) const DELETE: &str = "delete-route";

/// Those that change something.
pub(crate) const WRITING: [&str; 2] = [CREATE, DELETE];

/// The owner's hands.
impl LocalCloud {
    /// The routes of this cluster, by range.
    pub fn routes(&self, cluster: &str) -> Vec<RouteRecord> {
        self.read(|world| world.routes.of(cluster).map(|route| RouteRecord::clone(route)).collect())
    }

    /// The routes of all clusters that have any, by the cluster's name.
    pub fn route_tables(&self) -> BTreeMap<String, Vec<RouteRecord>> {
        let copied = |(cluster, routes): (String, Vec<&RouteRecord>)| (cluster, routes.into_iter().cloned().collect());
        self.read(|world| world.routes.by_cluster().into_iter().map(copied).collect())
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

    /// Tells whenever routes, or the machines that they lead to, may be different: that, and not how. Whoever then looks
    /// at all that there is misses nothing, however much happened meanwhile.
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
            let CreateRouteRequest { cluster, node, name, destination, addresses, cluster_uid, .. } = asked;
            let route = NewRoute { name, destination, machine, addresses, stamped: true, cluster_uid };
            let made = world.routes.lead(cluster.as_str(), route, node.as_str(), most)?;
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
