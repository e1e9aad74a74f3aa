//! vSphere and the local cloud in one cluster and one process.

use std::time::Duration;

use serde_json::json;

use crate::support::simulated::QUICK;
use crate::support::{Program, bowline};
use crate::vsphere::scene::{Scene, add, machine};

/// Each Node belongs to one cloud, and a vCenter that is down delays neither the local cloud nor deletes anything.
#[tokio::test(flavor = "multi_thread")]
async fn vsphere_and_another_cloud_do_not_share_a_fate() {
    let mut scene = Scene::without_nodes("vsphere-local").await;
    let mut local = Program::start("vsphere-local", &["cloud", "--listen=127.0.0.1:0"]);
    let endpoint = local.wait_for("cloud ready at ");
    let local_yaml = scene.server.scratch.file("local.yaml", format!("endpoint: {endpoint}\n"));
    let endpoint = format!("--endpoint={endpoint}");
    let configs = format!("--cloud-config=vsphere={},local={}", scene.config().display(), local_yaml.display());
    let kubeconfig = format!("--kubeconfig={}", scene.server.kubeconfig().display());
    let mut command = scene.command();
    command
        .args(["--cloud-provider=vsphere,local", &configs, &kubeconfig, "--configure-cloud-routes=false"])
        .args(QUICK);

    let uuid = add(&scene.one, machine("vm", "10.10.1.11"));
    scene.register_vm("vm", &uuid).await;
    let added = bowline(&["cloud", "add", "metal", "--id=m-1", "--address=InternalIP=10.0.0.1", &endpoint]);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    scene.register("metal").await;
    let mut manager = Program::start_command("vsphere-local", &mut command);
    for (name, id) in [("vm", format!("vsphere://{uuid}")), ("metal", "local://m-1".to_owned())] {
        let node = scene.initialised(&manager, name).await;
        assert_eq!(node.spec.unwrap().provider_id, Some(id), "{name}");
    }

    scene.one.close();
    assert!(bowline(&["cloud", "delete", "m-1", &endpoint]).status.success());
    for name in ["vm", "metal"] {
        scene.set_ready(name, "Unknown").await;
    }
    let added = bowline(&["cloud", "add", "late", "--id=m-2", "--address=InternalIP=10.0.0.2", &endpoint]);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    scene
        .create_node(json!({"metadata": {"name": "late"}, "spec": {"providerID": "local://m-2", "taints": [
        {"key": crate::support::cluster::UNINITIALISED, "value": "true", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
        .await;
    scene.initialised(&manager, "late").await;
    scene.node_deleted(&manager, "metal").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(scene.nodes().get_opt("vm").await.unwrap().is_some(), "a vCenter that is down proves nothing");
    scene.one.open().await;
    scene.stop(&mut manager);
}
