//! A bench for machines of a YAML file.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bowline_cloud::{Calls, CloudProvider};
use bowline_cloudlycke::Cloudlycke;
use bowline_conformance::{Bench, InducedFault, WantedMachine};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use serde_json::{Value, json};

use crate::host::{Folder, count_calls, count_calls_of, erased, provider_with};

/// A bench for machines in a file.
pub(crate) struct InventoryBench {
    folder: Folder,
    /// Further settings of the provider.
    more: String,
    machines: Mutex<Vec<Value>>,
    next: AtomicU64,
    provider: Arc<Cloudlycke>,
    calls: Calls,
    metrics: prometheus::Registry,
}

pub(super) async fn bench() -> Box<dyn Bench> {
    Box::new(InventoryBench::new("").await)
}

fn build(folder: &Folder, more: &str, calls: &Calls) -> Arc<Cloudlycke> {
    let file = folder.0.join("machines.yaml");
    provider_with(&format!("backend: inventory\ninventoryFile: {}\ncacheSeconds: 0\n{more}", file.display()), calls)
}

impl InventoryBench {
    /// Creates a bench for a provider with these further settings.
    pub(crate) async fn new(more: &str) -> InventoryBench {
        let folder = Folder::new();
        let (calls, metrics) = (Calls::default(), prometheus::Registry::new());
        calls.register_metrics("cloudlycke", &metrics);
        let provider = build(&folder, more, &calls);
        let (more, machines, next) = (more.to_owned(), Mutex::default(), AtomicU64::new(1));
        let bench = InventoryBench { folder, more, machines, next, provider, calls, metrics };
        // A list without machines proves nothing, so there is always one more.
        bench.add(&WantedMachine { name: "bystander".to_owned(), ..WantedMachine::default() }).await;
        bench
    }

    /// Returns the number of reads of the file.
    pub(crate) fn reads(&self) -> u64 {
        count_calls_of(&self.metrics, |call| call == "read_inventory")
    }

    /// Returns the ID of the machine of this name.
    pub(crate) fn id_of(&self, name: &str) -> Option<String> {
        let machines = self.machines.lock().unwrap();
        Some(machines.iter().find(|one| one["name"] == name)?["id"].as_str()?.to_owned())
    }

    fn write(&self) {
        let machines = self.machines.lock().unwrap();
        self.replace(&json!({ "machines": *machines }).to_string());
    }

    fn replace(&self, text: &str) {
        fs::write(self.folder.0.join("machines.yaml"), text).unwrap();
    }

    fn edit(&self, instance: &Instance, key: &str, value: &str) {
        let mut machines = self.machines.lock().unwrap();
        machines.iter_mut().filter(|one| one["id"] == instance.id).for_each(|one| one[key] = value.into());
        drop(machines);
        self.write();
    }
}

#[async_trait]
impl Bench for InventoryBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        erased(&self.provider)
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        erased(&build(&self.folder, &self.more, &self.calls))
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let (id, ip) = (format!("id-{number}"), format!("10.0.{}.{}", number / 250, number % 250 + 1));
        let has_ipv6 = machine.addresses.iter().any(|address| address.address.contains(':'));
        let ips: Vec<_> = [ip].into_iter().chain(has_ipv6.then(|| format!("fd00::{number}"))).collect();
        let entry = json!({"name": machine.name, "id": id, "addresses": ips, "cpus": 2, "memoryMiB": 1024, "zone": "rack-1", "region": "lab", "labels": {"disk": "ssd"}});
        self.machines.lock().unwrap().push(entry);
        self.write();
        let of = |kind: AddressType| ips.iter().map(move |ip| Address::new(kind, ip.clone()));
        let hostname = Address::new(AddressType::Hostname, machine.name.clone());
        let addresses = of(AddressType::InternalIP).chain(of(AddressType::ExternalIP)).chain([hostname]).collect();
        Instance {
            provider_id: Some(ProviderId::of("cloudlycke", &id)),
            id,
            name: machine.name.clone(),
            instance_type: "vbox.vm.1g.2cpu".to_owned(),
            zone: "rack-1".to_owned(),
            region: "lab".to_owned(),
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            addresses,
            ..Instance::default()
        }
    }

    async fn stop(&self, instance: &Instance) {
        self.edit(instance, "state", "poweroff");
    }

    async fn start(&self, instance: &Instance) {
        self.edit(instance, "state", "running");
    }

    async fn delete(&self, instance: &Instance) {
        self.machines.lock().unwrap().retain(|one| one["id"] != instance.id);
        self.write();
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.edit(instance, "name", name);
        true
    }

    /// A file has no credentials. The tests may run as root, which may read every file.
    fn can_occur(&self, fault: InducedFault) -> bool {
        matches!(fault, InducedFault::Broken | InducedFault::Empty | InducedFault::Garbled | InducedFault::NotFound(_))
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        match fault {
            None => self.write(),
            Some(InducedFault::Broken) => fs::remove_file(self.folder.0.join("machines.yaml")).unwrap(),
            Some(InducedFault::Empty) => self.replace("machines: []\n"),
            Some(InducedFault::Garbled) => self.replace("{\"machines\": [{\"name\": "),
            Some(InducedFault::NotFound(body)) => self.replace(body),
            Some(_) => return false,
        }
        true
    }

    async fn calls(&self) -> Option<u64> {
        Some(count_calls(&self.metrics))
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "cloudlycke://id-1", "a b", "a/b"].map(|rest| ProviderId::of("cloudlycke", rest)).into()
    }
}
