//! Nodes whose Droplet is recreated, ambiguous, or unknown while the API fails.

use bowline_digitalocean_simulator::{FaultSpec, NewDroplet, error_fault};

use crate::digitalocean::scene::Scene;
use crate::support::cluster::{UNINITIALISED, taints};

/// The Node is kept while the API fails, deleted once the Droplet is known to be gone, and registers again.
#[tokio::test(flavor = "multi_thread")]
async fn a_droplet_that_was_recreated_under_its_name_is_another_machine() {
    let scene = Scene::new("recreated").await;
    let old = scene.node("node-3").await;
    let mut manager = scene.manager("recreated");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    assert!(scene.targets().contains(&old));

    scene.cloud.inject(FaultSpec::always(error_fault(500, "Server was unable to give you a response.")));
    scene.cloud.delete_droplet(old);
    let new = scene.cloud.add_droplet(NewDroplet::named("node-3"));
    scene.set_ready("node-3", "Unknown").await;
    scene.cloud.forget_calls();
    // The manager has retried several times without a result.
    let retried = || async { (scene.cloud.calls() > 8).then_some(()) };
    scene.eventually(&manager, "calls for node-3", retried).await;
    assert!(scene.nodes().get_opt("node-3").await.unwrap().is_some(), "{}", manager.output());

    scene.cloud.repair_all();
    scene.node_deleted(&manager, "node-3").await;
    assert_eq!(scene.nodes().list(&Default::default()).await.unwrap().items.len(), 2);
    assert!(!scene.targets().contains(&new), "the Node has not registered yet");
    scene.register("node-3").await;
    let node = scene.initialised(&manager, "node-3").await;
    assert_eq!(node.spec.unwrap().provider_id, Some(format!("digitalocean://{new}")));
    let joined = || async { scene.targets().contains(&new).then_some(()) };
    scene.eventually(&manager, "the new Droplet to be a target", joined).await;
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_two_droplets_of_its_name_is_not_initialised() {
    let scene = Scene::new("ambiguous").await;
    let ids = ["node-3", "node-3"].map(|name| scene.cloud.add_droplet(NewDroplet::named(name)));
    let mut manager = scene.manager("ambiguous");
    scene.register("node-3").await;
    let cause = format!("getting droplet by name: droplets {} and {} have the name node-3", ids[0], ids[1]);
    scene.warned(&manager, "node-3", "CloudUnavailable", &[&cause, "--provider-id=digitalocean://ID"]).await;
    let node = scene.nodes().get("node-3").await.unwrap();
    assert!(taints(&node).contains(&UNINITIALISED.to_owned()), "{node:?}");
    scene.cloud.set_droplet(ids[1], "name", "renamed");
    let node = scene.initialised(&manager, "node-3").await;
    assert_eq!(node.spec.unwrap().provider_id, Some(format!("digitalocean://{}", ids[0])));
    scene.stop(&mut manager);
}
