//! Controls for a cloud's routes.
//!
//! They read the cloud directly and not through the provider, so that the suite detects routes that the provider forgot,
//! duplicated or took from another owner.

use async_trait::async_trait;
use bowline_core::ClusterName;
use ipnet::IpNet;

/// A route in the cloud's table, of any owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRoute {
    /// ID, as in [`Route::id`](bowline_core::Route::id).
    pub id: String,
    /// Destination CIDR, without host bits.
    pub destination: IpNet,
    /// [`Instance::id`](bowline_core::Instance::id) of the current or last target machine; `None` if the cloud no longer knows it.
    pub machine: Option<String>,
    /// Cluster in its mark; `None` if the route has no mark or the cloud has no marks.
    pub owner: Option<ClusterName>,
}

/// A route without a mark that the user created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignRoute {
    /// Destination CIDR.
    pub destination: IpNet,
    /// [`Instance::id`](bowline_core::Instance::id) of the target machine.
    pub machine: String,
}

/// Controls for routes.
#[async_trait]
pub trait RouteBench: Send + Sync {
    /// All routes of the table that holds this cluster's routes, of any owner and to any target. A cloud with one table for all
    /// clusters returns the same routes for each.
    async fn routes(&self, cluster: &ClusterName) -> Vec<SeenRoute>;

    /// Adds a route to the table that holds this cluster's routes, as a user would. Returns `None` if the bench cannot.
    async fn put_foreign(&self, cluster: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let _ = (cluster, foreign);
        None
    }
}
