//! Routes of the simulator, read directly and not through the provider.

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use bowline_simulator::{Fields, Record};
use serde_json::json;

use crate::AcmeBench;

#[async_trait]
impl RouteBench for AcmeBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        self.cloud.all("route").iter().map(route).collect()
    }

    async fn put_foreign(&self, _: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let ForeignRoute { destination, machine } = foreign;
        Some(route(&self.cloud.add_route(json!({"destination": destination, "server": machine}))))
    }
}

fn route(record: &Record) -> SeenRoute {
    let text = |field: &str| record.get(field).and_then(|value| value.as_str()).map(str::to_owned);
    SeenRoute {
        id: record.text("id").to_owned(),
        destination: record.text("destination").parse().unwrap(),
        machine: text("server"),
        owner: text("cluster").map(|cluster| cluster.as_str().into()),
    }
}
