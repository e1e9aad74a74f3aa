//! Routes from pod CIDRs to instances.

use serde_json::json;

use crate::account::routes;
use crate::scene::{Machine, Scene};
use crate::support::Program;

const FLAGS: [&str; 5] = [
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.244.0.0/16",
    "--allocate-node-cidrs=false",
    "--route-reconciliation-period=1s",
    // The route of the last Node is deleted, too.
    "--route-deletion-max-share=1",
];

#[tokio::test(flavor = "multi_thread")]
async fn routes_follow_the_pod_cidrs_of_the_nodes() {
    let Some(scene) = Scene::start("moto-routes").await else { return };
    let manager = scene.remote_manager("moto-routes", &FLAGS);
    let (one, two) = (node(&scene, &manager, 1).await, node(&scene, &manager, 2).await);
    has_routes(&scene, &manager, &[(1, &one), (2, &two)]).await;
    for machine in [&one, &two] {
        let seen = scene.moto.instance(&machine.id).await;
        assert_eq!(seen["SourceDestCheck"], false, "packets of Pods reach the instance");
    }

    scene.terminate(&manager, &two).await;
    has_routes(&scene, &manager, &[(1, &one)]).await;
    scene.nodes().delete(&one.name, &Default::default()).await.unwrap();
    has_routes(&scene, &manager, &[]).await;
    scene.end(manager).await;
}

/// Starts an instance, and a Node with the pod CIDR of this number.
async fn node(scene: &Scene, manager: &Program, number: u8) -> Machine {
    let machine = scene.instance("a").await;
    let (name, cidr) = (&machine.name, format!("10.244.{number}.0/24"));
    let taint = json!({"key": crate::support::cluster::UNINITIALISED, "value": "true", "effect": "NoSchedule"});
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let spec = json!({"taints": [taint], "podCIDR": cidr, "podCIDRs": [cidr]});
    scene.create_node(json!({"metadata": {"name": name}, "spec": spec, "status": status})).await;
    scene.initialised(manager, name).await;
    machine
}

/// Waits until the table of the Nodes has exactly these routes.
async fn has_routes(scene: &Scene, manager: &Program, expected: &[(u8, &Machine)]) {
    let route = |(number, machine): &(u8, &Machine)| (format!("10.244.{number}.0/24"), machine.id.clone());
    let expected: Vec<_> = expected.iter().map(route).collect();
    let table = scene.id("rtb-nodes");
    let ask = || async { (routes(&scene.moto, &table).await == expected).then_some(()) };
    scene.eventually(manager, &format!("the routes {expected:?}"), ask).await;
}
