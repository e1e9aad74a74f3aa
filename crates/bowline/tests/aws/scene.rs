//! A cluster in the account of moto: API server, manager, instances and their Nodes.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::process::Command;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::account::everything;
use crate::moto::{Moto, text};
use crate::support::cluster::Cluster;
use crate::support::{BOWLINE, Program, skip};

/// Annotation with the type of a load balancer.
pub(crate) const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";

/// ID of the cluster in tags.
const CLUSTER: &str = "demo";

/// Lets one story at a time use the account.
static ACCOUNT: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

pub(crate) struct Scene {
    pub(crate) moto: Moto,
    /// IDs of the resources of the cluster by name.
    pub(crate) ids: Value,
    cluster: Cluster,
    before: BTreeMap<&'static str, Vec<String>>,
    _account: MutexGuard<'static, ()>,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

/// An instance and its Node.
pub(crate) struct Machine {
    pub(crate) id: String,
    /// Private DNS name, which is the name of the Node.
    pub(crate) name: String,
    pub(crate) zone: String,
}

impl Scene {
    /// Resets the account; `None` and a report if there is no moto.
    pub(crate) async fn start(test: &str) -> Option<Scene> {
        let Some(moto) = Moto::open() else {
            skip("no moto, BOWLINE_AWS is not set");
            return None;
        };
        let account = ACCOUNT.lock().await;
        let ids = moto.reset(json!({"cluster": CLUSTER, "nodes": 0})).await;
        moto.forget_refused().await;
        let before = everything(&moto).await;
        Some(Scene { cluster: Cluster::start(test).await, moto, ids, before, _account: account })
    }

    /// Returns the ID of a resource of the cluster.
    pub(crate) fn id(&self, name: &str) -> String {
        text(&self.ids[name])
    }

    /// Starts the manager with a file of the folder and these variables, without those of this process that AWS tools read. Nodes of
    /// terminated instances are deleted within seconds.
    pub(crate) fn manager(&self, test: &str, file: &str, variables: &[(&str, String)], flags: &[&str]) -> Program {
        let mut command = Command::new(BOWLINE);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("AWS_")) {
                command.env_remove(name);
            }
        }
        let nothing = self.server.scratch.path("none").display().to_string();
        command.env_remove("KUBECONFIG").env_remove("BOWLINE_LOG");
        command.env("AWS_CONFIG_FILE", &nothing).env("AWS_SHARED_CREDENTIALS_FILE", &nothing);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        command.args([
            "--cloud-provider=aws",
            &format!("--cloud-config={}", self.moto.folder().join(file).display()),
            &format!("--kubeconfig={}", self.server.kubeconfig().display()),
            "--leader-elect=false",
            "--secure-port=0",
            "--node-monitor-period=500ms",
            "--node-deletion-grace-period=1s",
            "--node-deletion-confirm-period=1s",
        ]);
        Program::start_command(test, command.args(flags))
    }

    /// Starts the manager outside AWS: with the file that names the VPC, and the keys of the account.
    pub(crate) fn remote_manager(&self, test: &str, flags: &[&str]) -> Program {
        let variables = [
            ("AWS_ACCESS_KEY_ID", self.moto.endpoint("access_key")),
            ("AWS_SECRET_ACCESS_KEY", self.moto.endpoint("secret_key")),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ];
        self.manager(test, "cloud.conf", &variables, flags)
    }

    /// Ends the test: checks that the account is as before and that no request was refused, and stops the manager.
    pub(crate) async fn end(self, mut manager: Program) {
        let is_clean = || async { (everything(&self.moto).await == self.before).then_some(()) };
        self.eventually(&manager, "an account without resources of the cluster", is_clean).await;
        assert_eq!(self.moto.refused().await, Vec::<Value>::new(), "signatures and parameters are correct");
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
        let secret = self.moto.endpoint("secret_key");
        assert!(!manager.output().contains(&secret), "{}", manager.output());
    }
}

// ---- instances and Nodes

