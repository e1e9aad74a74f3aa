//! Routes that send the pod CIDR of a Node to its machine.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Address, NodeName, ProviderId};

/// Desired route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSpec {
    /// UID of the Node, from which clouds with named routes derive the name.
    pub name_hint: String,
    /// Node that has the pod CIDR.
    pub node: NodeName,
    /// Provider ID of the Node, for clouds whose next hop is a machine.
    pub provider_id: Option<ProviderId>,
    /// Addresses of the Node, for clouds whose next hop is an address.
    pub node_addresses: Vec<Address>,
    /// Pod CIDR.
    pub destination: IpNet,
    /// UID of the cluster, recorded on the route if the cloud supports marks: two clusters may have the same name.
    #[serde(default)]
    pub cluster_uid: Option<String>,
}

/// Observed route: an entry of the cloud's route table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// ID of the route in the cloud.
    pub id: String,
    /// Target Node; `None` if it is unknown, for example because the machine no longer exists.
    pub node: Option<NodeName>,
    /// Target machine, for clouds that know machines but not Nodes. It is used if `node` is `None`.
    pub provider_id: Option<ProviderId>,
    /// Addresses of the target, if the cloud reports them. `None` excludes them from the comparison with the Node. An empty list
    /// means that the cloud knows that no traffic gets through: the route is recreated.
    pub node_addresses: Option<Vec<Address>>,
    /// Next hop, for clouds whose routes have an address as target. A Node without this address is not the target. If neither
    /// `node` nor `provider_id` identifies a Node, the Node with this address is the target.
    #[serde(default)]
    pub next_hop: Option<IpAddr>,
    /// Destination CIDR.
    pub destination: IpNet,
    /// Whether the route drops traffic because its target machine does not exist.
    pub blackhole: bool,
    /// Whether the route has the mark of this cluster: Bowline created it, whatever its destination. `false` for clouds without
    /// marks.
    pub stamped: bool,
    /// UID of the cluster that created the route, if the cloud has recorded one.
    #[serde(default)]
    pub cluster_uid: Option<String>,
}

impl Route {
    /// Returns the route that `spec` describes, as far as it is known before the cloud has created it.
    pub fn of(spec: &RouteSpec) -> Route {
        Route {
            id: format!("{} to {}", spec.destination.trunc(), spec.node),
            node: Some(spec.node.clone()),
            provider_id: spec.provider_id.clone(),
            node_addresses: None,
            next_hop: None,
            destination: spec.destination.trunc(),
            blackhole: false,
            stamped: true,
            cluster_uid: spec.cluster_uid.clone(),
        }
    }
}
