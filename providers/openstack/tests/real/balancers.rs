//! Bench for load balancers: resources of the real Octavia and Neutron.

use std::collections::BTreeMap;
use std::net::IpAddr;

use async_trait::async_trait;
use bowline_cloud::LoadBalancerKind;
use bowline_conformance::{BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenLoadBalancer, SeenResource};
use bowline_core::LoadBalancerKey;
use http::Method;
use serde_json::json;

use super::cloud::Service::{LoadBalancer, Network};
use super::machines::RealBench;
use super::resources::{ProjectResources, list, mark, text};

impl RealBench {
    async fn project_resources(&self) -> ProjectResources {
        let cloud = &self.project.cloud;
        let pools = cloud.list(LoadBalancer, "/pools").await;
        let mut members = BTreeMap::new();
        for pool in &pools {
            let id = text(&pool["id"]);
            // It may be deleted between two calls, with its members.
            let pool = cloud.try_call(Method::GET, LoadBalancer, &format!("/pools/{id}/members"), None).await;
            members.insert(id, list(&pool.body["members"]).to_vec());
        }
        ProjectResources {
            balancers: cloud.list(LoadBalancer, "/loadbalancers").await,
            listeners: cloud.list(LoadBalancer, "/listeners").await,
            pools,
            monitors: cloud.list(LoadBalancer, "/healthmonitors").await,
            members,
            floating_ips: cloud.list(Network, "/floatingips").await,
            security_groups: cloud.list(Network, "/security-groups").await,
            ports: cloud.list(Network, "/ports").await,
        }
    }

    /// Attaches a floating IP of the project to a load balancer.
    async fn attach_floating_ip(&self, address: IpAddr, balancer: &str) {
        let cloud = &self.project.cloud;
        let port =
            cloud.get(LoadBalancer, &format!("/loadbalancers/{balancer}")).await["loadbalancer"]["vip_port_id"].clone();
        let ips = cloud.list(Network, &format!("/floatingips?floating_ip_address={address}")).await;
        let path = format!("/floatingips/{}", text(&ips[0]["id"]));
        cloud.put(Network, &path, json!({"floatingip": {"port_id": port}})).await;
    }
}

#[async_trait]
impl LoadBalancerBench for RealBench {
    async fn resources(&self) -> Vec<SeenResource> {
        self.project_resources().await.resources()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        self.project_resources().await.balancer(key)
    }

    fn list_page(&self) -> Option<usize> {
        // Octavia lists project_resources unless a limit is requested.
        None
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let tags: Vec<String> = foreign.owner.iter().map(mark).collect();
        let name = foreign.owner.as_ref().map_or_else(|| foreign.name.clone(), mark);
        let pool = json!({"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
        let listener = json!({"protocol": "TCP", "protocol_port": 443, "tags": tags, "default_pool": pool});
        let balancer = json!({"name": name, "tags": tags, "listeners": [listener],
            "vip_subnet_id": self.project.subnets[0]});
        let body = json!({"loadbalancer": balancer});
        let id = text(&self.project.cloud.post(LoadBalancer, "/loadbalancers", body).await["loadbalancer"]["id"]);
        self.settle().await;
        if let Some(address) = foreign.address {
            self.attach_floating_ip(address, &id).await;
        }
        self.resources().await.into_iter().find(|one| one.kind == "loadbalancer" && one.id == id)
    }

    async fn free_address(&self, kind: Option<&str>) -> Option<IpAddr> {
        if kind == Some(LoadBalancerKind::INTERNAL) {
            return None;
        }
        // A floating IP can be requested only by a project that has it.
        let ip = json!({"floatingip": {"floating_network_id": self.project.cloud.id("external_network")}});
        let created = self.project.cloud.post(Network, "/floatingips", ip).await;
        text(&created["floatingip"]["floating_ip_address"]).parse().ok()
    }

    fn affinity_is_timed(&self) -> bool {
        // Octavia's session persistence has no timeout.
        false
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.wire.writes())
    }

    async fn stale(&self) -> BenchResult {
        // The services respond from their database.
        BenchResult::Never
    }

    async fn slow(&self) -> BenchResult {
        // It is slow anyway: every change takes a second or more.
        BenchResult::Done
    }

    async fn settle(&self) {
        self.project.settle().await;
    }
}
