//! Routes: which node's machine a pod range is reached through.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Address, NodeName, ProviderId};

/// A route that should exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSpec {
    /// Makes the route's name where a cloud wants one: the UID of the Node.
    pub name_hint: String,
    /// The node behind which the range lives.
    pub node: NodeName,
    /// The node's machine, for clouds whose next hop is a machine.
    pub provider_id: Option<ProviderId>,
    /// The node's addresses, for clouds whose next hop is an address.
    pub node_addresses: Vec<Address>,
    /// The pod range.
    pub destination: IpNet,
    /// UID of the cluster, recorded on the route where a cloud has marks: two clusters may have the same name.
    #[serde(default)]
    pub cluster_uid: Option<String>,
}

/// A route that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The cloud's key for it.
    pub id: String,
    /// The node it leads to; `None` if that cannot be told, as when the machine is gone.
    pub node: Option<NodeName>,
    /// The machine it leads to, where the cloud tells that and knows no node; it counts when `node` is `None`.
    pub provider_id: Option<ProviderId>,
    /// The addresses it leads to, where the cloud knows them; `None` keeps them out of any comparison. None at all, where the
    /// cloud knows that no traffic gets through: the route is made anew.
    pub node_addresses: Option<Vec<Address>>,
    /// The address that it leads to, in a cloud whose routes lead to addresses. A Node that does not have it is not led to; and
    /// where neither `node` nor `provider_id` leads to a Node, the one that has it is meant.
    #[serde(default)]
    pub next_hop: Option<IpAddr>,
    /// The range.
    pub destination: IpNet,
    /// It leads nowhere, for lack of a machine.
    pub blackhole: bool,
    /// It carries this cluster's mark: we made it, whatever its range. `false` where a cloud has no marks.
    pub stamped: bool,
    /// UID of the cluster that created it, where the cloud has recorded one.
    #[serde(default)]
    pub cluster_uid: Option<String>,
}

impl Route {
    /// The route that this asks for, as far as that is known before a cloud has made it.
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
