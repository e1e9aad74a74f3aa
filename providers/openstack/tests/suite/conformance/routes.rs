//! Bench for routes: the extra routes of the cloud's router.

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use bowline_openstack_simulator::{Kind, Record};
use serde_json::{Value, json};

use super::cloud::SimulatedBench;
use crate::resources::{list, text};

impl SimulatedBench {
    fn seen(&self, route: &Value) -> SeenRoute {
        let (destination, hop) = (text(&route["destination"]), text(&route["nexthop"]));
        let machine = self.ports_at(&hop).first().map(|port| text(&port["device_id"]));
        // A router may have several next hops for one CIDR, so a route is identified by both.
        SeenRoute {
            machine,
            destination: destination.parse().unwrap(),
            id: format!("{destination} via {hop}"),
            owner: None,
        }
    }

    pub(crate) fn ports_at(&self, address: &str) -> Vec<Record> {
        let has = |port: &Record| list(&port["fixed_ips"]).iter().any(|ip| ip["ip_address"] == address);
        self.cloud.records(Kind::Port).into_iter().filter(has).collect()
    }
}

#[async_trait]
impl RouteBench for SimulatedBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        let router = self.cloud.record(Kind::Router, &self.fixture.router).unwrap();
        list(&router["routes"]).iter().map(|route| self.seen(route)).collect()
    }

    async fn put_foreign(&self, _: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let ports = self.cloud.records(Kind::Port);
        let own = ports.iter().filter(|port| port["device_id"] == foreign.machine);
        let mut addresses = own.flat_map(|port| list(&port["fixed_ips"])).map(|ip| text(&ip["ip_address"]));
        let v6 = foreign.destination.addr().is_ipv6();
        let hop = addresses.find(|address| address.contains(':') == v6)?;
        let route = json!({"destination": foreign.destination.to_string(), "nexthop": hop});
        self.cloud.edit(Kind::Router, &self.fixture.router, |router| {
            if let Some(Value::Array(routes)) = router.get_mut("routes") {
                routes.push(route.clone());
            }
        });
        Some(self.seen(&route))
    }
}
