//! The walk-through of the Cloudlycke demonstration: Nodes that no cloud initialises, and a Pod that waits; then the manager with the
//! arguments of the demonstration; then a Service with traffic, which the demonstration has not.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::cluster::{Cluster, UNINITIALISED, taints};
use crate::support::simulated::QUICK;
use crate::support::{Program, Scratch};

/// The second cluster of the demonstration: Node, provider ID, address.
const NODES: [(&str, &str, &str); 2] =
    [("master-c2-1", "cloudlycke://m-c2-1", "192.168.20.10"), ("node-c2-1", "cloudlycke://n-c2-1", "192.168.20.11")];

/// Node port of the Service.
const NODE_PORT: u16 = 30080;

/// Arguments in the demonstration's manifest.
const ARGUMENTS: [&str; 5] = [
    "--v=5",
    "--cloud-provider=cloudlycke",
    "--cluster-name=kubernetes-2",
    "--use-service-account-credentials",
    "--address=127.0.0.1",
];

/// Registers a Node as its kubelet does, with `--cloud-provider=external`, `--provider-id` and `--node-ip`.
async fn register(cluster: &Cluster, (name, id, address): (&str, &str, &str)) {
    let spec = json!({"providerID": id, "taints": [{"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"}]});
    cluster
        .create_node(json!({
            "metadata": {"name": name, "annotations": {"alpha.kubernetes.io/provided-node-ip": address}},
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .await;
    // The API server adds the taint `not-ready`, and the node lifecycle controller of Kubernetes removes it.
    cluster.nodes().patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
}

/// What a scheduler does: binds the Pod to a Node without taints, if there is one.
async fn schedule(cluster: &Cluster, pod: &str) -> Option<String> {
    let nodes = cluster.nodes().list(&Default::default()).await.unwrap();
    let node = nodes.items.iter().find(|node| taints(node).is_empty())?.metadata.name.clone()?;
    let binding = json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let _: serde_json::Value = pods.create_subresource("binding", pod, &PostParams::default(), &binding).await.unwrap();
    Some(node)
}

async fn create_pod(cluster: &Cluster) {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Checks what the demonstration shows for an initialised Node.
fn check_node(node: &Node, (name, id, address): (&str, &str, &str)) {
    assert_eq!(node.spec.as_ref().unwrap().provider_id.as_deref(), Some(id));
    let addresses = node.status.as_ref().unwrap().addresses.iter().flatten();
    let addresses: Vec<_> = addresses.map(|one| (one.type_.as_str(), one.address.as_str())).collect();
    assert_eq!(addresses, [("InternalIP", address), ("ExternalIP", address), ("Hostname", name)]);
    let kind = if name.starts_with("master") { "vbox.vm.512mb.1cpu" } else { "vbox.vm.1g.2cpu" };
    for key in ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"] {
        assert_eq!(label(node, key), Some(kind), "{key}");
    }
    for key in ["topology.kubernetes.io", "failure-domain.beta.kubernetes.io"] {
        assert_eq!(label(node, &format!("{key}/region")), Some("virtualbox"));
        assert_eq!(label(node, &format!("{key}/zone")), Some("virtualbox"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_of_the_demonstration() {
    let cluster = Cluster::start("walk-through").await;
    for node in NODES {
        register(&cluster, node).await;
    }
    create_pod(&cluster).await;

    // Before: without a manager, the Pod stays pending.
    assert_eq!(schedule(&cluster, "web").await, None);

    // The manager, with exactly the arguments of the demonstration.
    let kubeconfig = format!("--kubeconfig={}", cluster.server.kubeconfig().display());
    let mut manager = Program::start("walk-through", &[&ARGUMENTS[..], &[&kubeconfig, "--secure-port=0"]].concat());
    for node in NODES {
        check_node(&cluster.initialised(&manager, node.0).await, node);
    }
    let bound = schedule(&cluster, "web").await;
    assert!(bound.is_some(), "the Pod is scheduled to an initialised Node");
    assert!(manager.stop("-TERM").success(), "{}", manager.output());

    // After: what the demonstration has as a to-do, a Service with traffic.
    service_with_traffic(&cluster).await;
}

/// The machines are on this host now: an inventory has their addresses, and an agent forwards the traffic.
async fn service_with_traffic(cluster: &Cluster) {
    let files = Scratch::new("walk-through");
    for (index, (name, ..)) in NODES.into_iter().enumerate() {
        let address = address_on_this_host(index);
        let listener = TcpListener::bind((address.as_str(), NODE_PORT)).await.unwrap();
        tokio::spawn(respond(listener, name));
        let patch = json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": address}}});
        cluster.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let mut agent = start_agent(&files);
    let kubeconfig = format!("--kubeconfig={}", cluster.server.kubeconfig().display());
    let config = format!("--cloud-config={}", provider_config(&files).display());
    let flags = [&["--cloud-provider=cloudlycke", &config, &kubeconfig][..], &QUICK].concat();
    let mut manager = Program::start("walk-through", &flags);
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 4080, "protocol": "TCP", "nodePort": NODE_PORT}]},
    });
    cluster.services().create(&Default::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let address = cluster.address(&manager, "web").await;
    let responds = || async { request(&address).await };
    let name = cluster.eventually(&manager, "traffic through the Service", responds).await;
    assert!(NODES.iter().any(|node| node.0 == name), "{name}");
    cluster.delete(&manager, "web").await;
    assert_eq!(request(&address).await, None);
    assert!(manager.stop("-TERM").success(), "{}", manager.output());
    assert!(agent.stop("-TERM").success(), "{}", agent.output());
}

/// Network of the machines, one of loopback. Other processes with the same test have others.
fn network() -> String {
    format!("127.{}.20", 1 + std::process::id() % 250)
}

/// Address of a Node.
fn address_on_this_host(index: usize) -> String {
    format!("{}.{}", network(), 10 + index)
}

async fn respond(listener: TcpListener, name: &'static str) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let _ = stream.write_all(name.as_bytes()).await;
    }
}

async fn request(address: &str) -> Option<String> {
    let mut text = String::new();
    TcpStream::connect((address, 4080)).await.ok()?.read_to_string(&mut text).await.ok()?;
    Some(text).filter(|text| !text.is_empty())
}

/// Starts the only agent of its group, on a Unix socket: no certificates are needed on one host.
fn start_agent(files: &Scratch) -> Program {
    let config = format!(
        "name: this-host\nlisten: unix:{socket}\nstateFile: {state}\npool: [{network}.200/29]\nroutes: {{enabled: false}}\n\
         metricsListen: \"\"\n",
        socket = files.path("agent.sock").display(),
        state = files.path("agent.json").display(),
        network = network(),
    );
    let config = format!("--config={}", files.file("agent.yaml", config).display());
    Program::start("walk-through", &["lb-agent", &config])
}

fn provider_config(files: &Scratch) -> PathBuf {
    let machine = |(index, (name, id, _)): (usize, (&str, &str, &str))| {
        let id = id.trim_start_matches("cloudlycke://");
        format!("  - {{name: {name}, id: {id}, addresses: [{}]}}\n", address_on_this_host(index))
    };
    let machines: String = NODES.into_iter().enumerate().map(machine).collect();
    let inventory = files.file("inventory.yaml", format!("machines:\n{machines}"));
    let config = format!(
        "backend: inventory\ninventoryFile: {}\nloadBalancer: agent\nagent: {{endpoints: [\"unix:{}\"]}}\n",
        inventory.display(),
        files.path("agent.sock").display()
    );
    files.file("cloudlycke.yaml", config)
}
