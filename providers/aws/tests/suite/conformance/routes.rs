//! What the suite reads of the route table in the simulator, past the provider.

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use serde_json::Value;

use super::cloud::SimulatedBench;

fn seen(route: &Value) -> Option<SeenRoute> {
    let text = |field: &str| route[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let cidr = text("destinationCidrBlock")?;
    let machine = text("instanceId");
    let id = format!("{cidr} to {}", machine.clone().unwrap_or_default());
    Some(SeenRoute { id, destination: cidr.parse().ok()?, machine, owner: None })
}

#[async_trait]
impl RouteBench for SimulatedBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        let routes = self.cloud.routes(&self.cloud.fixture().node_table);
        routes.iter().filter(|route| route["origin"] == "CreateRoute").filter_map(seen).collect()
    }

    async fn put_foreign(&self, cluster: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let table = self.cloud.fixture().node_table;
        self.cloud.put_route(&table, &foreign.destination.to_string(), &foreign.machine);
        self.routes(cluster).await.into_iter().find(|route| route.destination == foreign.destination)
    }
}
