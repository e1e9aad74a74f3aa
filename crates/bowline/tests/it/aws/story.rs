//! The life of a cluster, from its first Node to its last Service.

use bowline_aws_simulator::{Options, REGION};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::aws::scene::{Scene, TYPE, node_port, text};
use crate::support::Program;
use crate::support::cluster::taints;

/// Creates an instance and its uninitialised Node; returns the ID of the instance.
async fn register(scene: &Scene, name: &str) -> String {
    let id = scene.instance(name);
    scene.register(name).await;
    id
}

/// Checks everything that initialisation writes.
fn check_node(node: &Node, id: &str) {
    let name = node.metadata.name.clone().unwrap();
    assert_eq!(node.spec.as_ref().unwrap().provider_id, Some(format!("aws:///{REGION}a/{id}")));
    let addresses = node.status.as_ref().unwrap().addresses.iter().flatten();
    let addresses: Vec<_> = addresses.map(|one| (one.type_.as_str(), one.address.as_str())).collect();
    assert_eq!(addresses.first().map(|(kind, _)| *kind), Some("InternalIP"));
    assert_eq!(addresses.get(1..), Some([("InternalDNS", name.as_str()), ("Hostname", name.as_str())].as_slice()));
    let labels = node.metadata.labels.as_ref().unwrap();
    for (label, value) in [
        ("node.kubernetes.io/instance-type", "t3.medium"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("topology.k8s.aws/zone-id", "use1-az1"),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}: {labels:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_from_its_first_node_to_its_last_service() {
    let scene = Scene::without_nodes("story", Options::default()).await;
    let mut ids = [register(&scene, "node-1").await, register(&scene, "node-2").await].to_vec();
    let mut manager = scene.manager("story");
    for (name, id) in ["node-1", "node-2"].into_iter().zip(&ids) {
        check_node(&scene.initialised(&manager, name).await, id);
    }
    ids.sort();
    has_classic(&scene, &manager, &ids).await;
    has_network(&scene, &manager, &ids).await;
    stops_and_is_terminated(&scene, &manager).await;
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}

/// A Service with a Classic Load Balancer, which is deleted.
async fn has_classic(scene: &Scene, manager: &Program, ids: &[String]) {
    scene.create("classic").await;
    let hostname = scene.hostname(manager, "classic").await;
    let balancer = scene.only("classic");
    assert_eq!(text(&balancer["DNSName"]), hostname);
    assert_eq!(scene.targets(), ids);
    assert_eq!(balancer["HealthCheck"]["Target"].as_str().map(|target| target.starts_with("TCP:")), Some(true));
    let group = text(&scene.only("security_group")["groupId"]);
    assert!(scene.node_rules().iter().any(|rule| rule.starts_with("-1 ") && rule.ends_with(&group)));
    scene.delete(manager, "classic").await;
    scene.is_clean();
}

/// A Service with a Network Load Balancer, which gets another port.
async fn has_network(scene: &Scene, manager: &Program, ids: &[String]) {
    let service = scene.create_with("web", 80, &[(TYPE, "nlb")]).await;
    let hostname = scene.hostname(manager, "web").await;
    assert_eq!(text(&scene.only("load_balancer")["DNSName"]), hostname);
    assert_eq!(scene.targets(), ids);
    let port = node_port(&service);
    let expected = ["icmp 3-4 0.0.0.0/0".to_owned(), format!("tcp {port}-{port} 0.0.0.0/0")];
    let has_rules = || async { (scene.node_rules() == expected).then_some(()) };
    scene.eventually(manager, "rules of the Nodes", has_rules).await;

    scene.cloud.forget_calls();
    scene.patch("web", json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})).await;
    let is_limited = || async { scene.node_rules().contains(&format!("tcp {port}-{port} 192.0.2.0/24")).then_some(()) };
    scene.eventually(manager, "the source range", is_limited).await;
    let is_closed = || async { (!scene.node_rules().iter().any(|rule| rule.ends_with("0.0.0.0/0"))).then_some(()) };
    scene.eventually(manager, "the removal of other clients", is_closed).await;
    assert_eq!(scene.hostname(manager, "web").await, hostname);
}

/// An instance is stopped, which taints its Node, and terminated, which deletes the Node.
async fn stops_and_is_terminated(scene: &Scene, manager: &Program) {
    scene.cloud.forget_calls();
    let id = register(scene, "node-3").await;
    scene.initialised(manager, "node-3").await;
    let joined = || async { scene.targets().contains(&id).then_some(()) };
    scene.eventually(manager, "node-3 to be a target", joined).await;
    assert_eq!(scene.writes(), ["elbv2 RegisterTargets"]);

    scene.cloud.set_state(&id, "stopped");
    scene.set_ready("node-3", "False").await;
    let shut_down = || async {
        let taints = taints(&scene.nodes().get("node-3").await.unwrap());
        taints.contains(&"node.cloudprovider.kubernetes.io/shutdown".to_owned()).then_some(())
    };
    scene.eventually(manager, "the shutdown taint", shut_down).await;
    scene.cloud.terminate(&id);
    scene.node_deleted(manager, "node-3").await;
    assert_eq!(scene.nodes().list(&Default::default()).await.unwrap().items.len(), 2);
}
