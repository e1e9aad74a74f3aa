//! Requests, replies and records of the routes API.

use bowline_core::{Address, ClusterName, NodeName, ProviderId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Route of a cluster to the pod CIDR of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteRecord {
    /// ID, never reused.
    pub id: String,
    /// Display name, not unique.
    #[serde(default)]
    pub name: String,
    /// Destination without host bits, unique in a cluster.
    pub destination: IpNet,
    /// Node of the pod CIDR.
    pub node: NodeName,
    /// Provider ID of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// Addresses of the Node, of which one is the next hop.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// UID of the cluster, because cluster names are not unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
}

/// Cluster whose routes are listed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRoutesRequest {
    /// The cluster.
    pub cluster: ClusterName,
}

/// All routes of a cluster, by destination.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListRoutesReply {
    /// The routes.
    pub routes: Vec<RouteRecord>,
}

/// Route to create. The reply is its [`RouteRecord`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRouteRequest {
    /// Cluster of the route.
    pub cluster: ClusterName,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Pod CIDR.
    pub destination: IpNet,
    /// Node of the pod CIDR.
    pub node: NodeName,
    /// Provider ID of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// Addresses of the Node.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// UID of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Maximum number of routes of the cluster that the client accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Route to delete.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteRouteRequest {
    /// Cluster of the route.
    pub cluster: ClusterName,
    /// ID of the route.
    pub id: String,
}

/// Empty reply. Any other body is an error, so an invalid response does not count as success.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}
