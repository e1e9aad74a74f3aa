//! Load balancer bench of the local cloud.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::LoadBalancerKind;
use bowline_conformance::agent_records::{address_resource, balancer_resource, seen_load_balancer};
use bowline_conformance::{BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenLoadBalancer, SeenResource};
use bowline_core::{IpFamily, LoadBalancerKey, Protocol};
use bowline_local::{BalancerOptions, BalancerSettings, Fault, FaultSpec, Listener, NewBalancer};

use super::LocalBench;

/// Load balancers without a data plane, with enough addresses of both families.
pub(crate) fn records() -> BalancerOptions {
    let nets = |nets: [&str; 2]| nets.map(|net| net.parse().unwrap()).into();
    BalancerOptions {
        pool: nets(["127.0.32.0/20", "fd00:1::/112"]),
        internal_pool: nets(["127.0.48.0/20", "fd00:2::/112"]),
        ..BalancerOptions::default()
    }
}

impl LocalBench {
    fn result(&self) -> BenchResult {
        if self.can { BenchResult::Done } else { BenchResult::Cannot }
    }
}

#[async_trait]
impl LoadBalancerBench for LocalBench {
    async fn resources(&self) -> Vec<SeenResource> {
        let balancers = self.cloud.balancers().into_iter().map(balancer_resource);
        balancers.chain(self.cloud.addresses().into_iter().map(address_resource)).collect()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let balancer = self.cloud.balancers().into_iter().find(|balancer| balancer.owner.as_ref() == Some(key))?;
        let addresses = self.cloud.addresses();
        let ip = |id: &String| addresses.iter().find(|address| address.id == *id).map(|address| address.ip);
        Some(SeenLoadBalancer {
            addresses: balancer.addresses.iter().filter_map(ip).collect(),
            ..seen_load_balancer(balancer)
        })
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let listener = Listener { protocol: Protocol::Tcp, port: 443, node_port: 30443 };
        let internal = foreign.address.is_some_and(|ip| records().internal_pool.iter().any(|net| net.contains(&ip)));
        let new = NewBalancer {
            name: foreign.name.clone(),
            owner: foreign.owner.clone(),
            ip: foreign.address,
            families: self.config.load_balancers.ip_families.iter().copied().take(1).collect(),
            settings: BalancerSettings { internal, listeners: vec![listener], ..BalancerSettings::default() },
            ..NewBalancer::default()
        };
        Some(balancer_resource(self.cloud.add_balancer(new).ok()?))
    }

    fn list_page(&self) -> Option<usize> {
        Some(self.cloud.page_size())
    }

    async fn free_address(&self, kind: Option<&str>) -> Option<IpAddr> {
        let v4 = self.config.load_balancers.ip_families.contains(&IpFamily::IPv4);
        let is_internal = kind == Some(LoadBalancerKind::INTERNAL);
        let address = match (v4, is_internal) {
            (true, false) => "127.0.40.77",
            (true, true) => "127.0.48.77",
            (false, false) => "fd00:1::77",
            (false, true) => "fd00:2::77",
        };
        address.parse().ok()
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes())
    }

    async fn stale(&self) -> BenchResult {
        self.late.store(self.can, Ordering::SeqCst);
        self.settle().await;
        self.result()
    }

    async fn slow(&self) -> BenchResult {
        self.cloud.set_work_time(Duration::from_secs(if self.can { 3600 } else { 0 }));
        self.result()
    }

    async fn fail_next(&self, changes: u64) -> BenchResult {
        self.cloud.fail_next_work(if self.can { changes } else { 0 });
        self.result()
    }

    async fn settle(&self) {
        self.cloud.finish_work();
        if self.late.load(Ordering::SeqCst) {
            self.cloud.repair_all();
            self.cloud.inject(FaultSpec::always(Fault::Stale));
        }
    }
}
