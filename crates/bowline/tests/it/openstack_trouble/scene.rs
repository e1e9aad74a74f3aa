//! A cluster of two Nodes on a simulated cloud.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use bowline_openstack_simulator::{Detail, Golden, Kind, NewServer, Options, Record, Simulator, Work};
use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::simulated::Served;
use crate::support::{BOWLINE, Program, bowline};

/// Kinds of writes of each test.
const JOURNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openstack_trouble/journals.txt");

/// Kinds of resources that a Service may leave.
const KINDS: [Kind; 7] = [
    Kind::LoadBalancer,
    Kind::Listener,
    Kind::Pool,
    Kind::Member,
    Kind::HealthMonitor,
    Kind::FloatingIp,
    Kind::SecurityGroup,
];

pub(crate) struct Scene {
    pub(crate) cloud: Served<Simulator>,
    cluster: Cluster,
    before: BTreeMap<Kind, Vec<String>>,
    _golden: Golden,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Scene {
    /// Starts with Octavia without delays.
    pub(crate) async fn new(test: &str) -> Scene {
        Scene::with(test, Options::default()).await
    }

    pub(crate) async fn with(test: &str, options: Options) -> Scene {
        let cloud = Simulator::new(options);
        let (before, golden) = (existing(&cloud), cloud.golden(JOURNALS, Detail::Kinds));
        let (cloud, cluster) = (Served::start(cloud).await, Cluster::start(test).await);
        let scene = Scene { before, cloud, cluster, _golden: golden };
        scene.configure(&scene.lines());
        for name in ["node-1", "node-2"] {
            scene.node(name).await;
        }
        scene
    }

    /// Default load balancer settings in `cloud.conf`.
    pub(crate) fn lines(&self) -> String {
        let fixture = self.cloud.fixture();
        format!(
            "[LoadBalancer]\nsubnet-id = {}\nfloating-network-id = {}\ncreate-monitor = true\nmanage-security-groups = true\n",
            fixture.subnet, fixture.external_network
        )
    }

    fn path(&self) -> PathBuf {
        self.server.scratch.path("cloud.conf")
    }

    /// Writes `cloud.conf` with the correct password.
    pub(crate) fn configure(&self, lines: &str) {
        self.configure_as(&self.cloud.fixture().password, lines);
    }

    /// Writes `cloud.conf` atomically.
    pub(crate) fn configure_as(&self, password: &str, lines: &str) {
        let (fixture, address) = (self.cloud.fixture(), self.cloud.address());
        let global = format!(
            "[Global]\nauth-url = http://{address}/identity/v3\nuser-id = {}\npassword = {password}\ntenant-id = {}\n",
            fixture.user, fixture.project
        );
        let new = self.server.scratch.file("cloud.conf.new", format!("{global}{lines}"));
        std::fs::rename(new, self.path()).unwrap();
    }

    fn reach(&self) -> [String; 3] {
        [
            "--cloud-provider=openstack".to_owned(),
            format!("--cloud-config={}", self.path().display()),
            format!("--kubeconfig={}", self.server.kubeconfig().display()),
        ]
    }

    /// Starts the manager with a short timeout for load balancers in PENDING states.
    pub(crate) fn manager(&self, test: &str) -> Program {
        let mut command = Command::new(BOWLINE);
        command.args(self.reach()).args(["--leader-elect=false", "--secure-port=0", "--configure-cloud-routes=false"]);
        command.arg("--node-monitor-period=1s");
        command.env_remove("KUBECONFIG").env_remove("BOWLINE_LOG").env("OCCM_WAIT_LB_ACTIVE_STEPS", "4");
        Program::start_command(test, &mut command)
    }

    /// Runs a read-only command.
    pub(crate) fn run(&self, command: &str, flags: &[&str]) -> Output {
        let reach = self.reach();
        // Routes are not part of these tests.
        let no_routes = (command != "orphans").then_some("--configure-cloud-routes=false");
        let words = [command].into_iter().chain(no_routes);
        bowline(&words.chain(reach.iter().map(String::as_str)).chain(flags.iter().copied()).collect::<Vec<_>>())
    }
}

// ---- cluster

impl Scene {
    /// Creates a server and its initialised Node.
    async fn node(&self, name: &str) {
        let id = self.cloud.add_server(NewServer::named(name));
        let ports = self.cloud.records(Kind::Port);
        let port = ports.iter().find(|port| port["device_id"] == id.as_str()).unwrap();
        let node = json!({
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "az-1"}},
            "spec": {"providerID": format!("openstack:///{id}")},
            "status": {
                "addresses": [{"type": "InternalIP", "address": port["fixed_ips"][0]["ip_address"]}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        self.create_node(node).await;
    }

    /// Creates a server and its uninitialised Node.
    pub(crate) async fn uninitialised(&self, name: &str) {
        self.cloud.add_server(NewServer::named(name));
        self.register(name).await;
    }

    /// Sets an annotation for the load balancer.
    pub(crate) async fn annotate(&self, name: &str, key: &str, value: &str) {
        self.set_annotation(name, &format!("loadbalancer.openstack.org/{key}"), value).await;
    }

    pub(crate) async fn annotation(&self, name: &str, key: &str) -> Option<String> {
        self.get_annotation(name, &format!("loadbalancer.openstack.org/{key}")).await
    }

    /// Ends the test: deletes the Service, checks that nothing is left, and stops the manager.
    pub(crate) async fn end(&self, manager: &mut Program, name: &str) {
        self.delete(manager, name).await;
        self.is_clean();
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    }
}

// ---- cloud

impl Scene {
    /// ID of the server of a Node.
    pub(crate) fn server_of(&self, node: &str) -> String {
        let servers = self.cloud.records(Kind::Server);
        text(&servers.iter().find(|server| server["name"] == node).unwrap()["id"])
    }

    /// Checks that no resources of Services are left.
    pub(crate) fn is_clean(&self) {
        assert_eq!(existing(&self.cloud), self.before);
    }

    /// ID of the Service's load balancer.
    pub(crate) fn balancer(&self, service: &str) -> String {
        let name = format!("kube_service_kubernetes_default_{service}");
        let mut found = self.cloud.records(Kind::LoadBalancer);
        found.retain(|balancer| balancer["name"] == name.as_str());
        assert_eq!(found.len(), 1, "{found:#?}");
        text(&found[0]["id"])
    }

    /// The only record of this kind that was created during the test.
    pub(crate) fn only(&self, kind: Kind) -> Record {
        let mut new = self.cloud.records(kind);
        new.retain(|record| !self.before[&kind].contains(&text(&record["id"])));
        assert_eq!(new.len(), 1, "{new:#?}");
        new.remove(0)
    }

    /// Number of records of this kind that were created during the test.
    pub(crate) fn created(&self, kind: Kind) -> usize {
        self.cloud.records(kind).len() - self.before[&kind].len()
    }

    /// Sets the provisioning status of the load balancer.
    pub(crate) fn set_status(&self, id: &str, status: &str) {
        let set = |record: &mut Record| drop(record.insert("provisioning_status".to_owned(), json!(status)));
        assert!(self.cloud.edit(Kind::LoadBalancer, id, set));
    }
}

/// Options with this duration of each Octavia change.
pub(crate) fn taking(time: Duration) -> Options {
    Options { work: Work::Taking(time), ..Options::default() }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// IDs of all resources that a Service may leave.
fn existing(cloud: &Simulator) -> BTreeMap<Kind, Vec<String>> {
    let ids = |kind| cloud.records(kind).iter().map(|record| text(&record["id"])).collect();
    KINDS.into_iter().map(|kind| (kind, ids(kind))).collect()
}
