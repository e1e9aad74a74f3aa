//! Hands for balancers: what Octavia and Neutron have, asked of themselves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use async_trait::async_trait;
use bowline_cloud::LoadBalancerKind;
use bowline_conformance::{BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenLoadBalancer, SeenResource};
use bowline_core::LoadBalancerKey;
use http::Method;
use serde_json::json;

use super::cloud::Service::{LoadBalancer, Network};
use super::looks::{Everything, list, mark, text};
use super::machines::RealBench;

impl RealBench {
    async fn everything(&self) -> Everything {
        let cloud = &self.project.cloud;
        let pools = cloud.list(LoadBalancer, "/pools").await;
        let mut members = BTreeMap::new();
        for pool in &pools {
            let id = text(&pool["id"]);
            // It may go between two questions, and its members with it.
            let below = cloud.try_call(Method::GET, LoadBalancer, &format!("/pools/{id}/members"), None).await;
            members.insert(id, list(&below.body["members"]).to_vec());
        }
        Everything {
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

    /// Leads a floating IP of the project to a balancer.
    async fn lead(&self, address: IpAddr, balancer: &str) {
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
        self.everything().await.resources()
    }

    async fn balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        self.everything().await.balancer(key)
    }

    fn list_page(&self) -> Option<usize> {
        // Octavia lists all unless it is asked for fewer.
        None
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let tags: Vec<String> = foreign.owner.iter().map(mark).collect();
        let name = foreign.owner.as_ref().map_or_else(|| foreign.name.clone(), mark);
        let below = json!({"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
        let listener = json!({"protocol": "TCP", "protocol_port": 443, "tags": tags, "default_pool": below});
        let balancer = json!({"name": name, "tags": tags, "listeners": [listener],
            "vip_subnet_id": self.project.subnets[0]});
        let body = json!({"loadbalancer": balancer});
        let id = text(&self.project.cloud.post(LoadBalancer, "/loadbalancers", body).await["loadbalancer"]["id"]);
        self.settle().await;
        if let Some(address) = foreign.address {
            self.lead(address, &id).await;
        }
        self.resources().await.into_iter().find(|one| one.kind == "loadbalancer" && one.id == id)
    }

    async fn free_address(&self, kind: Option<&str>) -> Option<IpAddr> {
        if kind == Some(LoadBalancerKind::INTERNAL) {
            return None;
        }
        // A floating IP can be requested only by a project that has it.
        let ip = json!({"floatingip": {"floating_network_id": self.project.cloud.id("external_network")}});
        let made = self.project.cloud.post(Network, "/floatingips", ip).await;
        text(&made["floatingip"]["floating_ip_address"]).parse().ok()
    }

    fn affinity_is_timed(&self) -> bool {
        // Octavia keeps the connections of one client together, and says nothing of how long.
        false
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.wire.writes())
    }

    async fn stale(&self) -> BenchResult {
        // The services answer from their database.
        BenchResult::Never
    }

    async fn slow(&self) -> BenchResult {
        // It is slow by itself: every change takes a second or more.
        BenchResult::Done
    }

    async fn settle(&self) {
        self.project.settle().await;
    }
}
