//! Routes of the cloud as the contract wants them.

use async_trait::async_trait;
use bowline_cloud::{Error, OneRoutePerCall, Result};
use bowline_core::{ClusterName, InstanceRef, NodeName, ProviderId, Route, RouteSpec};

use crate::LocalProvider;
use crate::api::{CreateRouteRequest, DeleteRouteRequest, ListRoutesRequest, RouteView};
use crate::error::garbled;

const LIST: &str = "list routes";
const CREATE: &str = "create route";
const DELETE: &str = "delete route";

#[async_trait]
impl OneRoutePerCall for LocalProvider {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let asked = ListRoutesRequest { cluster: cluster.clone() };
        let reply = self.client.list_routes(&asked).await.map_err(|error| error.during(LIST))?;
        Ok(reply.routes.into_iter().map(|route| self.led(route)).collect())
    }

    async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        let asked = CreateRouteRequest {
            cluster: cluster.clone(),
            machine: self.key_of(&machine_of(route), CREATE)?,
            node: route.node.clone(),
            name: route.name_hint.clone(),
            destination: route.destination.trunc(),
            addresses: Some(route.node_addresses.clone()),
            limit: self.config.routes.limit(),
            cluster_uid: route.cluster_uid.clone(),
        };
        let told = |error: Error| error.during(CREATE).context("node", route.node.as_str());
        let made = self.client.create_route(&asked).await.map_err(told)?;
        if made.route.spec.destination != asked.destination {
            return Err(told(garbled(CREATE, "it is about another range")));
        }
        Ok(self.led(made))
    }

    async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        // An ID is never given twice, so it means the very route that was listed.
        let asked = DeleteRouteRequest { cluster: cluster.clone(), id: route.id.clone() };
        match self.client.delete_route(&asked).await {
            Err(error) if !error.is_not_found() => Err(error.during(DELETE)),
            // What is to go and is gone is done.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl LocalProvider {
    /// A route in terms of the contract. What leads nowhere names nobody.
    fn led(&self, seen: RouteView) -> Route {
        let RouteView { route, machine_name } = seen;
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

/// How the machine is asked for that the route is to lead to.
fn machine_of(route: &RouteSpec) -> InstanceRef {
    InstanceRef { node: route.node.clone(), provider_id: route.provider_id.clone(), system_uuid: None }
}
