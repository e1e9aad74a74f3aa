//! Bench for load balancers: resources of the simulated Octavia and Neutron.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use bowline_cloud::LoadBalancerKind;
use bowline_conformance::{BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenLoadBalancer, SeenResource};
use bowline_core::LoadBalancerKey;
use bowline_openstack_simulator::{Kind, Work};
use serde_json::{Value, json};

use super::cloud::SimulatedBench;
use crate::resources::{ProjectResources, mark, text};

/// Address in the subnet of the machines, which an internal load balancer may request.
const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 40, 77));

impl SimulatedBench {
    fn all(&self, kind: Kind) -> Vec<Value> {
        self.cloud.records(kind).into_iter().map(Value::Object).collect()
    }

    fn project_resources(&self) -> ProjectResources {
        let mut members: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for member in self.all(Kind::Member) {
            let pool = self.cloud.owner(Kind::Member, &text(&member["id"])).unwrap_or_default();
            members.entry(pool).or_default().push(member);
        }
        ProjectResources {
            balancers: self.all(Kind::LoadBalancer),
            listeners: self.all(Kind::Listener),
            pools: self.all(Kind::Pool),
            monitors: self.all(Kind::HealthMonitor),
            members,
            floating_ips: self.all(Kind::FloatingIp),
            security_groups: self.all(Kind::SecurityGroup),
            ports: self.all(Kind::Port),
        }
    }
}

impl SimulatedBench {
    /// Attaches a floating IP of the project to a load balancer.
    fn attach_floating_ip(&self, address: IpAddr, balancer: &str) {
        let port = self.cloud.record(Kind::LoadBalancer, balancer).unwrap()["vip_port_id"].clone();
        let ips = self.cloud.records(Kind::FloatingIp);
        let ip = ips.iter().find(|ip| ip["floating_ip_address"] == address.to_string()).unwrap();
        self.cloud.edit(Kind::FloatingIp, &text(&ip["id"]), |ip| drop(ip.insert("port_id".to_owned(), port)));
    }
}

#[async_trait]
impl LoadBalancerBench for SimulatedBench {
    async fn resources(&self) -> Vec<SeenResource> {
        self.project_resources().resources()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        self.project_resources().balancer(key)
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
        let mut balancer =
            json!({"name": name, "tags": tags, "listeners": [listener], "vip_subnet_id": self.networks.v4});
        let vip = foreign.address.filter(|address| *address == VIP);
        if let Some(vip) = vip {
            balancer["vip_address"] = json!(vip);
        }
        let id = self.cloud.add_balancer(balancer)?;
        if let Some(address) = foreign.address.filter(|_| vip.is_none()) {
            self.attach_floating_ip(address, &id);
        }
        self.resources().await.into_iter().find(|one| one.kind == "loadbalancer" && one.id == id)
    }

    async fn free_address(&self, kind: Option<&str>) -> Option<IpAddr> {
        if kind == Some(LoadBalancerKind::INTERNAL) {
            return Some(VIP);
        }
        // A floating IP can be requested only by a project that has it.
        let address: IpAddr = [203, 0, 113, 77].into();
        let ip = json!({"floating_network_id": self.fixture.external_network, "floating_ip_address": address});
        self.cloud.add(Kind::FloatingIp, ip);
        Some(address)
    }

    fn affinity_is_timed(&self) -> bool {
        // Octavia's session persistence has no timeout.
        false
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes().len() as u64)
    }

    async fn stale(&self) -> BenchResult {
        // The services respond from their database.
        BenchResult::Never
    }

    async fn slow(&self) -> BenchResult {
        self.cloud.set_work(Work::Manual);
        BenchResult::Done
    }

    async fn fail_next(&self, changes: u64) -> BenchResult {
        self.cloud.fail_work(changes);
        BenchResult::Done
    }

    async fn settle(&self) {
        self.cloud.finish_work();
    }
}
