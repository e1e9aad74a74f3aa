//! `OneRoutePerCall` trait: routes of the cloud.

use async_trait::async_trait;
use bowline_agent_client::invalid_response;
use bowline_cloud::{Error, OneRoutePerCall, Result};
use bowline_core::{ClusterName, InstanceRef, NodeName, ProviderId, Route, RouteSpec};

use crate::LocalProvider;
use crate::api::{CreateRouteRequest, DeleteRouteRequest, ListRoutesRequest, RouteView};

const LIST: &str = "list routes";
const CREATE: &str = "create route";
const DELETE: &str = "delete route";

#[async_trait]
impl OneRoutePerCall for LocalProvider {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let request = ListRoutesRequest { cluster: cluster.clone() };
        let reply = self.client.list_routes(&request).await.map_err(|error| error.during(LIST))?;
        Ok(reply.routes.into_iter().map(|route| self.to_route(route)).collect())
    }

    async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        let request = CreateRouteRequest {
            cluster: cluster.clone(),
            machine: self.key_of(&machine_of(route), CREATE)?,
            node: route.node.clone(),
            name: route.name_hint.clone(),
            destination: route.destination.trunc(),
            addresses: Some(route.node_addresses.clone()),
            limit: self.config.routes.limit(),
            cluster_uid: route.cluster_uid.clone(),
        };
        let with_node = |error: Error| error.during(CREATE).context("node", route.node.as_str());
        let created = self.client.create_route(&request).await.map_err(with_node)?;
        if created.route.spec.destination != request.destination {
            return Err(with_node(invalid_response(CREATE, "the route has another destination")));
        }
        Ok(self.to_route(created))
    }

    async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        // IDs are never reused, so this is the route that was listed.
        let request = DeleteRouteRequest { cluster: cluster.clone(), id: route.id.clone() };
        match self.client.delete_route(&request).await {
            Err(error) if !error.is_not_found() => Err(error.during(DELETE)),
            // Already deleted.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl LocalProvider {
    /// Converts a route. A blackhole has neither Node nor provider ID.
    fn to_route(&self, view: RouteView) -> Route {
        let RouteView { route, machine_name } = view;
        let node = route.node.or(machine_name).filter(|_| !route.blackhole);
        let provider_id = (!route.blackhole).then(|| ProviderId::of(&self.config.id_prefix, &route.spec.machine));
        Route {
            id: route.id,
            node: node.map(NodeName::from),
            provider_id,
            node_addresses: route.spec.addresses.filter(|_| self.config.routes.node_addresses),
            next_hop: None,
            destination: route.spec.destination,
            blackhole: route.blackhole,
            stamped: route.spec.stamped,
            cluster_uid: route.spec.cluster_uid,
        }
    }
}

/// Reference to the machine of the route.
fn machine_of(route: &RouteSpec) -> InstanceRef {
    InstanceRef { node: route.node.clone(), provider_id: route.provider_id.clone(), system_uuid: None }
}
