//! Hands for the toy's cloud.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{
    BalancerBench, Bench, ForeignBalancer, Hand, SeenBalancer, SeenHealthCheck, SeenResource, Trouble, WantedMachine,
};
use bowline_core::{Instance, IpFamily, LoadBalancerKey, Protocol, ProviderId, SessionAffinity};

use super::cloud::{Cloud, NewBalancer, Settings};
use super::provider::Toy;

pub(super) struct ToyBench {
    pub(super) toy: Arc<Toy>,
    pub(super) machines: AtomicU64,
    /// Its cloud can be broken on demand.
    pub(super) can: bool,
}

impl ToyBench {
    fn cloud(&self) -> &Cloud {
        &self.toy.cloud
    }

    fn hand(&self) -> Hand {
        if self.can { Hand::Done } else { Hand::Cannot }
    }
}

#[async_trait]
impl Bench for ToyBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.toy.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        self.toy.forget();
        self.toy.clone()
    }

    fn balancers(&self) -> Option<&dyn BalancerBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let id = format!("m{:04}", self.machines.fetch_add(1, Ordering::SeqCst));
        Instance {
            provider_id: Some(ProviderId::of("toy", &id)),
            id,
            name: machine.name.clone(),
            instance_type: String::new(),
            zone: String::new(),
            region: String::new(),
            addresses: machine.addresses.clone(),
            labels: Default::default(),
            pod_ranges: Vec::new(),
        }
    }

    async fn stop(&self, _: &Instance) {}

    async fn start(&self, _: &Instance) {}

    async fn delete(&self, _: &Instance) {}

    async fn trouble(&self, trouble: Option<Trouble>) -> bool {
        self.cloud().trouble(trouble.filter(|_| self.can));
        self.can
    }

    async fn crash_after(&self, calls: Option<u64>) -> Hand {
        self.cloud().crash_after(calls.filter(|_| self.can));
        self.hand()
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud().counts().0)
    }
}

#[async_trait]
impl BalancerBench for ToyBench {
    async fn resources(&self) -> Vec<SeenResource> {
        let (balancers, listeners) = self.cloud().everything();
        let mut all = Vec::new();
        for one in balancers {
            let summary = format!("{:?} internal={}", one.addresses, one.internal);
            let (kind, owners) = ("balancer".to_owned(), one.owners);
            all.push(SeenResource { kind, id: one.id, name: one.name, owners, summary });
        }
        for one in listeners {
            let summary = format!("{} {:?}", one.balancer, one.settings);
            let (kind, owners) = ("listener".to_owned(), one.owner.into_iter().collect());
            all.push(SeenResource { kind, id: one.id, name: one.name, owners, summary });
        }
        all
    }

    async fn balancer(&self, key: &LoadBalancerKey) -> Option<SeenBalancer> {
        let (balancers, listeners) = self.cloud().everything();
        let balancer = balancers.into_iter().find(|one| one.owners.iter().any(|mark| mark.marks(key)))?;
        let listeners: Vec<_> =
            listeners.into_iter().filter(|one| one.owner.as_ref().is_some_and(|mark| mark.marks(key))).collect();
        let settings: Vec<_> = listeners.into_iter().map(|one| one.settings).collect();
        let mut seen = SeenBalancer {
            id: balancer.id,
            name: balancer.name,
            addresses: balancer.addresses,
            internal: balancer.internal,
            listeners: settings.iter().map(Settings::listener).collect(),
            ..SeenBalancer::default()
        };
        // What is the same on all of them is so for the balancer; anything else looks like nothing that was wished.
        if let Some(first) = settings.first() {
            let alike = settings.iter().all(|one| one.targets == first.targets && one.ranges == first.ranges);
            seen.targets =
                if alike { first.seen_targets() } else { settings.iter().flat_map(Settings::seen_targets).collect() };
            seen.source_ranges = settings.iter().flat_map(|one| one.ranges.clone()).collect();
            seen.affinity = Some(first.affinity);
            seen.proxy_protocol = first.proxy;
            seen.idle_timeout = first.idle;
            let check = |(path, port, interval): &(String, u16, _)| SeenHealthCheck {
                path: path.clone(),
                port: *port,
                interval: *interval,
            };
            seen.health_check = first.check.as_ref().map(check);
        }
        Some(seen)
    }

    async fn put_foreign(&self, foreign: &ForeignBalancer) -> Option<SeenResource> {
        let new = NewBalancer {
            name: foreign.name.clone(),
            owners: foreign.owner.iter().map(|owner| self.toy.mark(owner)).collect(),
            address: foreign.address,
            families: vec![IpFamily::IPv4],
            internal: false,
        };
        let settings = Settings {
            protocol: Protocol::Tcp,
            port: 443,
            node_port: Some(30443),
            targets: Vec::new(),
            ranges: Vec::new(),
            affinity: SessionAffinity::None,
            check: None,
            proxy: None,
            idle: None,
        };
        let put = self.cloud().put(new, settings)?;
        self.resources().await.into_iter().find(|one| one.id == put.id)
    }

    async fn free_address(&self) -> Option<IpAddr> {
        Some(IpAddr::from([198, 51, 100, 77]))
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud().counts().1)
    }

    async fn stale(&self) -> Hand {
        self.cloud().be(self.can, false);
        self.hand()
    }

    async fn slow(&self) -> Hand {
        self.cloud().be(false, self.can);
        self.hand()
    }

    async fn settle(&self) {
        self.cloud().settle();
    }
}
