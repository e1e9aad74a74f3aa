//! Bench for instances: VMs of the second vCenter, in a datacenter that has no others. All datacenters are searched: without the named
//! one, a vCenter that shows nothing would be a wrong configuration, and not a wrong response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, CloudProvider, FlagValues, SecretData, SecretRef};
use bowline_config::{ConfigFile, Environment};
use bowline_conformance::{Bench, BenchResult, InducedFault, SecretBench, WantedMachine};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::vcsim::{Vcsim, text};

/// Maximum number of objects on a page, few enough that the suite fills several.
const PAGE: usize = 5;

/// Host of the VMs. Its datacenter has no others.
const HOST: &str = "DC1_C0_H0";

/// Addresses of a VM that the suite does not choose.
const ADDRESSES: [&str; 2] = ["10.10.3.1", "fd00:cccc::1"];

/// Label of all Nodes.
pub(crate) const LABEL: (&str, &str) = ("example.com/rack", "r1");

/// A provider on a vCenter with one VM, of a Node that no case has.
pub(crate) struct VcsimBench {
    pub(crate) vcsim: Vcsim,
    provider: Arc<dyn CloudProvider>,
    secrets: Arc<Passwords>,
    created: AtomicU64,
}

/// Contents of the Secret.
struct Passwords {
    vcsim: Vcsim,
    current: Mutex<String>,
}

impl VcsimBench {
    /// Resets the vCenter, and builds the provider.
    pub(crate) async fn new(vcsim: Vcsim) -> VcsimBench {
        vcsim.reset().await;
        vcsim.limit_pages(PAGE).await;
        let current = Mutex::new(vcsim.value("password"));
        let secrets = Arc::new(Passwords { vcsim: vcsim.clone(), current });
        let provider = start(&vcsim, &secrets).await;
        VcsimBench { vcsim, provider, secrets, created: AtomicU64::default() }
    }

    /// Returns the expected description of a VM. Its ID is the same for both byte orders of the UUID: the lesser one.
    fn expected(name: &str, vm: &Value, addresses: &[String]) -> Instance {
        let (uuid, system_uuid) = (text(&vm["uuid"]), text(&vm["systemUUID"]));
        let first = |is_v6: bool| addresses.iter().find(|address| address.contains(':') == is_v6).cloned();
        let mut expected = vec![Address::new(AddressType::Hostname, name)];
        for address in [first(false), first(true)].into_iter().flatten() {
            let kinds = [AddressType::InternalIP, AddressType::ExternalIP];
            expected.extend(kinds.map(|kind| Address::new(kind, address.clone())));
        }
        Instance {
            provider_id: Some(ProviderId::of("vsphere", &uuid)),
            id: uuid.min(system_uuid),
            name: name.to_owned(),
            instance_type: "vsphere-vm.cpu-2.mem-4gb.os-ubuntu".to_owned(),
            region: "region-3".to_owned(),
            zone: "zone-f".to_owned(),
            addresses: expected,
            labels: [LABEL].map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Instance::default()
        }
    }

    /// Returns the name of the VM in vCenter, which differs from that of the Node.
    pub(crate) fn vm(instance: &Instance) -> String {
        format!("vm-{}", instance.provider_id.as_ref().and_then(ProviderId::rest).unwrap_or_default())
    }
}

/// Builds and starts a provider with the credentials of the Secret.
async fn start(vcsim: &Vcsim, secrets: &Arc<Passwords>) -> Arc<dyn CloudProvider> {
    let provider = build(vcsim, &[]);
    for secret in provider.secrets() {
        provider.on_secret(&secret, Some(&secrets.contents(&secret).await)).await.unwrap();
    }
    // A case may begin with a broken cloud, and then starts the provider itself.
    let _ = provider.start().await;
    provider
}

