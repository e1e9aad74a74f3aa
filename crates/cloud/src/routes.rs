//! Routes: which machine a pod range is reached through.

use async_trait::async_trait;
use bowline_core::{ClusterName, Route, RouteSpec};

use crate::Result;

/// Leads pod ranges to machines.
///
/// A controller lists once and then keeps its own account of the table by what `create` returns, so that the account must
/// be what a listing would show.
///
/// Rules, each with a conformance case of the same name:
/// - `only_ours`: `list` returns routes that carry the cluster's mark, or, where a cloud has no marks, all of the table.
/// - `created_route_is_listed`: `create` returns the route exactly as `list` shows it from then on.
/// - `create_is_idempotent`: creating what exists, leading to the same machine, succeeds and makes no second one.
/// - `taken_destination_is_told`: where a range can lead to one machine only, creating it for another is
///   [`AlreadyExists`](crate::ErrorKind::AlreadyExists) and changes nothing.
/// - `delete_is_idempotent`: deleting what is gone succeeds.
/// - `delete_is_exact`: a route is removed only as it was listed; a newer one of the same range stays.
/// - `families_are_honoured`: a range of each family in `ip_families` can be led to a machine.
/// - `parallel_writes_all_count`: `max_parallel` creations under way at once all take effect.
/// - `route_of_a_lost_machine_is_told`: when a machine is gone, its route is listed without node or as a blackhole, or not
///   at all, and can be deleted.
/// - `route_to_a_missing_machine_is_an_error`: creating a route to a machine that does not exist is an error, and makes none.
/// - `route_faults_are_told`: with credentials, rights or the connection gone, every call fails, with an error of that kind.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes of this cluster.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>>;

    /// Makes this route, and returns it as [`list`](Routes::list) shows it from then on.
    async fn create(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route>;

    /// Removes this route, exactly as it was listed.
    async fn delete(&self, cluster: &ClusterName, route: &Route) -> Result<()>;
}
