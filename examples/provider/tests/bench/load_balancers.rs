//! Load balancers of the simulator, read directly and not through the provider.

use async_trait::async_trait;
use bowline_conformance::{
    BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget,
};
use bowline_core::{LoadBalancerKey, Protocol};
use bowline_simulator::{Fields, Record};
use serde_json::{Value, json};

use crate::AcmeBench;
use crate::simulator::SMALL_PAGE;

#[async_trait]
impl LoadBalancerBench for AcmeBench {
    async fn resources(&self) -> Vec<SeenResource> {
        self.cloud.all("load_balancer").iter().map(resource).collect()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let own = self.cloud.all("load_balancer").into_iter().find(|one| owner(one).as_ref() == Some(key))?;
        let machine = |id: &Value| SeenTarget { machine: id.as_str().unwrap().to_owned(), draining: false };
        Some(SeenLoadBalancer {
            id: own.text("id").to_owned(),
            name: own.text("name").to_owned(),
            addresses: vec![own.text("ip").parse().unwrap()],
            listeners: own["ports"].as_array().unwrap().iter().map(listener).collect(),
            targets: own["servers"].as_array().unwrap().iter().map(machine).collect(),
            ..SeenLoadBalancer::default()
        })
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        Some(resource(&self.cloud.add_load_balancer(json!({"name": foreign.name, "owner": foreign.owner}))))
    }

    fn list_page(&self) -> Option<usize> {
        Some(SMALL_PAGE)
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes())
    }

    // The cloud shows each change at once.

    async fn stale(&self) -> BenchResult {
        BenchResult::Never
    }

    async fn slow(&self) -> BenchResult {
        BenchResult::Never
    }

    async fn fail_next(&self, _: u64) -> BenchResult {
        BenchResult::Never
    }
}

fn owner(record: &Record) -> Option<LoadBalancerKey> {
    serde_json::from_value(record["owner"].clone()).unwrap()
}

fn resource(record: &Record) -> SeenResource {
    SeenResource {
        kind: "load balancer".to_owned(),
        id: record.text("id").to_owned(),
        name: record.text("name").to_owned(),
        owners: owner(record).into_iter().collect(),
        summary: format!("{} {} {}", record["ip"], record["ports"], record["servers"]),
    }
}

fn listener(port: &Value) -> SeenListener {
    let number = |field: &str| u16::try_from(port[field].as_u64().unwrap()).unwrap();
    SeenListener { protocol: Protocol::Tcp, port: number("port"), node_port: Some(number("node_port")) }
}
