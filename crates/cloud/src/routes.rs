//! Routes: which machine a pod range is reached through.

use async_trait::async_trait;
use bowline_core::{ClusterName, Route, RouteSpec};

use crate::Result;

/// Leads pod ranges to machines.
///
/// Rules, each with a conformance case of the same name (they come with the first provider that has routes):
/// - `only_ours`: `list` returns routes that carry the cluster's mark, or, where a cloud has no marks, all of the table.
/// - `create_is_idempotent`: creating what exists, leading to the same machine, succeeds.
/// - `delete_is_idempotent`: deleting what is gone succeeds.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes of this cluster.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>>;

    /// Makes this route.
    async fn create(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<()>;

    /// Removes this route, exactly as it was listed.
    async fn delete(&self, cluster: &ClusterName, route: &Route) -> Result<()>;
}
