//! Nodes and routes over the life of a server.

use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::cloud::Service::{Compute, Network};
use super::cloud::{list, text};
use super::cluster::{Cluster, Machine, taints};
use super::skipped;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_follow_the_state_of_their_servers() {
    if skipped().is_some() {
        return;
    }
    let cluster = Cluster::start("real-nodes").await;
    let one = cluster.machine("node-1", "az-1", "10.244.1.0/24").await;
    let two = cluster.machine("node-2", "az-2", "10.244.2.0/24").await;
    is_described(&cluster, &one, "az-1").await;
    is_described(&cluster, &two, "az-2").await;
    has_routes(&cluster, &[("10.244.1.0/24", &one), ("10.244.2.0/24", &two)]).await;
    has_address_pairs(&cluster, &one, &["10.244.1.0/24"]).await;
    has_address_pairs(&cluster, &two, &["10.244.2.0/24"]).await;

    // Stopped: the Node is tainted until the server runs again.
    action(&cluster, &two, "os-stop").await;
    cluster.report("node-2", "False").await;
    tainted(&cluster, "node-2", true).await;
    action(&cluster, &two, "os-start").await;
    cluster.report("node-2", "True").await;
    tainted(&cluster, "node-2", false).await;

    // Deleted: the Node and its route are deleted.
    cluster.project.cloud.delete(Compute, &format!("/servers/{}", two.id)).await;
    cluster.report("node-2", "False").await;
    cluster
        .eventually("deletion of node-2", || async {
            cluster.nodes().get_opt("node-2").await.unwrap().is_none().then_some(())
        })
        .await;
    has_routes(&cluster, &[("10.244.1.0/24", &one)]).await;

    // Only the Node is deleted: its route and the address pair of its port are removed, too.
    cluster.nodes().delete("node-1", &DeleteParams::default()).await.unwrap();
    has_routes(&cluster, &[]).await;
    cluster.project.cloud.delete(Compute, &format!("/servers/{}", one.id)).await;
    cluster
        .eventually("deletion of the last server", || async {
            cluster.project.cloud.list(Compute, "/servers").await.is_empty().then_some(())
        })
        .await;
    cluster.end().await;
}

/// Checks provider ID, addresses and labels of the Node.
async fn is_described(cluster: &Cluster, machine: &Machine, zone: &str) {
    let node = cluster.nodes().get(&machine.name).await.unwrap();
    let spec = node.spec.clone().unwrap();
    assert_eq!(spec.provider_id, Some(format!("openstack:///{}", machine.id)));
    assert!(addresses(&node).contains(&("InternalIP".to_owned(), machine.address.clone())), "{:?}", node.status);
    let labels = node.metadata.labels.unwrap_or_default();
    for (label, value) in [
        ("topology.kubernetes.io/zone", zone),
        ("topology.kubernetes.io/region", "RegionOne"),
        ("node.kubernetes.io/instance-type", "m1.tiny"),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{labels:?}");
    }
}

fn addresses(node: &Node) -> Vec<(String, String)> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
    addresses.into_iter().map(|address| (address.type_, address.address)).collect()
}

/// Waits until the router has exactly these routes.
async fn has_routes(cluster: &Cluster, wanted: &[(&str, &Machine)]) {
    let router = format!("/routers/{}", cluster.project.router);
    let mut wanted: Vec<_> =
        wanted.iter().map(|(cidr, machine)| ((*cidr).to_owned(), machine.address.clone())).collect();
    wanted.sort();
    cluster
        .eventually(&format!("the routes {wanted:?}"), || async {
            let found = cluster.project.cloud.get(Network, &router).await;
            let mut found: Vec<_> = list(&found["router"]["routes"])
                .iter()
                .map(|route| (text(&route["destination"]), text(&route["nexthop"])))
                .collect();
            found.sort();
            (found == wanted).then_some(())
        })
        .await;
}

/// Waits until the machine's port has these allowed address pairs.
async fn has_address_pairs(cluster: &Cluster, machine: &Machine, cidrs: &[&str]) {
    cluster
        .eventually(&format!("the address pairs {cidrs:?} of {}", machine.name), || async {
            let ports = cluster.project.cloud.list(Network, &format!("/ports?device_id={}", machine.id)).await;
            let pair = |pair: &Value| text(&pair["ip_address"]);
            let found: Vec<String> =
                ports.iter().flat_map(|port| list(&port["allowed_address_pairs"])).map(pair).collect();
            (found == cidrs).then_some(())
        })
        .await;
}

async fn action(cluster: &Cluster, machine: &Machine, action: &str) {
    let path = format!("/servers/{}/action", machine.id);
    cluster.project.cloud.post(Compute, &path, json!({action: null})).await;
}

async fn tainted(cluster: &Cluster, name: &str, wanted: bool) {
    cluster
        .eventually(&format!("shutdown taint of {name}: {wanted}"), || async {
            let node = cluster.nodes().get(name).await.unwrap();
            (taints(&node).contains(&SHUTDOWN.to_owned()) == wanted).then_some(())
        })
        .await;
}
