//! Routes of pod CIDRs in the kernels of the agents' hosts, with packets to a Pod.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use kube::api::{Api, DeleteParams};
use serde_json::json;
use tokio::net::TcpListener;

use super::scene::{Scene, request, respond, start};
use crate::support::Program;
use crate::support::cluster::Cluster;
use crate::support::simulated::QUICK;

/// A Pod of `node-1`, from its pod CIDR.
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 1);

const PORT: u16 = 8080;

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_reached_from_the_hosts_of_all_agents() {
    let Some(scene) = Scene::new().await else { return };
    let control = scene.control.clone();
    control.namespace.run(story(scene)).await;
}

async fn story(scene: Scene) {
    scene.nodes[0].add_address(POD.into(), 32).await;
    let listener = scene.nodes[0].namespace.run(TcpListener::bind((POD, PORT))).await.unwrap();
    scene.nodes[0].namespace.start(respond(listener, "pod".to_owned()));
    // Both the active agent and the standby program the kernels of their hosts.
    let mut agents = [scene.start_agent(0).await, scene.start_agent(1).await];
    let cluster = Cluster::start("agent-routes").await;
    cluster
        .create_node(json!({
            "metadata": {"name": "node-1"},
            "spec": {"providerID": "cloudlycke://n-1", "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": scene.nodes[0].addresses[0].to_string()}],
            },
        }))
        .await;
    assert_eq!(reached(&scene).await, [false, false]);

    let mut manager = start_manager(&scene, &cluster).await;
    has_reached(&scene, &cluster, &manager, [true, true]).await;

    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
    nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    has_reached(&scene, &cluster, &manager, [false, false]).await;
    assert!(manager.stop("-TERM").success(), "{}", manager.output());
    for agent in &mut agents {
        assert!(agent.stop("-TERM").success(), "{}", agent.output());
    }
}

async fn start_manager(scene: &Scene, cluster: &Cluster) -> Program {
    let kubeconfig = format!("--kubeconfig={}", cluster.server.kubeconfig().display());
    let config = format!("--cloud-config={}", scene.provider_config());
    let routes = ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--configure-cloud-routes=true"];
    let flags = [&["--cloud-provider=cloudlycke", &config, &kubeconfig][..], &routes, &QUICK].concat();
    start(&scene.control, flags.into_iter().map(str::to_owned).collect()).await
}

/// Whether the Pod is reached from the host of each agent.
async fn reached(scene: &Scene) -> [bool; 2] {
    let mut reached = [false; 2];
    for (index, host) in scene.agents.iter().enumerate() {
        let address = SocketAddr::new(IpAddr::V4(POD), PORT);
        reached[index] = host.namespace.run(request(address)).await.is_some();
    }
    reached
}

async fn has_reached(scene: &Scene, cluster: &Cluster, manager: &Program, expected: [bool; 2]) {
    let is_expected = || async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        (reached(scene).await == expected).then_some(())
    };
    cluster.eventually(manager, &format!("the Pod to be reached: {expected:?}"), is_expected).await;
}