impl Scene {
    /// Starts an instance in the private subnet of zone `a` or `b`.
    pub(crate) async fn instance(&self, zone: &str) -> Machine {
        let id = self.moto.run_instance(&self.ids, &format!("subnet-private-{zone}"), CLUSTER).await;
        let name = text(&self.moto.instance(&id).await["PrivateDnsName"]);
        Machine { id, name, zone: format!("{}{zone}", self.moto.endpoint("region")) }
    }

    /// Starts an instance, registers its Node, and waits until the manager has initialised it.
    pub(crate) async fn machine(&self, manager: &Program, zone: &str) -> Machine {
        let machine = self.instance(zone).await;
        self.register(&machine.name).await;
        is_described(&machine, &self.initialised(manager, &machine.name).await);
        machine
    }

    /// Stops an instance, and waits for the taint of its Node.
    pub(crate) async fn stop_instance(&self, manager: &Program, machine: &Machine) {
        self.moto.call("ec2", "stop_instances", json!({"InstanceIds": [machine.id]})).await;
        self.set_ready(&machine.name, "False").await;
        self.shut_down(manager, &machine.name, true).await;
    }

    /// Starts a stopped instance, and waits until its Node has no taint.
    pub(crate) async fn start_instance(&self, manager: &Program, machine: &Machine) {
        self.moto.call("ec2", "start_instances", json!({"InstanceIds": [machine.id]})).await;
        self.set_ready(&machine.name, "True").await;
        self.shut_down(manager, &machine.name, false).await;
    }

    /// Terminates an instance, and waits until its Node is deleted.
    pub(crate) async fn terminate(&self, manager: &Program, machine: &Machine) {
        self.moto.call("ec2", "terminate_instances", json!({"InstanceIds": [machine.id]})).await;
        self.set_ready(&machine.name, "Unknown").await;
        self.node_deleted(manager, &machine.name).await;
    }

    async fn shut_down(&self, manager: &Program, name: &str, wanted: bool) {
        let is_tainted = |node: &Node| {
            crate::support::cluster::taints(node).contains(&"node.cloudprovider.kubernetes.io/shutdown".to_owned())
        };
        let ask = || async { (is_tainted(&self.nodes().get(name).await.unwrap()) == wanted).then_some(()) };
        self.eventually(manager, &format!("shutdown taint of {name}: {wanted}"), ask).await;
    }

    /// Waits for the host name in the status of a Service.
    pub(crate) async fn hostname(&self, manager: &Program, name: &str) -> String {
        let ask = || async { hostname(&self.services().get(name).await.unwrap()) };
        self.eventually(manager, &format!("a host name of {name}"), ask).await
    }
}

fn hostname(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.hostname.clone()
}

/// Returns the node port of the first port.
pub(crate) fn node_port(service: &Service) -> u64 {
    let port = service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port;
    port.unwrap().try_into().unwrap()
}

/// Checks everything that initialisation writes.
fn is_described(machine: &Machine, node: &Node) {
    let (id, zone) = (&machine.id, &machine.zone);
    assert_eq!(node.spec.as_ref().unwrap().provider_id, Some(format!("aws:///{zone}/{id}")));
    let addresses = node.status.as_ref().unwrap().addresses.iter().flatten();
    let addresses: Vec<_> = addresses.map(|one| (one.type_.as_str(), one.address.as_str())).collect();
    let name = machine.name.as_str();
    assert_eq!(addresses.get(1..), Some([("InternalDNS", name), ("Hostname", name)].as_slice()), "{addresses:?}");
    assert!(addresses[0].0 == "InternalIP" && addresses[0].1.starts_with("10.20."), "{addresses:?}");
    let labels = node.metadata.labels.as_ref().unwrap();
    for (label, value) in [
        ("node.kubernetes.io/instance-type", "t3.medium"),
        ("topology.kubernetes.io/region", "eu-west-1"),
        ("topology.kubernetes.io/zone", zone.as_str()),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}: {labels:?}");
    }
    assert!(labels.contains_key("topology.k8s.aws/zone-id"), "{labels:?}");
}
