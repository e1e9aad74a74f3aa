//! Implements [`Routes`](bowline_cloud::Routes). The cloud has one route table with one route per CIDR, and writes one route per
//! call.

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, Instances, OneRoutePerCall, Result};
use bowline_core::{ClusterName, InstanceRef, InstanceState, NodeName, ProviderId, Route, RouteSpec};

use crate::client::{NewRoute, RouteEntry};
use crate::{Acme, NAME};

const CREATE: &str = "create route";

#[async_trait]
impl OneRoutePerCall for Acme {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let entries = self.client.routes(&[("cluster", cluster.as_str())]).await?;
        Ok(entries.into_iter().map(route).collect())
    }

    async fn create_route(&self, cluster: &ClusterName, spec: &RouteSpec) -> Result<Route> {
        let new = NewRoute {
            destination: spec.destination.trunc(),
            server: self.server_of(spec).await?,
            node: spec.node.to_string(),
            cluster: cluster.to_string(),
            cluster_uid: spec.cluster_uid.clone(),
        };
        match self.client.create_route(&new).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.existing_route(&new, error).await,
            created => created.map(route),
        }
    }

    async fn delete_route(&self, _: &ClusterName, route: &Route) -> Result<()> {
        // IDs are never reused, so a newer route of the same CIDR stays.
        self.client.delete_route(&route.id).await
    }
}

impl Acme {
    /// Returns the ID of the server that the route leads to. The Node's name is used only if the Node has no provider ID.
    async fn server_of(&self, spec: &RouteSpec) -> Result<String> {
        let asked = InstanceRef { node: spec.node.clone(), provider_id: spec.provider_id.clone(), system_uuid: None };
        if let Identity::Id(id) = self.identify(&asked)? {
            return Ok(id);
        }
        match self.find_one(&asked).await? {
            InstanceState::Running(server) | InstanceState::Stopped(server) => Ok(server.id.clone()),
            InstanceState::Gone | InstanceState::NotMine => {
                let message = format!("the cloud has no server of Node {}", spec.node);
                Err(Error::new(ErrorKind::NotFound, CREATE, message))
            }
        }
    }

    /// Returns the route that has the CIDR if this cluster created it for the same Node; otherwise `taken`.
    async fn existing_route(&self, new: &NewRoute, taken: Error) -> Result<Route> {
        let destination = new.destination.to_string();
        let entries = self.client.routes(&[("destination", destination.as_str())]).await?;
        entries.into_iter().find(|entry| entry.is(new)).map(route).ok_or(taken)
    }
}

fn route(entry: RouteEntry) -> Route {
    // The cloud sets the server to null when it is deleted. Packets to the CIDR are then dropped.
    let blackhole = entry.server.is_none();
    Route {
        id: entry.id,
        node: entry.node.filter(|_| !blackhole).map(NodeName::from),
        provider_id: entry.server.map(|id| ProviderId::of(NAME, &id)),
        node_addresses: None,
        next_hop: None,
        destination: entry.destination,
        blackhole,
        stamped: entry.cluster.is_some(),
        cluster_uid: entry.cluster_uid,
    }
}
