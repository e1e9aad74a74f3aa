//! Hands to look at, and to prepare, what a cloud has for routes.
//!
//! They reach past the provider, as those for balancers do: what it forgot, doubled or took from somebody else is seen
//! because the cloud itself is asked.

use async_trait::async_trait;
use bowline_core::ClusterName;
use ipnet::IpNet;

/// A route of the cloud, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRoute {
    /// Its key, as [`Route::id`](bowline_core::Route::id) has it.
    pub id: String,
    /// The range, without host bits.
    pub destination: IpNet,
    /// The [`Instance::id`](bowline_core::Instance::id) of the machine it leads to, or last led to; `None` if the cloud
    /// does not know any more.
    pub machine: Option<String>,
    /// The cluster whose mark it bears; `None` if it bears none, or the cloud has no marks.
    pub owner: Option<ClusterName>,
}

/// A route that no manager made, and that bears no mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignRoute {
    /// The range.
    pub destination: IpNet,
    /// The [`Instance::id`](bowline_core::Instance::id) of the machine it is to lead to.
    pub machine: String,
}

/// Hands for routes. As long as nothing else is said, the cloud shows at once what it has.
#[async_trait]
pub trait RouteBench: Send + Sync {
    /// All routes of the table that this cluster's routes are in, whoever made them and wherever they lead. A cloud with
    /// one table for all clusters shows the same for each.
    async fn routes(&self, cluster: &ClusterName) -> Vec<SeenRoute>;

    /// Puts a route into the table that this cluster's routes are in, by hand, as somebody else would. `None` if this
    /// bench cannot.
    async fn put_foreign(&self, cluster: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let _ = (cluster, foreign);
        None
    }
}
