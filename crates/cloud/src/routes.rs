//! Routes: the route table entries that send a pod CIDR to its machine.

use async_trait::async_trait;
use bowline_core::{ClusterName, Route, RouteSpec};

use crate::Result;

/// Manages the cloud's routes from pod CIDRs to machines.
///
/// The controller lists the routes once and then updates its copy of the table from the results of `create` and `delete`, so
/// `create` must return exactly what a listing would show.
///
/// Rules, each with a conformance case of the same name.
///
/// Listings:
/// - `list_returns_only_our_routes`: `list` returns the routes with this cluster's mark and may return unmarked ones, which are not
///   `stamped`. It never returns routes of another cluster. If the cloud cannot mark routes, it returns the whole table.
/// - `routes_carry_the_cluster_uid`: with `marks_cluster_uid`, a route is listed with the cluster UID that it was created with, and
///   a cluster with the same name and another UID does not replace it.
/// - `created_route_is_listed`: `create` returns the route exactly as `list` shows it from then on: with the requested Node, by
///   name or, if there is no name, by provider ID, and with no addresses other than the requested ones.
/// - `route_listing_is_complete`: `list` returns each route once, however many there are.
///
/// Creation and deletion:
/// - `create_is_idempotent`: creating a route that already leads to the same machine succeeds and adds no second route, even for
///   a new Node of the same name.
/// - `taken_destination_is_reported`: if the cloud allows one route per CIDR, creating a route to another machine is
///   [`AlreadyExists`](crate::ErrorKind::AlreadyExists) and changes nothing.
/// - `delete_is_idempotent`: deleting a route that does not exist succeeds.
/// - `delete_is_exact`: `delete` removes only the route that was listed. A newer route of the same CIDR stays.
/// - `ipv4_routes_are_created`: with IPv4 in `ip_families`, an IPv4 CIDR can be routed to a machine.
/// - `ipv6_routes_are_created`: the same with IPv6.
/// - `parallel_writes_all_take_effect`: `max_parallel` concurrent writes all take effect. With a [`lock`](Routes::lock), the layers
///   serialise them.
/// - `locked_route_writes_do_not_overlap`: [`lock`](Routes::lock) returns the same name each time. Concurrent writes of two
///   clusters with the same lock, made through the layers, all take effect.
/// - `one_route_answer_each`: `create` and `delete` return one result for each route, in the same order. A route that fails does
///   not fail the rest of its batch.
/// - `batched_routes_save_calls`: `batch` routes are created or deleted at once, and each route beyond the first saves at least one
///   call compared with a write of its own.
/// - `route_limit_is_reported`: `max_routes` routes fit. One more is [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded) and is not
///   created.
///
/// Machines:
/// - `route_uses_id_before_name`: if the route has a provider ID, the Node name is ignored. Without one, and with `lookup_by_name`,
///   the machine is found by the Node name.
/// - `route_of_a_deleted_machine_is_reported`: with `knows_machines`, a route is listed without a Node or as a blackhole after its
///   machine was deleted, or not at all. It can be deleted, both as it was created and as it is listed now, and then its CIDR can be
///   routed to another machine.
/// - `route_to_a_missing_machine_is_an_error`: with `knows_machines`, creating a route to a machine that does not exist is an error and
///   creates nothing.
///
/// Errors and crashes:
/// - `route_writes_survive_every_crash`: repeating a write after its response was lost leads to exactly one route, or to none for a
///   deletion. A partly created route is listed and can be deleted.
/// - `route_errors_have_a_kind`: with rejected credentials, missing permissions or a broken connection, every call fails with an
///   error of the corresponding kind and changes nothing. If the cloud requests a delay, the retry advice contains it.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Returns all routes of this cluster.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>>;

    /// Creates at most `batch` routes, no two of them with the same destination. Returns each as [`list`](Routes::list) shows it
    /// from then on.
    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>>;

    /// Deletes at most `batch` routes, exactly as they were listed, no two of them with the same destination.
    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>>;

    /// Returns the name of the shared object that every route write reads and replaces as a whole: a router, a route table. The
    /// layers serialise writes with the same lock, also with load balancer plans that have this
    /// [lock](bowline_core::Plan::locks). Default: none, so up to `max_parallel` writes run concurrently.
    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        let _ = cluster;
        None
    }
}

/// [`Routes`] of a cloud that writes one route per call: a type that implements this trait implements `Routes`, with `batch: 1`.
#[async_trait]
pub trait OneRoutePerCall: Send + Sync {
    /// See [`Routes::list`].
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>>;

    /// Creates a route and returns it as `list_routes` shows it from then on.
    async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route>;

    /// Deletes a route, exactly as it was listed.
    async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()>;

    /// See [`Routes::lock`].
    fn route_lock(&self, cluster: &ClusterName) -> Option<String> {
        let _ = cluster;
        None
    }
}

#[async_trait]
impl<T: OneRoutePerCall> Routes for T {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.list_routes(cluster).await
    }

    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>> {
        let mut results = Vec::with_capacity(routes.len());
        for route in routes {
            results.push(self.create_route(cluster, route).await);
        }
        results
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(routes.len());
        for route in routes {
            results.push(self.delete_route(cluster, route).await);
        }
        results
    }

    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        self.route_lock(cluster)
    }
}
