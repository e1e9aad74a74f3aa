//! A cluster in a project of the real cloud: API server, manager, Nova servers and their Nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::cloud::Service::{Compute, LoadBalancer, Network};
use super::cloud::{Cloud, list, text, until};
use super::project::Project;
use super::support::{Program, Server};

/// Taint set by a kubelet with `--cloud-provider=external`.
const UNINITIALISED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Timeout of every wait. Octavia's workers need seconds for each change.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Cluster {
    pub(crate) project: Project,
    pub(crate) client: kube::Client,
    manager: Program,
    _server: Server,
    /// Resources of the project before the test.
    before: BTreeMap<String, Vec<String>>,
}

/// A Nova server.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) address: String,
}

impl Cluster {
    pub(crate) async fn start(test: &str) -> Cluster {
        let folder = Cloud::folder().unwrap();
        let project = Project::new(&Cloud::open(&folder).await).await;
        let before = everything(&project.cloud).await;
        let server = Server::start(test, &[]);
        let config = server.scratch.file("cloud.conf", cloud_conf(&project));
        let manager = Program::start(
            test,
            &[
                "--cloud-provider=openstack",
                &format!("--cloud-config={}", config.display()),
                &format!("--kubeconfig={}", server.kubeconfig().display()),
                "--leader-elect=false",
                "--secure-port=0",
                "--cluster-name=real",
                "--cluster-cidr=10.244.0.0/16",
                "--allocate-node-cidrs=false",
                "--route-reconciliation-period=2s",
                "--node-monitor-period=1s",
                // The route of the last Node is deleted, too.
                "--route-deletion-max-share=1",
            ],
        );
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        Cluster { project, client, manager, _server: server, before }
    }

    /// Checks that nothing is left in the cloud and that the manager stops cleanly.
    pub(crate) async fn end(mut self) {
        let left = everything(&self.project.cloud).await;
        assert_eq!(left, self.before, "{}", self.manager.output());
        assert_eq!(self.manager.stop("-TERM").code(), Some(0), "{}", self.manager.output());
        for port in self.project.cloud.list(Network, "/ports").await.iter().filter(|port| is_of_octavia(port)) {
            println!("port left by Octavia: {}", text(&port["id"]));
            self.project.cloud.delete(Network, &format!("/ports/{}", text(&port["id"]))).await;
        }
        self.project.remove().await;
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Polls until there is a result; on timeout, panics with log and Events.
    pub(crate) async fn eventually<F: Future<Output = Option<T>>, T>(&self, what: &str, poll: impl Fn() -> F) -> T {
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            if let Some(result) = poll().await {
                return result;
            }
            if tokio::time::Instant::now() > end {
                panic!("timed out waiting for {what}\n{}\n{:#?}", self.manager.output(), self.events().await);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Reason and message of all events.
    pub(crate) async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let line =
            |event: Event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        events.list(&ListParams::default()).await.unwrap().items.into_iter().map(line).collect()
    }
}

// ---- servers and nodes

impl Cluster {
    /// Creates a server, and a Node as its kubelet would register it.
    pub(crate) async fn machine(&self, name: &str, zone: &str, pod_cidr: &str) -> Machine {
        let machine = self.server(name, zone).await;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "spec": {
                "taints": [{ "key": UNINITIALISED, "value": "true", "effect": "NoSchedule" }],
                "podCIDR": pod_cidr, "podCIDRs": [pod_cidr],
            },
        });
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        self.report(name, "True").await;
        self.eventually(&format!("{name} to be initialised"), || async {
            let node = self.nodes().get(name).await.unwrap();
            (!taints(&node).contains(&UNINITIALISED.to_owned())).then_some(())
        })
        .await;
        machine
    }

    async fn server(&self, name: &str, zone: &str) -> Machine {
        let cloud = &self.project.cloud;
        let server = json!({"server": {"name": name, "imageRef": cloud.id("image"), "flavorRef": cloud.id("flavor"),
            "networks": [{"uuid": self.project.network}], "availability_zone": zone}});
        let id = text(&cloud.post(Compute, "/servers", server).await["server"]["id"]);
        let address = until("a server to be ACTIVE", || async {
            let server = cloud.get(Compute, &format!("/servers/{id}")).await["server"].clone();
            let address = list(&server["addresses"]["nodes"]).iter().find(|address| address["version"] == 4);
            address.filter(|_| server["status"] == "ACTIVE").map(|address| text(&address["addr"]))
        })
        .await;
        Machine { name: name.to_owned(), id, address }
    }

    /// Sets the Ready condition, as the kubelet would.
    pub(crate) async fn report(&self, name: &str, ready: &str) {
        let condition = json!({"type": "Ready", "status": ready, "reason": "Test", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"conditions": [condition]}});
        self.nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    }
}

/// Keys of the Node's taints.
pub(crate) fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.into_iter().map(|taint| taint.key).collect()
}

/// Returns a `cloud.conf` with all cloud features enabled, and with the subnet of floating IPs, which the user cannot list.
fn cloud_conf(project: &Project) -> String {
    let [subnet, _] = &project.subnets;
    let (outside, outside_subnet) = (project.cloud.id("external_network"), project.cloud.id("external_subnet"));
    format!(
        "{}[LoadBalancer]\nsubnet-id = {subnet}\nfloating-network-id = {outside}\nfloating-subnet-id = {outside_subnet}\n\
         create-monitor = yes\nmonitor-delay = 7s\nmanage-security-groups = true\n\
         [Networking]\ninternal-network-name = nodes\n[Route]\nrouter-id = {}\n",
        project.credentials(),
        project.router
    )
}

/// Returns the IDs of all resources of a project, and the routes of its routers.
async fn everything(cloud: &Cloud) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for path in ["/loadbalancers", "/listeners", "/pools", "/healthmonitors"] {
        all.insert(path.to_owned(), ids(&cloud.list(LoadBalancer, path).await));
    }
    for path in ["/floatingips", "/security-groups", "/security-group-rules"] {
        all.insert(path.to_owned(), ids(&cloud.list(Network, path).await));
    }
    // Octavia creates and deletes its own ports, and leaves the port of a failed creation. Leftover load balancers of ours are
    // counted above.
    let mut ports = cloud.list(Network, "/ports").await;
    ports.retain(|port| !is_of_octavia(port));
    all.insert("/ports".to_owned(), ids(&ports));
    all.insert("/servers".to_owned(), ids(&cloud.list(Compute, "/servers").await));
    let routers = cloud.list(Network, "/routers").await;
    all.insert("routes".to_owned(), routers.iter().map(|router| router["routes"].to_string()).collect());
    all
}

fn is_of_octavia(port: &Value) -> bool {
    port["device_owner"] == "Octavia"
}

fn ids(records: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = records.iter().map(|record| text(&record["id"])).collect();
    ids.sort();
    ids
}
