//! The demonstration Cloudlycke as its users see it: the same flags, the same Nodes (CL-35 to CL-46), and machines of a YAML file.

use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::support::cluster::{Cluster, UNINITIALISED, taints};
use crate::support::simulated::{QUICK, output, program};
use crate::support::{Program, Scratch};

/// Taint of a Node whose machine is off.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Returns the program without the developer's own variables of Vagrant.
fn command() -> Command {
    program(|name| name.starts_with("VAGRANT"), &[], &[])
}

fn kubeconfig(cluster: &Cluster) -> String {
    format!("--kubeconfig={}", cluster.server.kubeconfig().display())
}

/// Starts the manager with the arguments of the demonstration's manifest.
fn manager(cluster: &Cluster, test: &str) -> Program {
    let flags = ["--v=5", "--cloud-provider=cloudlycke", "--cluster-name=kubernetes-2", "--address=127.0.0.1"];
    Program::start_command(
        test,
        command().arg(kubeconfig(cluster)).args(flags).args(QUICK).args(["--node-monitor-period=200ms"]),
    )
}

/// Creates a Node as the demonstration's kubelets register it: with a provider ID of their own.
async fn register(cluster: &Cluster, name: &str, id: Option<&str>, ready: &str) {
    let taint = json!({"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"});
    let spec = json!({"taints": if ready == "True" { vec![taint] } else { Vec::<Value>::new() }, "providerID": id});
    let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
    cluster.create_node(json!({"metadata": {"name": name}, "spec": spec, "status": status})).await;
}

async fn without_taint(cluster: &Cluster, manager: &Program, name: &str) -> Node {
    let initialised = || async {
        let node = cluster.nodes().get(name).await.unwrap();
        Some(node).filter(|node| !taints(node).contains(&UNINITIALISED.to_owned()))
    };
    cluster.eventually(manager, &format!("{name} to be initialised"), initialised).await
}

/// Addresses of a Node, each as type and value.
fn addresses(node: &Node) -> Vec<String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
    addresses.into_iter().map(|one| format!("{} {}", one.type_, one.address)).collect()
}

fn label(node: &Node, key: &str) -> String {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
}

fn provider_id(node: &Node) -> String {
    node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default()
}

// CL-36 to CL-38, CL-42, CL-46
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_the_demonstration_are_initialised() {
    let cluster = Cluster::start("cloudlycke-demo").await;
    let mut manager = manager(&cluster, "cloudlycke-demo");
    register(&cluster, "node-c2-1", Some("cloudlycke://n-c2-1"), "True").await;
    register(&cluster, "master-c2-1", None, "True").await;
    register(&cluster, "twin", Some("cloudlycke://m-c2-1"), "True").await;
    register(&cluster, "node-c1-1", None, "True").await;
    let own = ["InternalIP 192.168.20.11", "ExternalIP 192.168.20.11", "Hostname node-c2-1"];
    let node = cluster.initialised(&manager, "node-c2-1").await;
    assert_eq!(addresses(&node), own);
    for key in ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"] {
        assert_eq!(label(&node, key), "vbox.vm.1g.2cpu");
    }
    for key in ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"] {
        assert_eq!(label(&node, key), "virtualbox");
    }
    let master = cluster.initialised(&manager, "master-c2-1").await;
    assert_eq!((provider_id(&master).as_str(), addresses(&master).len()), ("cloudlycke://m-c2-1", 3));
    assert_eq!(label(&master, "node.kubernetes.io/instance-type"), "vbox.vm.512mb.1cpu");
    let twin = cluster.initialised(&manager, "twin").await;
    assert_eq!(
        (addresses(&twin)[0].as_str(), provider_id(&twin).as_str()),
        ("InternalIP 192.168.20.10", "cloudlycke://m-c2-1")
    );
    let unknown = without_taint(&cluster, &manager, "node-c1-1").await;
    assert_eq!(
        (provider_id(&unknown).as_str(), label(&unknown, "node.kubernetes.io/instance-type").as_str()),
        ("cloudlycke://", "")
    );
    assert_eq!(label(&unknown, "topology.kubernetes.io/zone"), "virtualbox");
    let log = manager.output();
    assert!(log.contains("NodeAddressesByProviderID(cloudlycke://n-c2-1)"), "{log}");
    manager.stop("-TERM");
}

