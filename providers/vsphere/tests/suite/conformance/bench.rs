//! A simulated vCenter as a test bench.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{Bench, BenchResult, InducedFault, WantedMachine};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use bowline_vsphere_simulator::vcenter::{Machine, Nic, Options, PASSWORD, Vcenter, soap_fault};
use bowline_vsphere_simulator::{Fault, FaultSpec};
use http::Method;

use crate::world;

/// A provider on a simulated vCenter without machines.
pub(super) struct SimulatedBench {
    vcenter: Vcenter,
    config: &'static str,
    provider: Arc<dyn CloudProvider>,
    /// Number of machines so far.
    added: AtomicU32,
}

impl SimulatedBench {
    pub(super) fn new(config: &'static str) -> SimulatedBench {
        let vcenter = Vcenter::new(Options::default());
        let datacenter = vcenter.find("Datacenter", "DC0").unwrap();
        vcenter.tag("k8s-region", "region-1", &datacenter);
        vcenter.tag("k8s-zone", "zone-1", &datacenter);
        let provider = Arc::new(world::provider(std::slice::from_ref(&vcenter), config));
        SimulatedBench { vcenter, config, provider, added: AtomicU32::new(1) }
    }

    /// Name in the inventory, which is never the name of the Node.
    fn name_of(&self, instance: &Instance) -> String {
        format!("vm-{}", instance.id)
    }
}

#[async_trait]
impl Bench for SimulatedBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        Arc::new(world::provider(std::slice::from_ref(&self.vcenter), self.config))
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }

    /// The provider reports one internal and one external address.
    async fn add(&self, machine: &WantedMachine) -> Instance {
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        let uuid = format!("01020304-0506-0708-0000-{number:012}");
        let first = machine.addresses.iter().find(|address| address.kind == AddressType::InternalIP);
        let [_, _, high, low] = number.to_be_bytes();
        let address = first.map_or_else(|| format!("10.10.{high}.{low}"), |address| address.address.clone());
        let vm = Machine {
            name: format!("vm-{uuid}"),
            host_name: machine.name.clone(),
            uuid: uuid.clone(),
            nics: vec![Nic::with(&["127.0.0.1", &address])],
            ..Machine::default()
        };
        self.vcenter.add_machine(vm).unwrap();
        let has_zones = self.provider.capabilities().instances.as_ref().is_some_and(|instances| instances.zones);
        let placed = |text: &str| if has_zones { text.to_owned() } else { String::new() };
        let kinds = [
            (AddressType::Hostname, machine.name.as_str()),
            (AddressType::InternalIP, &address),
            (AddressType::ExternalIP, &address),
        ];
        Instance {
            id: uuid.clone(),
            name: machine.name.clone(),
            provider_id: Some(ProviderId::of("vsphere", &uuid)),
            instance_type: "vsphere-vm.cpu-2.mem-4gb.os-ubuntu".to_owned(),
            zone: placed("zone-1"),
            region: placed("region-1"),
            addresses: kinds.map(|(kind, text)| Address::new(kind, text)).into(),
            ..Instance::default()
        }
    }

    async fn stop(&self, instance: &Instance) {
        self.vcenter.change_machine(&self.name_of(instance), |machine| machine.power = "poweredOff".to_owned());
    }

    async fn start(&self, instance: &Instance) {
        self.vcenter.change_machine(&self.name_of(instance), |machine| machine.power = "poweredOn".to_owned());
    }

    async fn delete(&self, instance: &Instance) {
        self.vcenter.delete_machine(&self.name_of(instance));
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.vcenter.change_machine(&self.name_of(instance), |machine| machine.host_name = name.to_owned())
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.vcenter.repair_all();
        let fault = match fault {
            None => return true,
            // A session that never holds. Rejected logins pause for three minutes, so that no account is locked.
            Some(InducedFault::Unauthenticated) => {
                for method in
                    ["RetrievePropertiesEx", "FindAllByUuid", "FindAllByDnsName", "CreateContainerView", "CurrentTime"]
                {
                    let fault = FaultSpec::always(soap_fault("NotAuthenticated"));
                    self.vcenter.inject(fault.on(Method::POST, method));
                }
                return true;
            }
            Some(InducedFault::Forbidden) => soap_fault("NoPermission"),
            Some(InducedFault::Throttled(wait)) => Fault::Throttled(Some(wait)),
            Some(InducedFault::Broken) => Fault::Answer(503, "Service Unavailable".to_owned()),
            Some(InducedFault::Garbled) => Fault::Garbled,
            Some(InducedFault::Empty) => Fault::Empty,
            Some(InducedFault::NotFound(body)) => Fault::Answer(404, body.to_owned()),
            Some(InducedFault::Slow(delay)) => Fault::Slow(delay),
        };
        self.vcenter.inject(FaultSpec::always(fault));
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        match calls {
            Some(calls) => self.vcenter.crash_after(calls),
            None => self.vcenter.repair_all(),
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.vcenter.calls())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        let swapped = instance.id.replace("01020304-0506-0708", "04030201-0605-0807");
        let bare = ProviderId::new(&instance.id);
        let spellings = [instance.id.to_uppercase(), format!(" {} ", instance.id), swapped];
        bare.into_iter().chain(spellings.map(|rest| ProviderId::of("vsphere", &rest))).collect()
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "x", "00000000-0000-0000-0000-00000000000", "00000000_0000_0000_0000_000000000000", "../1"]
            .map(|rest| ProviderId::of("vsphere", rest))
            .into()
    }
}
