//! Routes: which machine a pod range is reached through.

use async_trait::async_trait;
use bowline_core::{ClusterName, Route, RouteSpec};

use crate::Result;

/// Leads pod ranges to machines.
///
/// A controller lists once and then keeps its own account of the table by what `create` returns, so that the account must
/// be what a listing would show.
///
/// Rules, each with a conformance case of the same name. On what is there:
/// - `only_ours`: `list` returns routes that carry the cluster's mark, and perhaps some that carry none, which are not
///   `stamped`; never those of another cluster. Where a cloud has no marks, it returns all of the table.
/// - `routes_carry_the_cluster_uid`: with `marks_cluster_uid`, a route is listed with the UID that it was created with, and a cluster
///   of the same name and another UID does not replace it.
/// - `created_route_is_listed`: `create` returns the route exactly as `list` shows it from then on: leading to the Node that
///   was asked for, by its name or, without a name, by its provider ID, and with no addresses but those that were asked for.
/// - `route_listing_is_complete`: however many routes there are, `list` shows each of them once.
///
/// On making and removing:
/// - `create_is_idempotent`: creating what exists, leading to the same machine, succeeds and makes no second one, even for a
///   new Node of the name.
/// - `taken_destination_is_told`: where a range can lead to one machine only, creating it for another is
///   [`AlreadyExists`](crate::ErrorKind::AlreadyExists) and changes nothing.
/// - `delete_is_idempotent`: deleting what is gone succeeds.
/// - `delete_is_exact`: a route is removed only as it was listed; a newer one of the same range stays.
/// - `ipv4_ranges_are_led`: with IPv4 in `ip_families`, a range of that family can be led to a machine.
/// - `ipv6_ranges_are_led`: the same with IPv6.
/// - `parallel_writes_all_count`: `max_parallel` writes at once all take effect. With a [`lock`](Routes::lock), the layers run
///   them one after the other.
/// - `locked_route_writes_do_not_overlap`: [`lock`](Routes::lock) returns the same name each time. Writes of two clusters that have
///   the same lock, made at once through the layers, all take effect.
/// - `one_route_answer_each`: `create` and `delete` return as many answers as there are routes, in the same order. A route that
///   fails does not fail the others of its batch.
/// - `batched_routes_save_calls`: `batch` routes are created at once and deleted at once, and each beyond the first saves at
///   least one call over a write of its own.
/// - `route_limit_is_told`: `max_routes` fit; one more is [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded), and is not made.
///
/// On machines:
/// - `id_leads_before_name`: with a provider ID the Node's name is not looked at; without one, and with `lookup_by_name`, the
///   machine is found by that name.
/// - `route_of_a_lost_machine_is_told`: when a machine is gone, its route is listed without node or as a blackhole, or not
///   at all; it can be deleted, as it was created and as it is listed now, and its range can be led elsewhere then.
/// - `route_to_a_missing_machine_is_an_error`: creating a route to a machine that does not exist is an error, and makes none.
///
/// On trouble:
/// - `route_writes_survive_every_crash`: whatever was under way when the answer was lost, doing it again leads to one route,
///   or to none; and what was half made is listed and can be deleted.
/// - `route_faults_are_told`: with credentials, rights or the connection gone, every call fails, with an error of that kind,
///   and changes nothing; when the cloud says how long to stay away, the error's advice says so.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes of this cluster.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>>;

    /// Creates at most `batch` routes, no two of which have the same destination. Returns each as [`list`](Routes::list) shows
    /// it from then on.
    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>>;

    /// Deletes at most `batch` routes, exactly as they were listed. No two have the same destination.
    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>>;

    /// Name of the shared object that writes of this cluster's routes read and write as a whole: a router, a route table. The
    /// layers run writes with the same lock one after the other, and not while a load balancer plan with that
    /// [lock](bowline_core::Plan::locks) is applied. Default: none, which lets `max_parallel` writes run at once.
    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        let _ = cluster;
        None
    }
}

/// [`Routes`] of a cloud that writes one route per call: a type that implements this implements `Routes`, with `batch: 1`.
#[async_trait]
pub trait OneRoutePerCall: Send + Sync {
    /// See [`Routes::list`].
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>>;

    /// Creates this route, and returns it as `list_routes` shows it from then on.
    async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route>;

    /// Deletes this route, exactly as it was listed.
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
        let mut answers = Vec::with_capacity(routes.len());
        for route in routes {
            answers.push(self.create_route(cluster, route).await);
        }
        answers
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        let mut answers = Vec::with_capacity(routes.len());
        for route in routes {
            answers.push(self.delete_route(cluster, route).await);
        }
        answers
    }

    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        self.route_lock(cluster)
    }
}
