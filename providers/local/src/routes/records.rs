//! What the cloud keeps of routes.

use bowline_core::Address;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A route of a cluster's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRecord {
    /// Its key, never used twice.
    pub id: String,
    /// What it was made with; the range has no host bits.
    #[serde(flatten)]
    pub spec: NewRoute,
    /// The node that it was made for, if a manager made it: nodes need not be called as their machines are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its machine is gone: packets go nowhere.
    #[serde(default)]
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
    /// UID of the cluster whose manager made it: clusters may have the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
}

impl RouteRecord {
    /// Packets reach this machine by it.
    pub fn leads_to(&self, machine: &str) -> bool {
        !self.blackhole && self.spec.machine == machine
    }
}
