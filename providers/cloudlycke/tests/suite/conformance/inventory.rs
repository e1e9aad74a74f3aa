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

use crate::host::{Folder, count_calls, erased, provider_with};

struct InventoryBench {
    folder: Folder,
    machines: Mutex<Vec<Value>>,
    next: AtomicU64,
    provider: Arc<Cloudlycke>,
    calls: Calls,
    metrics: prometheus::Registry,
}

pub(super) async fn bench() -> Box<dyn Bench> {
    let folder = Folder::new();
    let (calls, metrics) = (Calls::default(), prometheus::Registry::new());
    calls.register_metrics("cloudlycke", &metrics);
    let provider = build(&folder, &calls);
    let (machines, next) = (Mutex::default(), AtomicU64::new(1));
    let bench = InventoryBench { folder, machines, next, provider, calls, metrics };
    // A list without machines proves nothing, so there is always one more.
    bench.add(&WantedMachine { name: "bystander".to_owned(), ..WantedMachine::default() }).await;
    Box::new(bench)
}

fn build(folder: &Folder, calls: &Calls) -> Arc<Cloudlycke> {
    let file = folder.0.join("machines.yaml");
    provider_with(&format!("backend: inventory\ninventoryFile: {}\ncacheSeconds: 0\n", file.display()), calls)
}

impl InventoryBench {
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
        erased(&build(&self.folder, &self.calls))
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let (id, ip) = (format!("id-{number}"), format!("10.0.{}.{}", number / 250, number % 250 + 1));
        let entry = json!({"name": machine.name, "id": id, "addresses": [ip], "cpus": 2, "memoryMiB": 1024, "zone": "rack-1", "region": "lab", "labels": {"disk": "ssd"}});
        self.machines.lock().unwrap().push(entry);
        self.write();
        let addresses = [
            (AddressType::InternalIP, ip.as_str()),
            (AddressType::ExternalIP, ip.as_str()),
            (AddressType::Hostname, machine.name.as_str()),
        ];
        Instance {
            provider_id: Some(ProviderId::of("cloudlycke", &id)),
            id,
            name: machine.name.clone(),
            instance_type: "vbox.vm.1g.2cpu".to_owned(),
            zone: "rack-1".to_owned(),
            region: "lab".to_owned(),
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            addresses: addresses.map(|(kind, address)| Address::new(kind, address)).into(),
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