/// Builds a provider with these variables, whose Secret was not read yet.
pub(crate) fn build(vcsim: &Vcsim, variables: &[(&str, &str)]) -> Arc<dyn CloudProvider> {
    let file = json!({
        "global": {"secretName": "vsphere", "secretNamespace": "kube-system", "caFile": vcsim.value("ca"), "ipFamily": ["ipv4", "ipv6"]},
        "vcenter": {"two": {
            "server": vcsim.value("host"),
            "port": vcsim.value("port").parse::<u16>().unwrap(),
        }},
        "labels": {"region": "k8s-region", "zone": "k8s-zone"},
    });
    let variables = variables.iter().copied().chain([("ENABLE_ALPHA_DUAL_STACK", "")]);
    let environment = Environment::from_iter(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // VS-73
    let labels = vec![format!("{}={}", LABEL.0, LABEL.1)];
    let flags = FlagValues::new([("node-labels".to_owned(), labels)]);
    let inputs = BuildInputs { environment, flags, ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("vsphere.conf", file.to_string()), "conformance".into());
    (bowline_vsphere::factory().build)(&inputs.context(Some(&file), &cluster)).unwrap()
}

/// Faults of the proxy for a failure of the cloud.
fn faults(fault: InducedFault) -> Value {
    let http = |status: u16, body: &str| json!({"kind": "http", "status": status, "body": body});
    let mut fault = match fault {
        // A rejected login would not be repeated for three minutes, so sessions are opened, and rejected by all other calls.
        InducedFault::Unauthenticated => return except_logins("NotAuthenticated"),
        InducedFault::Forbidden => return except_logins("NoPermission"),
        InducedFault::Throttled(wait) => {
            let headers = json!({"Retry-After": wait.as_secs().to_string()});
            json!({"kind": "http", "status": 429, "headers": headers})
        }
        InducedFault::Broken => http(503, "no server is available"),
        InducedFault::Empty => json!({"kind": "empty"}),
        InducedFault::Garbled => http(200, "<html>welcome</html>"),
        InducedFault::NotFound(body) => http(404, body),
        InducedFault::Slow(delay) => json!({"delayMillis": delay.as_millis()}),
    };
    fault["method"] = json!("*");
    json!([fault])
}

/// A fault of all calls but those of a login. The first fault that applies counts, and one without kind only lets the call pass.
fn except_logins(kind: &str) -> Value {
    json!([{"method": "RetrieveServiceContent"}, {"method": "Login"}, {"method": "*", "kind": kind}])
}

/// Faults of the proxy for a crash: the response to the last of this many calls is lost, and later calls are not executed.
fn crash(calls: u64) -> Value {
    let after = calls.saturating_sub(1);
    let lost = (calls > 0).then(|| json!({"method": "*", "after": after, "count": 1, "kind": "lost"}));
    lost.into_iter().chain([json!({"method": "*", "after": after, "kind": "drop"})]).collect()
}

#[async_trait]
impl Bench for VcsimBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        start(&self.vcsim, &self.secrets).await
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.vcsim.value("password")]
    }

    fn secret_store(&self) -> Option<&dyn SecretBench> {
        Some(&*self.secrets)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let uuid = format!("4237b222-0003-4000-8000-{number:012x}");
        let chosen = machine.addresses.iter().filter(|address| address.address.parse::<std::net::IpAddr>().is_ok());
        let mut addresses: Vec<_> = chosen.map(|address| address.address.clone()).collect();
        if addresses.is_empty() {
            addresses = ADDRESSES.map(str::to_owned).into();
        }
        let fields = json!({
            "host": HOST, "uuid": uuid, "hostName": machine.name, "cpus": 2, "memoryMB": 4096, "guestId": "ubuntu64Guest",
            "nics": [{"network": "internal_net", "ips": addresses}],
        });
        let vm = self.vcsim.put_machine(&format!("vm-{uuid}"), &fields).await;
        Self::expected(&machine.name, &vm, &addresses)
    }

    async fn stop(&self, instance: &Instance) {
        self.vcsim.put_machine(&Self::vm(instance), &json!({"power": "poweredOff"})).await;
    }

    async fn start(&self, instance: &Instance) {
        self.vcsim.put_machine(&Self::vm(instance), &json!({"power": "poweredOn"})).await;
    }

    async fn delete(&self, instance: &Instance) {
        self.vcsim.delete_machine(&Self::vm(instance)).await;
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.vcsim.put_machine(&Self::vm(instance), &json!({"hostName": name})).await;
        true
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        match fault {
            Some(fault) => self.vcsim.set_faults(&faults(fault)).await,
            None => self.vcsim.clear_faults().await,
        }
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        match calls {
            Some(calls) => self.vcsim.set_faults(&crash(calls)).await,
            None => self.vcsim.clear_faults().await,
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        u64::try_from(self.vcsim.journal().await.len()).ok()
    }

    /// In upper case, and in the byte order of the firmware.
    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        let id = instance.provider_id.as_ref().and_then(ProviderId::rest).unwrap_or_default();
        vec![ProviderId::of("vsphere", &id.to_uppercase()), ProviderId::of("vsphere", &instance.id)]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "4237b222", "/4237b222-0003-4000-8000-000000000000"].map(|rest| ProviderId::of("vsphere", rest)).into()
    }
}

#[async_trait]
impl SecretBench for Passwords {
    async fn contents(&self, _secret: &SecretRef) -> SecretData {
        let server = self.vcsim.value("host");
        let password = self.current.lock().await.clone();
        let values =
            [(format!("{server}.username"), self.vcsim.value("user")), (format!("{server}.password"), password)];
        values.into_iter().map(|(key, value)| (key, value.into_bytes())).collect()
    }

    async fn rotate(&self) {
        let mut current = self.current.lock().await;
        *current = format!("{current}-rotated");
        self.vcsim.set_password(&current).await;
    }
}
