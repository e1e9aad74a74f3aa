//! What the suite reads of tags and firewalls in the simulator, past the provider.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::ClusterSnapshot;
use bowline_conformance::LoopBench;
use bowline_core::service::ServiceType;
use bowline_core::{Instance, Protocol, Service};
use bowline_digitalocean_simulator::{Fields, Record};
use serde_json::{Value, json};

use super::cloud::{FIREWALL, SimulatedBench};

const TAG: &str = "k8s:conformance";
const ID: &str = "kubernetes.digitalocean.com/load-balancer-id";

/// Ports that the firewall opens, without those of health checks.
fn open_ports(firewall: &Record) -> BTreeSet<(String, String)> {
    let rules = firewall["inbound_rules"].as_array().into_iter().flatten();
    let open = rules.filter(|rule| rule["sources"]["addresses"].is_array());
    open.map(|rule| (rule["protocol"].as_str().unwrap().to_owned(), rule["ports"].as_str().unwrap().to_owned()))
        .collect()
}

/// Ports that the Services need.
fn wanted_ports(cluster: &ClusterSnapshot, passes_through: bool) -> BTreeSet<(String, String)> {
    let protocol = |protocol| if protocol == Protocol::Udp { "udp" } else { "tcp" }.to_owned();
    let mut ports = BTreeSet::new();
    for service in &cluster.services {
        for port in &service.ports {
            let number = match service.kind {
                ServiceType::NodePort => port.node_port,
                ServiceType::LoadBalancer => Some(port.port).filter(|_| passes_through),
                _ => None,
            };
            ports.extend(number.map(|number| (protocol(port.protocol), number.to_string())));
        }
    }
    ports
}

#[async_trait]
impl LoopBench for SimulatedBench {
    async fn writes(&self) -> u64 {
        self.cloud.writes().len() as u64
    }

    /// Creates a load balancer without the tag of the cluster, as an older manager would have.
    async fn add_service(&self, service: Service) -> Service {
        if service.kind != ServiceType::LoadBalancer {
            return service;
        }
        let id = self.cloud.put("load_balancers", json!({"name": format!("lb-{}", service.name)}));
        let mut annotations = (*service.annotations).clone();
        annotations.insert(ID.to_owned(), id);
        Service { annotations: Arc::new(annotations), ..service }
    }

    async fn check(&self, cluster: &ClusterSnapshot) -> Result<(), String> {
        let all = self.cloud.records("load_balancers");
        for service in &cluster.services {
            let Some(id) = service.annotations.get(ID) else { continue };
            let is_tagged = all.iter().any(|one| one.text("id") == id && one.texts("tags").contains(&TAG));
            if !is_tagged {
                return Err(format!("load balancer {id} of {} has no tag {TAG}", service.name));
            }
        }
        let firewalls = self.cloud.records("firewalls");
        let own: Vec<_> = firewalls.iter().filter(|one| one.text("name") == FIREWALL).collect();
        let [own] = own.as_slice() else { return Err(format!("{} firewalls, expected one", own.len())) };
        let (mut open, mut wanted) = (open_ports(own), wanted_ports(cluster, self.default_type == "REGIONAL_NETWORK"));
        // Health checks may be open to all while a load balancer has no ID.
        [&mut open, &mut wanted].into_iter().for_each(|ports| ports.retain(|(_, port)| port != "10256"));
        if open == wanted { Ok(()) } else { Err(format!("open are {open:?}, needed are {wanted:?}")) }
    }

    async fn put_foreign(&self, machine: &Instance) {
        self.cloud.put("load_balancers", json!({"name": format!("manual-{}", machine.name), "tags": ["k8s:other"]}));
        let rule = json!({"protocol": "tcp", "ports": "22", "sources": {"addresses": ["0.0.0.0/0"]}});
        self.cloud
            .put("firewalls", json!({"name": format!("manual-{}", machine.name), "inbound_rules": [rule], "tags": []}));
    }

    async fn foreign(&self) -> Vec<String> {
        let firewalls = self.cloud.records("firewalls").into_iter().filter(|one| one.text("name") != FIREWALL);
        let balancers =
            self.cloud.records("load_balancers").into_iter().filter(|one| one.texts("tags").contains(&"k8s:other"));
        firewalls.chain(balancers).map(|one| Value::Object(one).to_string()).collect()
    }
}
