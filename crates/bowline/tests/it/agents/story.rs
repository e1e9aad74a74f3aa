//! A Service gets an address that a client on the segment reaches, and the address survives its agent.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::scene::{NODE_PORT, Scene, start};
use crate::support::Program;
use crate::support::cluster::Cluster;
use crate::support::simulated::QUICK;

const PORT: u16 = 80;

/// Service networks of the API server, which has one IP family.
const SERVICE_NETWORKS: [&str; 2] = ["10.96.0.0/16", "fd00:96::/112"];

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reaches_a_service_and_its_ipv4_address_moves_when_the_agent_is_killed() {
    run(SERVICE_NETWORKS[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reaches_a_service_and_its_ipv6_address_moves_when_the_agent_is_killed() {
    run(SERVICE_NETWORKS[1]).await;
}

/// The control plane runs on a host of its own, and so does everything that talks to it.
async fn run(service_network: &'static str) {
    let Some(scene) = Scene::new().await else { return };
    let control = scene.control.clone();
    control.namespace.run(story(scene, service_network)).await;
}

async fn story(scene: Scene, service_network: &str) {
    let mut agents = [scene.start_agent(0).await, scene.start_agent(1).await];
    let cluster = Cluster::start_with("agents", &[&format!("--service-cluster-ip-range={service_network}")]).await;
    let manager = start_manager(&scene, &cluster).await;
    for name in ["node-1", "node-2"] {
        cluster.register(name).await;
        cluster.initialised(&manager, name).await;
    }
    scene.serve_node_ports().await;
    let address = create_service(&cluster, &manager).await;
    scene.until_response(address, PORT).await;
    both_nodes_respond(&scene, address).await;

    agents = moves_without_the_manager(&scene, agents, manager, address).await;
    moves_when_its_host_is_disconnected(&scene, address).await;

    let manager = start_manager(&scene, &cluster).await;
    is_deleted(&scene, &cluster, manager, address).await;
    for agent in &mut agents {
        assert!(agent.stop("-TERM").success(), "{}", agent.output());
    }
}

async fn start_manager(scene: &Scene, cluster: &Cluster) -> Program {
    let kubeconfig = format!("--kubeconfig={}", cluster.server.kubeconfig().display());
    let config = format!("--cloud-config={}", scene.provider_config());
    let flags = ["--cloud-provider=cloudlycke", &config, &kubeconfig, "--configure-cloud-routes=false"];
    let flags = [&flags[..], &QUICK].concat();
    start(&scene.control, flags.into_iter().map(str::to_owned).collect()).await
}

/// Creates a Service, and waits for its address.
async fn create_service(cluster: &Cluster, manager: &Program) -> IpAddr {
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": PORT, "protocol": "TCP", "nodePort": NODE_PORT}]},
    });
    cluster.services().create(&Default::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    cluster.address(manager, "web").await.parse().unwrap()
}

/// Connects until both Nodes have responded: a health check that times out on a busy machine excludes a Node for a moment.
async fn both_nodes_respond(scene: &Scene, address: IpAddr) {
    let (mut names, begun) = (BTreeSet::new(), Instant::now());
    while names.len() < 2 {
        names.extend(scene.request(address, PORT).await);
        assert!(begun.elapsed() < Duration::from_secs(60), "only {names:?} responded");
    }
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["node-1", "node-2"]);
}

/// Kills the active agent: the other one takes the address over. Then the killed agent returns, as a standby with the current state:
/// it takes over when the other one ends.
async fn moves_without_the_manager(
    scene: &Scene,
    mut agents: [Program; 2],
    mut manager: Program,
    address: IpAddr,
) -> [Program; 2] {
    assert!(manager.stop("-TERM").success(), "{}", manager.output());
    let first = scene.holder(address).await;
    agents[first].stop("-KILL");
    let took = scene.until_response(address, PORT).await;
    eprintln!("{address} responded again after {} ms", took.as_millis());
    assert_eq!(scene.holder(address).await, 1 - first);

    agents[first] = scene.start_agent(first).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.holder(address).await, 1 - first, "an agent that returns does not take the address back");
    assert!(agents[1 - first].stop("-TERM").success(), "{}", agents[1 - first].output());
    let took = scene.until_response(address, PORT).await;
    eprintln!("{address} responded again {} ms after a shutdown", took.as_millis());
    assert_eq!(scene.holder(address).await, first);
    agents[1 - first] = scene.start_agent(1 - first).await;
    agents
}

/// The host of the active agent loses the network, so both agents become active. When it returns, one of them yields.
async fn moves_when_its_host_is_disconnected(scene: &Scene, address: IpAddr) {
    let host = &scene.agents[scene.holder(address).await];
    host.set_cable(false).await;
    let took = scene.until_response(address, PORT).await;
    eprintln!("{address} responded again {} ms after its host was disconnected", took.as_millis());
    host.set_cable(true).await;
    scene.holder(address).await;
    scene.until_response(address, PORT).await;
}

/// With the Service, the address leaves the interface.
async fn is_deleted(scene: &Scene, cluster: &Cluster, mut manager: Program, address: IpAddr) {
    cluster.delete(&manager, "web").await;
    let is_gone = || async {
        let mut found = Vec::new();
        for agent in &scene.agents {
            found.extend(agent.found_addresses().await);
        }
        (!found.iter().any(|found| found.starts_with(&format!("{address}/")))).then_some(())
    };
    cluster.eventually(&manager, "interfaces without the address", is_gone).await;
    assert!(manager.stop("-TERM").success(), "{}", manager.output());
}
