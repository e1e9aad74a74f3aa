//! `OneRoutePerCall` trait: routes in the table of a group of agents.
//!
//! An agent knows no machines. A route names its Node, and has the addresses of the Node, one of which is the next hop. The controller
//! compares them: if they change, the route is created again with the new ones.

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, OneRoutePerCall, Result};
use bowline_core::{Address, AddressType, ClusterName, Route, RouteSpec};
use bowline_http::Api;

use super::messages::{CreateRouteRequest, DeleteRouteRequest, Empty, ListRoutesReply, ListRoutesRequest, RouteRecord};
use crate::client::{query, write};
use crate::errors::invalid_response;

const LIST: &str = "list routes";
const CREATE: &str = "create route";
const DELETE: &str = "delete route";

/// Routes of a group of agents.
pub struct AgentRoutes {
    api: Api,
}

impl AgentRoutes {
    /// Creates the routes behind an API, whose errors must be decoded with [`ApiErrors`](crate::ApiErrors).
    pub fn new(api: Api) -> AgentRoutes {
        AgentRoutes { api }
    }
}

#[async_trait]
impl OneRoutePerCall for AgentRoutes {
    async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let request = ListRoutesRequest { cluster: cluster.clone() };
        let reply: Result<ListRoutesReply> = query(&self.api, "routes_list", &["v1", "routes", "list"], &request).await;
        Ok(reply.map_err(|error| error.during(LIST))?.routes.into_iter().map(to_route).collect())
    }

    async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        let request = CreateRouteRequest {
            cluster: cluster.clone(),
            name: route.name_hint.clone(),
            destination: route.destination.trunc(),
            node: route.node.clone(),
            provider_id: route.provider_id.clone(),
            addresses: route.node_addresses.clone(),
            cluster_uid: route.cluster_uid.clone(),
            limit: None,
        };
        let with_node = |error: Error| error.during(CREATE).context("node", route.node.as_str());
        check_next_hop(route).map_err(with_node)?;
        let created: Result<RouteRecord> =
            write(&self.api, "routes_create", &["v1", "routes", "create"], &request).await;
        let created = created.map_err(with_node)?;
        if created.destination != request.destination {
            return Err(with_node(invalid_response(CREATE, "the route has another destination")));
        }
        Ok(to_route(created))
    }

    async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        // IDs are never reused, so this is the route that was listed.
        let request = DeleteRouteRequest { cluster: cluster.clone(), id: route.id.clone() };
        let deleted: Result<Empty> = write(&self.api, "routes_delete", &["v1", "routes", "delete"], &request).await;
        match deleted {
            Err(error) if !error.is_not_found() => Err(error.during(DELETE)),
            // Already deleted.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Checks that the Node has an internal address in the family of the destination, which agents use as the next hop.
fn check_next_hop(route: &RouteSpec) -> Result<()> {
    let is_ipv4 = route.destination.addr().is_ipv4();
    let is_in_family =
        |address: &Address| address.address.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_ipv4() == is_ipv4);
    let mut internal = route.node_addresses.iter().filter(|address| address.kind == AddressType::InternalIP);
    if internal.any(is_in_family) {
        return Ok(());
    }
    let family = if is_ipv4 { "IPv4" } else { "IPv6" };
    let message = format!(
        "the Node has no InternalIP of the family {family}, so {} has no next hop; fix: check status.addresses of the Node",
        route.destination
    );
    Err(Error::new(ErrorKind::NotFound, CREATE, message))
}

fn to_route(record: RouteRecord) -> Route {
    Route {
        id: record.id,
        node: Some(record.node),
        provider_id: record.provider_id,
        node_addresses: Some(record.addresses),
        next_hop: None,
        destination: record.destination,
        blackhole: false,
        // Only managers create routes of agents.
        stamped: true,
        cluster_uid: record.cluster_uid,
    }
}
