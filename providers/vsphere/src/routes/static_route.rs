//! Static routes with the marks of a cluster.

use std::net::IpAddr;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{Address, AddressType, ClusterName, NodeName, Route, RouteSpec};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::nsx::Record;

const CLUSTER: &str = "vsphere.k8s.io/cluster-name";
const NODE: &str = "vsphere.k8s.io/node-name";

/// Tag that the Go manager does not know: two clusters may have the same name.
const CLUSTER_UID: &str = "bowline.dev/cluster-uid";

/// A static route of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StaticRoute {
    pub id: String,
    pub destination: IpNet,
    cluster: String,
    cluster_uid: Option<String>,
    node: Option<NodeName>,
    next_hop: Option<IpAddr>,
}

impl StaticRoute {
    /// Returns the route to create.
    pub(super) fn of(cluster: &ClusterName, spec: &RouteSpec) -> Result<StaticRoute> {
        let destination = spec.destination.trunc();
        Ok(StaticRoute {
            id: format!("{}_{destination}", spec.name_hint).replace('/', "_"),
            destination,
            cluster: cluster.to_string(),
            cluster_uid: spec.cluster_uid.clone(),
            node: Some(spec.node.clone()),
            next_hop: Some(next_hop(spec)?),
        })
    }

    /// Returns the route of a record with the mark of this cluster. Without a valid destination it is a user's.
    pub(super) fn of_record(cluster: &ClusterName, record: &Record) -> Option<StaticRoute> {
        record.tag(CLUSTER).filter(|tag| *tag == cluster.as_str())?;
        let text = |scope| record.tag(scope).filter(|tag| !tag.is_empty());
        Some(StaticRoute {
            id: record.id().to_owned(),
            destination: destination(record)?,
            cluster: cluster.to_string(),
            cluster_uid: text(CLUSTER_UID).map(str::to_owned),
            node: text(NODE).map(Into::into),
            next_hop: next_hops(record).first().and_then(|address| address.parse().ok()),
        })
    }

    /// Returns the same route with an ID that no route has which NSX is still deleting.
    pub(super) fn without_ids(self, deleted: &[Record]) -> StaticRoute {
        let is_free = |id: &String| deleted.iter().all(|record| record.id() != *id);
        let numbered = (1..=deleted.len()).map(|number| format!("{}_{number}", self.id));
        let id = [self.id.clone()].into_iter().chain(numbered).find(is_free).unwrap_or_else(|| self.id.clone());
        StaticRoute { id, ..self }
    }

    pub(super) fn body(&self) -> Value {
        let node = self.node.as_ref().map(NodeName::as_str).unwrap_or_default();
        let tags =
            [(CLUSTER, Some(self.cluster.as_str())), (NODE, Some(node)), (CLUSTER_UID, self.cluster_uid.as_deref())];
        let tags = tags.into_iter().filter_map(|(scope, tag)| Some(json!({"scope": scope, "tag": tag?})));
        json!({
            "display_name": format!("{}_{node}_{}", self.cluster, self.destination),
            "network": self.destination.to_string(),
            "next_hops": [{"ip_address": self.next_hop.map(|address| address.to_string())}],
            "tags": tags.collect::<Vec<_>>(),
        })
    }

    /// Whether this route has the same owner, Node and next hop as another one. One of the Go manager has no cluster UID.
    pub(super) fn leads_as(&self, wanted: &StaticRoute) -> bool {
        let is_of_cluster = self.cluster_uid.is_none() || self.cluster_uid == wanted.cluster_uid;
        is_of_cluster && self.node == wanted.node && self.next_hop == wanted.next_hop
    }

    /// Whether this is the route that was listed.
    pub(super) fn is(&self, listed: &Route) -> bool {
        self.destination == listed.destination
            && self.next_hop == listed.next_hop
            && self.cluster_uid == listed.cluster_uid
    }

    pub(super) fn into_route(self) -> Route {
        Route {
            id: self.id,
            node: self.node,
            provider_id: None,
            node_addresses: None,
            next_hop: self.next_hop,
            destination: self.destination,
            blackhole: false,
            stamped: true,
            cluster_uid: self.cluster_uid,
        }
    }
}

pub(super) fn destination(record: &Record) -> Option<IpNet> {
    let network = record.text("network");
    let host = || network.parse::<IpAddr>().ok().map(IpNet::from);
    network.parse::<IpNet>().ok().or_else(host).map(|network| network.trunc())
}

pub(super) fn next_hops(record: &Record) -> Vec<&str> {
    record.list("next_hops").iter().filter_map(|hop| hop.get("ip_address")?.as_str()).collect()
}

/// Returns the first address of the destination's IP family: internal ones before external ones, and link-local ones last.
fn next_hop(spec: &RouteSpec) -> Result<IpAddr> {
    let of_kind = |kind| spec.node_addresses.iter().filter(move |address| address.kind == kind);
    let addresses: Vec<&Address> = of_kind(AddressType::InternalIP).chain(of_kind(AddressType::ExternalIP)).collect();
    let parsed: Vec<IpAddr> = addresses.iter().filter_map(|address| address.address.parse().ok()).collect();
    let mut of_family = parsed.iter().copied().filter(|ip| ip.is_ipv4() == spec.destination.addr().is_ipv4());
    let found = of_family.clone().find(|ip| !is_link_local(ip)).or_else(|| of_family.next());
    found.ok_or_else(|| {
        let (node, available) = (&spec.node, parsed.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        let family = if spec.destination.addr().is_ipv4() { "IPv4" } else { "IPv6" };
        let message = match parsed.is_empty() {
            true => format!("node {node} has neither InternalIP nor ExternalIP"),
            false => format!("node {node} does not have any {family} address (available IPs: [{available}])"),
        };
        Error::new(ErrorKind::NotFound, "create route", message)
    })
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
