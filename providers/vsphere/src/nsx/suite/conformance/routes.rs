//! What the suite reads of static routes in the simulator, past the provider.

use std::net::IpAddr;

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use bowline_vsphere_simulator::nsx::{Fields, Record};
use serde_json::json;

use super::super::world::TIER1;
use super::bench::SimulatedBench;

impl SimulatedBench {
    fn seen_route(&self, record: &Record) -> SeenRoute {
        let hop = record["next_hops"][0]["ip_address"].as_str().and_then(|hop| hop.parse::<IpAddr>().ok());
        let tags = record.get("tags").and_then(|tags| tags.as_array()).into_iter().flatten();
        let mut owners = tags.filter(|tag| tag["scope"] == "vsphere.k8s.io/cluster-name");
        SeenRoute {
            id: record.text("id").to_owned(),
            destination: record.text("network").parse().unwrap(),
            machine: hop.and_then(|hop| self.machines.lock().unwrap().get(&hop).cloned()),
            owner: owners.next().and_then(|tag| Some(tag["tag"].as_str()?.into())),
        }
    }
}

#[async_trait]
impl RouteBench for SimulatedBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        self.cloud.objects("static-routes").iter().map(|record| self.seen_route(record)).collect()
    }

    async fn put_foreign(&self, _: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let is_of_family = |hop: &IpAddr| hop.is_ipv4() == foreign.destination.addr().is_ipv4();
        let machines = self.machines.lock().unwrap().clone();
        let (hop, _) = machines.iter().find(|(hop, machine)| is_of_family(hop) && **machine == foreign.machine)?;
        let path = format!("{TIER1}/static-routes/by-hand-{}", self.cloud.objects("static-routes").len());
        let network = foreign.destination.to_string();
        self.cloud.put(&path, json!({"network": network, "next_hops": [{"ip_address": hop.to_string()}]}));
        Some(self.seen_route(&self.cloud.object(&path)?))
    }
}
