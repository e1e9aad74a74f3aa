//! What the suite reads of the load balancers in the simulator, past the provider.

use std::time::Duration;

use async_trait::async_trait;
use bowline_conformance::{
    BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource,
    SeenTarget,
};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol};
use bowline_digitalocean_simulator::{Fields, Record, Work};
use serde_json::{Value, json};

use super::cloud::{PAGE, SimulatedBench};

/// Name of a Service's load balancer.
fn name_of(key: &LoadBalancerKey) -> String {
    format!("a{}", key.uid.replace('-', "")).chars().take(32).collect()
}

/// Name of a load balancer of any Service.
fn is_service_name(name: &str) -> bool {
    name.len() == 32 && name.starts_with('a') && name[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The mark of the load balancer: its name, and the tag of its cluster.
fn owners(record: &Record) -> Vec<LoadBalancerKey> {
    let (tags, name) = (record.texts("tags"), record.text("name"));
    let cluster = tags.iter().find_map(|tag| tag.strip_prefix("k8s:")).filter(|_| is_service_name(name));
    let key = |cluster: &str| LoadBalancerKey {
        cluster: cluster.into(),
        namespace: String::new(),
        service: name.to_owned(),
        uid: String::new(),
    };
    cluster.map(key).into_iter().collect()
}

fn resource(record: &Record) -> SeenResource {
    let mut rest = record.clone();
    rest.remove("tags");
    let owners = owners(record);
    SeenResource {
        kind: "load balancer".to_owned(),
        id: record.text("id").to_owned(),
        name: record.text("name").to_owned(),
        owners,
        summary: Value::Object(rest).to_string(),
    }
}

fn listener(rule: &Value, is_proxy: bool) -> SeenListener {
    let number = |field: &str| u16::try_from(rule[field].as_u64().unwrap()).unwrap();
    let protocol = if rule["entry_protocol"] == "udp" { Protocol::Udp } else { Protocol::Tcp };
    SeenListener { protocol, port: number("entry_port"), node_port: is_proxy.then(|| number("target_port")) }
}

/// Health check other than that of kube-proxy, which every load balancer has by default.
fn health_check(check: &Value) -> Option<SeenHealthCheck> {
    let (path, port) = (check["path"].as_str().unwrap_or_default(), check["port"].as_u64().unwrap_or_default());
    (port != 10256 || path != "/healthz").then(|| SeenHealthCheck {
        path: path.to_owned(),
        port: u16::try_from(port).unwrap(),
        interval: check["check_interval_seconds"].as_u64().map(Duration::from_secs),
    })
}

#[async_trait]
impl LoadBalancerBench for SimulatedBench {
    async fn resources(&self) -> Vec<SeenResource> {
        self.cloud.records("load_balancers").iter().map(resource).collect()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let all = self.cloud.records("load_balancers");
        // Without the tag of a cluster, the name is proof enough; the loop `tags` adds the tag.
        let is_ours = |tag: &&str| tag.strip_prefix("k8s:").is_none_or(|cluster| *cluster == *key.cluster.as_str());
        let own = all.iter().find(|one| one.text("name") == name_of(key) && one.texts("tags").iter().all(is_ours))?;
        let is_proxy = own.text("type") == "REGIONAL";
        let addresses = [own.text("ip"), own.text("ipv6")].into_iter().filter_map(|ip| ip.parse().ok());
        let ranges = own["firewall"]["allow"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(SeenLoadBalancer {
            id: own.text("id").to_owned(),
            name: own.text("name").to_owned(),
            addresses: addresses.collect(),
            listeners: own["forwarding_rules"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rule| listener(rule, is_proxy))
                .collect(),
            targets: own["droplet_ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| SeenTarget { machine: id.to_string(), draining: false })
                .collect(),
            source_ranges: ranges.filter_map(|range| range.strip_prefix("cidr:")?.parse().ok()).collect(),
            health_check: health_check(&own["health_check"]),
            proxy_protocol: own["enable_proxy_protocol"].as_bool().unwrap_or_default().then_some(ProxyProtocol::V1),
            idle_timeout: own["http_idle_timeout_seconds"].as_u64().map(Duration::from_secs),
            internal: Some(own.text("network") == "INTERNAL"),
            ..SeenLoadBalancer::default()
        })
    }

    fn uses_node_ports(&self, kind: Option<&str>) -> bool {
        kind.is_none_or(|kind| !kind.starts_with("regional-network"))
    }

    fn names_are_marks(&self) -> bool {
        true
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let tags: Vec<_> = foreign.owner.iter().map(|owner| format!("k8s:{}", owner.cluster)).collect();
        let kind = foreign.kind.unwrap_or_default();
        let of = if kind.starts_with("regional-network") { "REGIONAL_NETWORK" } else { "REGIONAL" };
        let network = if kind.ends_with("internal") { "INTERNAL" } else { "EXTERNAL" };
        let rule = json!({"entry_protocol": "tcp", "entry_port": 443, "target_protocol": "tcp", "target_port": 443});
        let id = self.cloud.put(
            "load_balancers",
            json!({"name": foreign.name, "tags": tags, "type": of, "network": network,
            "network_stack": "IPV4", "forwarding_rules": [rule]}),
        );
        self.resources().await.into_iter().find(|one| one.id == id)
    }

    fn list_page(&self) -> Option<usize> {
        Some(PAGE)
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes().len() as u64)
    }

    async fn stale(&self) -> BenchResult {
        self.cloud.freeze_view(true);
        *self.is_stale.lock().unwrap() = true;
        BenchResult::Done
    }

    async fn slow(&self) -> BenchResult {
        self.cloud.configure(|options| options.work = Work::Manual);
        BenchResult::Done
    }

    async fn fail_next(&self, changes: u64) -> BenchResult {
        self.cloud.fail_work(changes);
        BenchResult::Done
    }

    async fn settle(&self) {
        self.cloud.finish_work();
        if *self.is_stale.lock().unwrap() {
            self.cloud.freeze_view(false);
            self.cloud.freeze_view(true);
        }
    }
}
