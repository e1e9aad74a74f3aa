//! Nodes whose instance is gone, in another region, or unknown while the API fails.

use bowline_aws_simulator::{FaultSpec, REGION, ec2_fault};
use serde_json::json;

use crate::aws::scene::Scene;

/// The Node is kept while the API fails, and deleted once the instance is known to be gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_deleted_only_if_its_instance_is_known_to_be_gone() {
    let scene = Scene::new("gone").await;
    let id = scene.node("node-3").await;
    let mut manager = scene.manager("gone");
    scene.create("web").await;
    scene.hostname(&manager, "web").await;
    scene.cloud.inject(FaultSpec::always(ec2_fault(503, "Unavailable", "The service is unavailable.")));
    scene.cloud.terminate(&id);
    scene.cloud.remove("instance", &id);
    scene.set_ready("node-3", "Unknown").await;
    scene.cloud.forget_calls();
    let retried = || async { (scene.cloud.calls() > 8).then_some(()) };
    scene.eventually(&manager, "calls for node-3", retried).await;
    assert!(scene.nodes().get_opt("node-3").await.unwrap().is_some(), "{}", manager.output());
    scene.cloud.repair_all();
    scene.node_deleted(&manager, "node-3").await;
    scene.end(&mut manager, "web").await;
}

/// Nodes of other regions, hybrid Nodes and Nodes with a malformed ID stay, whatever their state is.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_malformed_nodes_are_left_alone() {
    let scene = Scene::new("foreign").await;
    let ids = [
        ("elsewhere", "aws:///eu-west-1a/i-0123456789abcdef0".to_owned()),
        ("hybrid", "eks-hybrid:///us-east-1/demo/node".to_owned()),
        ("kwok", format!("aws:///{REGION}a/kwok-1")),
    ];
    for (name, id) in &ids {
        let unready = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
        scene.create_node(json!({"metadata": {"name": name}, "spec": {"providerID": id}, "status": unready})).await;
    }
    let mut manager = scene.manager("foreign");
    let id = scene.node("node-3").await;
    scene.create("web").await;
    scene.hostname(&manager, "web").await;
    // The Node of a terminated instance is deleted meanwhile, the others are not.
    scene.cloud.terminate(&id);
    scene.cloud.remove("instance", &id);
    scene.set_ready("node-3", "Unknown").await;
    scene.node_deleted(&manager, "node-3").await;
    for (name, _) in &ids {
        assert!(scene.nodes().get_opt(name).await.unwrap().is_some(), "{name}");
    }
    assert_eq!(scene.targets().len(), 2, "only own instances are targets");
    scene.end(&mut manager, "web").await;
}