// CL-39, CL-40, CL-43 to CL-45
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_the_demonstration_that_are_not_ready_are_tainted_deleted_or_kept() {
    let cluster = Cluster::start("cloudlycke-lost").await;
    register(&cluster, "node-c2-1", Some("cloudlycke://n-c2-1"), "Unknown").await;
    register(&cluster, "master-c2-1", Some("cloudlycke://m-c2-1"), "Unknown").await;
    register(&cluster, "x", Some("cloudlycke://x"), "Unknown").await;
    let mut manager = manager(&cluster, "cloudlycke-lost");
    let has_taint = |name: &'static str, wanted: bool| {
        let cluster = &cluster;
        async move {
            (taints(&cluster.nodes().get(name).await.unwrap()).contains(&SHUTDOWN.to_owned()) == wanted).then_some(())
        }
    };
    cluster.eventually(&manager, "the shutdown taint", || has_taint("node-c2-1", true)).await;
    cluster.node_deleted(&manager, "x").await;
    register(&cluster, "y", Some("m-c2-1"), "Unknown").await;
    let allow = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"bowline.dev/allow-deletion": "true"}}}));
    cluster.nodes().patch("y", &Default::default(), &allow).await.unwrap();
    cluster.node_deleted(&manager, "y").await;
    assert_eq!(has_taint("master-c2-1", false).await, Some(()), "this machine is always on");
    cluster.set_ready("node-c2-1", "True").await;
    cluster.eventually(&manager, "the shutdown taint to be removed", || has_taint("node-c2-1", false)).await;
    manager.stop("-TERM");
}

// CL-41: upstream crashes.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_does_not_crash_the_demonstration() {
    let cluster = Cluster::start("cloudlycke-service").await;
    let mut manager = manager(&cluster, "cloudlycke-service");
    cluster.create("web").await;
    register(&cluster, "master-c2-1", None, "True").await;
    cluster.initialised(&manager, "master-c2-1").await;
    assert!(manager.ended().is_none(), "{}", manager.output());
    manager.stop("-TERM");
}

// CL-47, CL-50: a changed file is noticed, and a missing one deletes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn machines_of_an_inventory_become_nodes() {
    let (cluster, scratch) = (Cluster::start("cloudlycke-inventory").await, Scratch::new("cloudlycke-inventory"));
    let machine = |name: &str, last: u8| {
        format!("- {{name: {name}, addresses: [192.168.56.{last}], cpus: 2, memoryMiB: 2048}}\n")
    };
    let both = format!("machines:\n{}{}", machine("a", 11), machine("b", 12));
    let machines = scratch.file("machines.yaml", &both);
    let config = format!("backend: inventory\ninventoryFile: {}\ncacheSeconds: 1\n", machines.display());
    let config = format!("--cloud-config={}", scratch.file("cloudlycke.yaml", config).display());
    let check = output(command().args(["check", "--cloud-provider=cloudlycke", &config, &kubeconfig(&cluster)]));
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(text.contains("machine a: running, cloudlycke://a, vbox.vm.2g.2cpu, 192.168.56.11"), "{text}");
    let mut manager = Program::start_command(
        "cloudlycke-inventory",
        command().args(["--cloud-provider=cloudlycke", &config, &kubeconfig(&cluster)]).args(QUICK),
    );
    for name in ["a", "b"] {
        cluster.register(name).await;
    }
    let node = cluster.initialised(&manager, "b").await;
    assert_eq!(
        (provider_id(&node).as_str(), addresses(&node)[0].as_str()),
        ("cloudlycke://b", "InternalIP 192.168.56.12")
    );
    cluster.initialised(&manager, "a").await;
    cluster.set_ready("b", "Unknown").await;
    std::fs::remove_file(&machines).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert!(cluster.nodes().get_opt("b").await.unwrap().is_some(), "{}", manager.output());
    scratch.file("machines.yaml", format!("machines:\n{}", machine("a", 11)));
    cluster.node_deleted(&manager, "b").await;
    manager.stop("-TERM");
}
