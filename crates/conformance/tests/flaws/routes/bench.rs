//! Hands for the toy's cloud.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{Bench, ForeignRoute, Hand, RouteBench, SeenRoute, Trouble, WantedMachine};
use bowline_core::{Address, AddressType, ClusterName, Instance, ProviderId};

use super::cloud::Record;
use super::provider::Toy;

pub(super) struct ToyBench {
    pub(super) toy: Arc<Toy>,
    /// Its cloud can be broken on demand.
    pub(super) can: bool,
}

#[async_trait]
impl Bench for ToyBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.toy.clone()
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let mut addresses = machine.addresses.clone();
        if addresses.is_empty() {
            addresses.push(Address::new(AddressType::InternalIP, "10.0.0.1"));
        }
        let name = machine.name.clone();
        self.toy.cloud.add(|id| Instance {
            provider_id: Some(ProviderId::of("toy", &id)),
            id,
            name,
            addresses,
            ..Instance::default()
        })
    }

    /// The toy does not tell a stopped machine from a running one.
    async fn stop(&self, _: &Instance) {}

    async fn start(&self, _: &Instance) {}

    async fn delete(&self, instance: &Instance) {
        self.toy.cloud.delete(&instance.id);
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.toy.cloud.edit(&instance.id, |machine| machine.name = name.to_owned());
        true
    }

    async fn trouble(&self, trouble: Option<Trouble>) -> bool {
        self.toy.cloud.trouble(trouble.filter(|_| self.can));
        self.can
    }

    async fn crash_after(&self, calls: Option<u64>) -> Hand {
        self.toy.cloud.crash_after(calls.filter(|_| self.can));
        if self.can { Hand::Done } else { Hand::Cannot }
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.toy.cloud.calls())
    }
}

#[async_trait]
impl RouteBench for ToyBench {
    async fn routes(&self, _: &ClusterName) -> Vec<SeenRoute> {
        self.toy.cloud.routes().iter().map(|record| seen(record)).collect()
    }

    async fn put_foreign(&self, _: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let record = Record {
            id: 0,
            hint: String::new(),
            destination: foreign.destination,
            machine: foreign.machine.clone(),
            node: "whoever".to_owned(),
            addresses: Vec::new(),
            owner: None,
        };
        self.toy.cloud.put(record).ok().map(|record| seen(&record))
    }
}

fn seen(record: &Record) -> SeenRoute {
    let Record { id, destination, machine, owner, .. } = record;
    let (machine, owner) = (Some(machine.clone()), owner.clone());
    SeenRoute { id: id.to_string(), destination: *destination, machine, owner }
}
