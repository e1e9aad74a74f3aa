//! Routes: a table per cluster, each route from a range to a machine.

use bowline_core::Address;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{CloudError, LocalCloud};

/// A route of a cluster's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRecord {
    /// Its key, never used twice.
    pub id: String,
    /// What it was made with.
    #[serde(flatten)]
    pub spec: NewRoute,
    /// Its machine is gone: packets go nowhere.
    pub blackhole: bool,
}

/// A route to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewRoute {
    /// A name for people; need not be unique.
    #[serde(default)]
    pub name: String,
    /// The range, which a table has once.
    pub destination: IpNet,
    /// The ID of the machine that it leads to.
    pub machine: String,
    /// The addresses that it leads to, if whoever made it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<Address>>,
    /// A manager made it: it carries the cluster's mark. Routes made by hand carry none.
    #[serde(default)]
    pub stamped: bool,
}

/// The owner's hands.
impl LocalCloud {
    /// The routes of this cluster, by range.
    pub fn routes(&self, cluster: &str) -> Vec<RouteRecord> {
        let _ = cluster;
        todo!()
    }

    /// Makes a route.
    pub fn add_route(&self, cluster: &str, route: NewRoute) -> Result<RouteRecord, CloudError> {
        let _ = (cluster, route);
        todo!()
    }

    /// Removes a route.
    pub fn remove_route(&self, cluster: &str, id: &str) -> Result<(), CloudError> {
        let _ = (cluster, id);
        todo!()
    }
}
