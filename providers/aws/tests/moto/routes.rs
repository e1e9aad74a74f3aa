//! Bench for routes: the route table with the tag of the cluster.

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use serde_json::{Value, json};

use super::bench::MotoBench;
use super::moto::{list, text};

/// Returns a route; `None` for one without an IPv4 destination.
fn seen(route: &Value) -> Option<SeenRoute> {
    let (destination, machine) = (text(&route["DestinationCidrBlock"]), route["InstanceId"].as_str());
    Some(SeenRoute {
        id: format!("{destination} to {}", machine.unwrap_or_default()),
        destination: destination.parse().ok()?,
        machine: machine.map(str::to_owned),
        // Routes have no tags; the tag of the table names the cluster.
        owner: None,
    })
}

#[async_trait]
impl RouteBench for MotoBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        let tables = json!({"RouteTableIds": [self.id("rtb-nodes")]});
        let tables = self.moto.call("ec2", "describe_route_tables", tables).await;
        let routes = list(&tables["RouteTables"][0]["Routes"]).iter();
        // The route to the VPC itself cannot be changed.
        routes.filter(|route| route["GatewayId"] != "local").filter_map(seen).collect()
    }

    async fn put_foreign(&self, cluster: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let route = json!({"RouteTableId": self.id("rtb-nodes"), "InstanceId": foreign.machine,
            "DestinationCidrBlock": foreign.destination.to_string()});
        self.moto.call("ec2", "create_route", route).await;
        RouteBench::routes(self, cluster).await.into_iter().find(|one| one.destination == foreign.destination)
    }
}
