//! A simulated manager, and machines that are nothing but addresses: NSX knows no Nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, RouteBench, WantedMachine};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use bowline_vsphere_simulator::nsx::{Fault, FaultSpec, Options, PASSWORD, Simulator, error_fault};
use serde_json::json;

use super::super::world::{TIER1, balancers, provider, simulator};
use crate::config::nsx::{AppProfile, IpPool, LbService, LoadBalancerConfig};

/// Page size of the manager, for the cases about pages.
pub(super) const PAGE: usize = 4;

/// Who creates the LB service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The provider.
    Managed,
    /// A user. Pools and profiles are configured by name.
    Existing,
}

pub(super) struct SimulatedBench {
    pub(super) cloud: Simulator,
    pub(super) mode: Mode,
    config: LoadBalancerConfig,
    provider: Arc<dyn CloudProvider>,
    /// Machine by address.
    pub(super) machines: Mutex<BTreeMap<IpAddr, String>>,
    pub(super) is_stale: Mutex<bool>,
}

impl SimulatedBench {
    pub(super) fn new(mode: Mode) -> SimulatedBench {
        let cloud = simulator(Options { rate_limit: u32::MAX, ..Options::default() });
        cloud.add_ip_pool("many", "10.0.16.1-10.0.16.250");
        let config = config(&cloud, mode);
        let provider = Arc::new(provider(&cloud, config.clone()));
        SimulatedBench { cloud, mode, config, provider, machines: Mutex::default(), is_stale: Mutex::default() }
    }

    /// Returns an address that no other machine has.
    fn free(&self, wanted: IpAddr, machine: &str) -> IpAddr {
        let used = &mut *self.machines.lock().unwrap();
        let [high, low] = u16::try_from(used.len()).unwrap().to_be_bytes();
        let other = match wanted {
            IpAddr::V4(_) => [10, 0, 128 + high, low].into(),
            IpAddr::V6(_) => [0xfd00, 0, 0, 0, 0, 0, 2, u16::from_be_bytes([high, low])].into(),
        };
        let address = if used.contains_key(&wanted) { other } else { wanted };
        used.insert(address, machine.to_owned());
        address
    }
}

fn config(cloud: &Simulator, mode: Mode) -> LoadBalancerConfig {
    let mut config = balancers();
    let default = config.classes.get_mut("default").unwrap();
    default.pool = IpPool::Id("many".to_owned());
    if mode == Mode::Existing {
        let service = json!({"display_name": "shared", "size": "MEDIUM", "enabled": true, "connectivity_path": TIER1});
        cloud.put("/infra/lb-services/shared", service);
        config.service = LbService::Existing { id: "shared".to_owned(), tier1: Some(TIER1.to_owned()) };
        default.pool = IpPool::Name("many".to_owned());
        default.tcp_profile = AppProfile::Name("default-tcp-lb-app-profile".to_owned());
        default.udp_profile = AppProfile::Name("default-udp-lb-app-profile".to_owned());
    }
    config
}

#[async_trait]
impl Bench for SimulatedBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    fn timeout(&self) -> Duration {
        // 200 routes are created one after the other, and each takes some time to be realised.
        Duration::from_secs(600)
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        Arc::new(provider(&self.cloud, self.config.clone()))
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let id = format!("{}-{}", machine.name, self.machines.lock().unwrap().len());
        let of = |one: &Address| match (one.kind, one.address.parse()) {
            (AddressType::InternalIP, Ok(ip)) => Address::new(one.kind, self.free(ip, &id).to_string()),
            _ => one.clone(),
        };
        let addresses = machine.addresses.iter().map(of).collect();
        let provider_id = Some(ProviderId::of("vsphere", &id));
        Instance { provider_id, name: machine.name.clone(), addresses, id, ..Instance::default() }
    }

    async fn stop(&self, _: &Instance) {}

    async fn start(&self, _: &Instance) {}

    async fn delete(&self, instance: &Instance) {
        self.machines.lock().unwrap().retain(|_, machine| *machine != instance.id);
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.cloud.repair_all();
        let Some(fault) = fault else { return true };
        let fault = match fault {
            // Not a wrong password, which rests for a minute, so that no account is locked.
            InducedFault::Unauthenticated => error_fault(403, 98, "Bad XSRF token."),
            InducedFault::Forbidden => error_fault(403, 289, "The requested operation is not permitted."),
            InducedFault::Throttled(after) => Fault::Throttled(Some(after)),
            InducedFault::Broken => Fault::Answer(503, String::new()),
            InducedFault::Empty => Fault::Empty,
            InducedFault::Garbled => Fault::Garbled,
            InducedFault::NotFound(body) => Fault::Answer(404, body.to_owned()),
            InducedFault::Slow(delay) => Fault::Slow(delay),
        };
        self.cloud.inject(FaultSpec::always(fault));
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        self.cloud.repair_all();
        if let Some(calls) = calls {
            self.cloud.crash_after(calls);
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls())
    }
}
