//! Records of routes.

use bowline_core::Address;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Route in the table of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRecord {
    /// ID, never reused.
    pub id: String,
    /// Properties; the destination has no host bits.
    #[serde(flatten)]
    pub spec: NewRoute,
    /// Node of the route, if a manager created it: Nodes need not have the names of their machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The machine is deleted, and packets are dropped.
    #[serde(default)]
    pub blackhole: bool,
}

/// Route to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewRoute {
    /// Display name, not unique.
    #[serde(default)]
    pub name: String,
    /// Destination, unique in a table.
    pub destination: IpNet,
    /// ID of the target machine.
    pub machine: String,
    /// Addresses of the Node, if the creator set them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<Address>>,
    /// A manager created the route, so it carries the mark of the cluster. Manually created routes carry none.
    #[serde(default)]
    pub stamped: bool,
    /// UID of the cluster whose manager created the route, because cluster names are not unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
}

impl RouteRecord {
    /// Whether the route forwards packets to this machine.
    pub fn leads_to(&self, machine: &str) -> bool {
        !self.blackhole && self.spec.machine == machine
    }
}
