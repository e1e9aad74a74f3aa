//! A bench for machines of Vagrant, on a stand-in for `VBoxManage`.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_cloudlycke::Cloudlycke;
use bowline_conformance::{Bench, InducedFault, WantedMachine};
use bowline_core::{Address, AddressType, Instance, ProviderId};

use crate::host::{Host, erased};

struct VagrantBench {
    host: Host,
    provider: Arc<Cloudlycke>,
}

pub(super) async fn bench() -> Box<dyn Bench> {
    let host = Host::new();
    let provider = host.provider("");
    Box::new(VagrantBench { host, provider })
}

#[async_trait]
impl Bench for VagrantBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        erased(&self.provider)
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        erased(&self.host.provider(""))
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let vm = self.host.add(&machine.name);
        let address = |kind| Address::new(kind, vm.ip.as_str());
        let hostname = Address::new(AddressType::Hostname, machine.name.as_str());
        Instance {
            provider_id: Some(ProviderId::of("cloudlycke", &vm.key)),
            id: vm.key.clone(),
            name: machine.name.clone(),
            instance_type: "vbox.vm.1g.2cpu".to_owned(),
            zone: "virtualbox".to_owned(),
            region: "virtualbox".to_owned(),
            addresses: vec![address(AddressType::InternalIP), address(AddressType::ExternalIP), hostname],
            ..Instance::default()
        }
    }

    async fn stop(&self, instance: &Instance) {
        self.host.set_state(&self.host.by_key(&instance.id), "poweroff");
    }

    async fn start(&self, instance: &Instance) {
        self.host.set_state(&self.host.by_key(&instance.id), "running");
    }

    async fn delete(&self, instance: &Instance) {
        self.host.destroy(&self.host.by_key(&instance.id));
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.host.rename(&self.host.by_key(&instance.id), name);
        true
    }

    /// VirtualBox has no credentials and does not throttle.
    fn can_occur(&self, fault: InducedFault) -> bool {
        !matches!(fault, InducedFault::Unauthenticated | InducedFault::Throttled(_))
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        let fault = match fault {
            None => String::new(),
            Some(InducedFault::Unauthenticated | InducedFault::Throttled(_)) => return false,
            Some(InducedFault::Forbidden) => "denied".to_owned(),
            Some(InducedFault::Broken) => "broken".to_owned(),
            Some(InducedFault::Empty) => "empty".to_owned(),
            Some(InducedFault::Garbled) => "garbled".to_owned(),
            Some(InducedFault::NotFound(body)) => {
                std::fs::write(self.host.path("bin/reply"), body).unwrap();
                "reply".to_owned()
            }
            Some(InducedFault::Slow(delay)) => format!("slow {}", delay.as_secs_f64()),
        };
        self.host.fault(&fault);
        true
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.host.count())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        vec![ProviderId::of("cloudlycke", &instance.id.to_uppercase())]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "cloudlycke://m-c2-1", "a b", "a/b", "../x"].map(|rest| ProviderId::of("cloudlycke", rest)).into()
    }
}
