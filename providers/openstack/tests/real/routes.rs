//! Bench for routes: the extra routes of a real router.

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use serde_json::{Value, json};

use super::cloud::Service::Network;
use super::cloud::{list, text};
use super::machines::RealBench;

impl RealBench {
    fn router(&self) -> String {
        format!("/routers/{}", self.project.router)
    }

    /// Returns the server with this address.
    async fn server_at(&self, address: &str) -> Option<String> {
        let ports = self.project.cloud.list(Network, &format!("/ports?fixed_ips=ip_address={address}")).await;
        let owner = ports.first().map(|port| text(&port["device_id"]));
        owner.filter(|server| !server.is_empty())
    }

    async fn seen(&self, route: &Value) -> SeenRoute {
        let (destination, hop) = (text(&route["destination"]), text(&route["nexthop"]));
        SeenRoute {
            machine: self.server_at(&hop).await,
            destination: destination.parse().unwrap(),
            // A router may have several next hops for one CIDR, so a route is identified by both.
            id: format!("{destination} via {hop}"),
            owner: None,
        }
    }
}

#[async_trait]
impl RouteBench for RealBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        let router = self.project.cloud.get(Network, &self.router()).await;
        let mut seen = Vec::new();
        for route in list(&router["router"]["routes"]) {
            seen.push(self.seen(route).await);
        }
        seen
    }

    async fn put_foreign(&self, _: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let ports = self.project.cloud.list(Network, &format!("/ports?device_id={}", foreign.machine)).await;
        let v6 = foreign.destination.addr().is_ipv6();
        let addresses = ports.iter().flat_map(|port| list(&port["fixed_ips"])).map(|ip| text(&ip["ip_address"]));
        let hop = addresses.into_iter().find(|address| address.contains(':') == v6)?;
        let route = json!({"destination": foreign.destination.to_string(), "nexthop": hop});
        let body = json!({"router": {"routes": [route]}});
        self.project.cloud.put(Network, &format!("{}/add_extraroutes", self.router()), body).await;
        Some(self.seen(&route).await)
    }
}
