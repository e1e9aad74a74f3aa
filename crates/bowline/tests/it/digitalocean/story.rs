//! The life of a cluster, from its first Node to its last Service.

use std::time::Duration;

use bowline_digitalocean_simulator::{Fields as _, NewDroplet, Options, Work};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::digitalocean::scene::{FIREWALL, ID, Scene, TAG, TYPE, tags, text};
use crate::support::Program;
use crate::support::cluster::{address, taints};

/// Creates a Droplet and its uninitialised Node; returns the ID of the Droplet.
async fn register(scene: &Scene, name: &str) -> u64 {
    let id = scene.cloud.add_droplet(NewDroplet::named(name));
    scene.register(name).await;
    id
}

/// Checks everything that initialisation writes.
fn check_node(scene: &Scene, node: &Node, id: u64) {
    let name = node.metadata.name.clone().unwrap();
    assert_eq!(node.spec.as_ref().unwrap().provider_id, Some(format!("digitalocean://{id}")));
    let addresses = node.status.as_ref().unwrap().addresses.iter().flatten();
    let addresses: Vec<_> = addresses.map(|one| (one.type_.clone(), one.address.clone())).collect();
    let expected =
        [("Hostname", name), ("InternalIP", scene.ip(id, "private")), ("ExternalIP", scene.ip(id, "public"))];
    assert_eq!(addresses, expected.map(|(kind, address)| (kind.to_owned(), address)));
    let labels = node.metadata.labels.as_ref().unwrap();
    for (label, value) in [
        ("node.kubernetes.io/instance-type", "s-2vcpu-4gb"),
        ("beta.kubernetes.io/instance-type", "s-2vcpu-4gb"),
        ("topology.kubernetes.io/region", "nyc3"),
        ("failure-domain.beta.kubernetes.io/region", "nyc3"),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}: {labels:?}");
    }
    assert_eq!(labels.get("topology.kubernetes.io/zone"), None, "regions have no zones");
}

/// Waits until the firewall has exactly these inbound rules.
async fn has_rules(scene: &Scene, manager: &Program, expected: &[&str]) {
    let has_them = || async { (scene.inbound_rules().as_deref() == Some(&to_owned(expected)[..])).then_some(()) };
    scene.eventually(manager, &format!("inbound rules {expected:?}"), has_them).await;
}

fn to_owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The load balancer stays `new` until the test completes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_from_its_first_node_to_its_last_service() {
    let scene = Scene::without_nodes("story", Options { work: Work::Manual, ..Options::default() }).await;
    let ids = [register(&scene, "node-1").await, register(&scene, "node-2").await];
    let mut manager = scene.manager_with("story", &FIREWALL, &[]);
    for (name, id) in ["node-1", "node-2"].into_iter().zip(ids) {
        check_node(&scene, &scene.initialised(&manager, name).await, id);
    }
    // The manager notices its own writes to the Nodes with the next event.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let balancer = pending_and_active(&scene, &manager).await;
    assert_eq!(scene.targets(), ids);
    let check = format!("tcp 10256 {balancer}");
    has_rules(&scene, &manager, &[&check, "tcp 80 0.0.0.0/0 ::/0"]).await;

    let joined = joins(&scene, &manager, ids).await;
    stops_and_is_deleted(&scene, &manager, joined).await;
    scene.stop(&mut manager);

    // The loop `tags` runs at the start.
    scene.cloud.edit("load_balancers", &balancer, |record| record.set("tags", json!([])));
    let mut manager = scene.manager_with("story", &FIREWALL, &[]);
    let is_tagged = || async { (tags(&scene.load_balancer()) == [TAG]).then_some(()) };
    scene.eventually(&manager, "the tag of the cluster", is_tagged).await;

    scene.delete(&manager, "web").await;
    assert_eq!(scene.load_balancers(), []);
    has_rules(&scene, &manager, &[]).await;
    assert_eq!(scene.warnings("web").await, []);
    scene.stop(&mut manager);
}

/// Creates a Service, whose load balancer is `new` for a while; returns the ID of that.
async fn pending_and_active(scene: &Scene, manager: &Program) -> String {
    scene.create("web").await;
    let annotation = || async { scene.get_annotation("web", ID).await };
    let id = scene.eventually(manager, "the ID of the load balancer", annotation).await;
    assert_eq!(scene.get_annotation("web", TYPE).await.as_deref(), Some("REGIONAL_NETWORK"));
    // The manager polls the load balancer.
    scene.cloud.forget_calls();
    scene.called(manager, "GET load_balancers/{id}").await;
    assert_eq!(scene.load_balancer()["status"], "new");
    assert_eq!(scene.warnings("web").await, [], "a load balancer that is being created is no failure");
    assert_eq!(address(&scene.services().get("web").await.unwrap()), None);
    scene.cloud.finish_work();
    assert_eq!(scene.address(manager, "web").await, text(&scene.load_balancer()["ip"]));
    assert_eq!(tags(&scene.load_balancer()), [TAG]);
    assert_eq!(text(&scene.load_balancer()["id"]), id);
    id
}

/// A Node joins, with a single PUT; returns the ID of its Droplet.
async fn joins(scene: &Scene, manager: &Program, ids: [u64; 2]) -> u64 {
    scene.cloud.forget_calls();
    let id = register(scene, "node-3").await;
    scene.initialised(manager, "node-3").await;
    let [first, second] = ids;
    let joined = || async { (scene.targets() == [first, second, id]).then_some(()) };
    scene.eventually(manager, "node-3 to be a target", joined).await;
    assert_eq!(scene.writes(), ["PUT load_balancers/{id}"]);
    id
}

/// A Droplet is powered off, which taints its Node, and deleted, which deletes the Node.
async fn stops_and_is_deleted(scene: &Scene, manager: &Program, id: u64) {
    scene.cloud.set_droplet(id, "status", "off");
    scene.set_ready("node-3", "False").await;
    let shut_down = || async {
        let taints = taints(&scene.nodes().get("node-3").await.unwrap());
        taints.contains(&"node.cloudprovider.kubernetes.io/shutdown".to_owned()).then_some(())
    };
    scene.eventually(manager, "the shutdown taint", shut_down).await;
    scene.cloud.delete_droplet(id);
    scene.node_deleted(manager, "node-3").await;
    assert_eq!(scene.nodes().list(&Default::default()).await.unwrap().items.len(), 2);
    assert_eq!(scene.targets().len(), 2, "the API removes a deleted Droplet from its load balancers");
}
