//! A cluster on two vCenters: API server, manager, VMs and their Nodes.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::process::Command;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::support::cluster::{Cluster, UNINITIALISED, taints};
use crate::support::{BOWLINE, Program, skip};
use crate::vcsim::{Vcsim, text};

/// Host of new VMs in the first vCenter: in zone-a and region-1.
const HOST: &str = "DC0_C0_H0";

/// Lets one story at a time use the vCenters.
static VCENTERS: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

pub(crate) struct Scene {
    pub(crate) first: Vcsim,
    pub(crate) second: Vcsim,
    cluster: Cluster,
    _vcenters: MutexGuard<'static, ()>,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Scene {
    /// Resets the vCenters; `None` and a report if there are none.
    pub(crate) async fn start(test: &str) -> Option<Scene> {
        let vcenters = VCENTERS.lock().await;
        let (Some(first), Some(second)) = (Vcsim::open("vcenter-1"), Vcsim::open("vcenter-2")) else {
            skip("no vcsim, BOWLINE_VSPHERE is not set");
            return None;
        };
        first.reset().await;
        second.reset().await;
        Some(Scene { first, second, cluster: Cluster::start(test).await, _vcenters: vcenters })
    }

    /// Starts the manager with the file of the folder that configures both vCenters.
    pub(crate) fn manager(&self, test: &str, file: &str) -> Program {
        let file = std::fs::read_to_string(self.first.folder().join(file)).unwrap();
        self.manager_with(test, &file)
    }

    /// Starts the manager with this configuration. Nodes of deleted VMs are deleted within seconds.
    pub(crate) fn manager_with(&self, test: &str, file: &str) -> Program {
        let file = self.server.scratch.file("vsphere.conf", file);
        let mut command = Command::new(BOWLINE);
        let is_setting =
            |name: &str| name.starts_with("VSPHERE_") || name.starts_with("VCENTER_") || name.starts_with("NSXT_");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_setting) {
                command.env_remove(name);
            }
        }
        command.env_remove("KUBECONFIG").env_remove("BOWLINE_LOG");
        command.args([
            "--cloud-provider=vsphere",
            &format!("--cloud-config={}", file.display()),
            &format!("--kubeconfig={}", self.server.kubeconfig().display()),
            "--leader-elect=false",
            "--secure-port=0",
            "--node-monitor-period=500ms",
            "--node-deletion-grace-period=1s",
            "--node-deletion-confirm-period=1s",
        ]);
        Program::start_command(test, &mut command)
    }

    /// Ends the test: stops the manager, and checks that it has closed its sessions and logged no password.
    pub(crate) async fn end(self, mut manager: Program) {
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
        for vcenter in [&self.first, &self.second] {
            let sessions = vcenter.sessions().await;
            assert_eq!((&sessions["soap"], &sessions["rest"]), (&json!(0), &json!(0)), "{}", manager.output());
            assert!(!manager.output().contains(&vcenter.value("password")), "{}", manager.output());
        }
    }
}

// ---- VMs and Nodes

impl Scene {
    /// Creates a VM with its host name in the first vCenter, and returns it.
    pub(crate) async fn create_vm(&self, name: &str, number: u8) -> Value {
        let fields = json!({
            "host": HOST, "hostName": name, "uuid": format!("4237a111-0009-4000-8000-0000000000{number:02x}"),
            "cpus": 2, "memoryMB": 4096, "guestId": "ubuntu64Guest",
            "nics": [{"network": "internal_net", "ips": [format!("10.10.9.{number}")]}],
        });
        self.first.put_machine(&format!("vm-{name}"), &fields).await
    }

    /// Registers the Node of a VM, as its kubelet does, with the UUID that the firmware reports.
    pub(crate) async fn register_vm(&self, name: &str, vm: &Value) {
        let unknown = ["architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"];
        let unknown = unknown.into_iter().chain(["kubeletVersion", "machineID", "operatingSystem", "osImage"]);
        let mut info: BTreeMap<_, _> = unknown.map(|field| (field, String::new())).collect();
        info.insert("systemUUID", text(&vm["systemUUID"]));
        let taint = json!({"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"});
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": info});
        self.create_node(json!({"metadata": {"name": name}, "spec": {"taints": [taint]}, "status": status})).await;
    }

    /// Creates a VM, registers its Node, and waits until the manager has initialised it.
    pub(crate) async fn machine(&self, manager: &Program, name: &str, number: u8) -> Value {
        let vm = self.create_vm(name, number).await;
        self.register_vm(name, &vm).await;
        let node = self.initialised(manager, name).await;
        assert_eq!(provider_id(&node), format!("vsphere://{}", text(&vm["uuid"])));
        vm
    }

    /// Waits until a Node has the shutdown taint, or does not have it.
    pub(crate) async fn shut_down(&self, manager: &Program, name: &str, wanted: bool) {
        const TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
        let is_tainted = |node: &Node| taints(node).iter().any(|taint| taint == TAINT);
        let ask = || async { (is_tainted(&self.nodes().get(name).await.unwrap()) == wanted).then_some(()) };
        self.eventually(manager, &format!("shutdown taint of {name}: {wanted}"), ask).await;
    }

    /// Waits until the log of the manager has this text.
    pub(crate) async fn logged(&self, manager: &Program, text: &str) {
        let ask = || async { manager.output().contains(text).then_some(()) };
        self.eventually(manager, &format!("{text:?} in the log"), ask).await;
    }

    /// Creates the Secret of both vCenters, or changes its password.
    pub(crate) async fn put_secret(&self, password: &str) {
        let server = self.first.value("host");
        let data =
            json!({format!("{server}.username"): self.first.value("user"), format!("{server}.password"): password});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        if secrets.get_opt("vsphere").await.unwrap().is_some() {
            let patch = Patch::Merge(json!({ "stringData": data }));
            secrets.patch("vsphere", &PatchParams::default(), &patch).await.unwrap();
        } else {
            let secret = json!({"metadata": {"name": "vsphere"}, "stringData": data});
            secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        }
    }
}

pub(crate) fn provider_id(node: &Node) -> String {
    node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default()
}

/// Returns type and address of all addresses.
pub(crate) fn addresses(node: &Node) -> Vec<(String, String)> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
    addresses.into_iter().map(|address| (address.type_, address.address)).collect()
}

pub(crate) fn label(node: &Node, key: &str) -> String {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
}
