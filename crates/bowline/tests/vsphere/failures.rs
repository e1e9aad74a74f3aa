//! Failures of vCenters, sessions and credentials.

use std::time::Duration;

use serde_json::json;

use crate::scene::Scene;
use crate::vcsim::{Vcsim, text};

/// Longer than the manager needs to delete a Node.
const UNTIL_DELETED: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_deleted_while_a_vcenter_does_not_respond() {
    let Some(scene) = Scene::start("vcsim-broken").await else { return };
    let manager = scene.manager("vcsim-broken", "vsphere.yaml");
    let vm = scene.machine(&manager, "worker", 2).await;
    scene.register_vm("eight", &scene.second.machines().await["DC0_C0_RP0_VM0"]).await;
    // The second vCenter could have the VM (VS-62).
    scene.second.set_faults(&json!([{"method": "*", "kind": "http", "status": 503}])).await;
    scene.first.delete_machine(&text(&vm["name"])).await;
    scene.set_ready("worker", "Unknown").await;
    tokio::time::sleep(UNTIL_DELETED).await;
    scene.nodes().get("worker").await.unwrap();
    scene.second.clear_faults().await;
    scene.node_deleted(&manager, "worker").await;
    scene.end(manager).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_no_vcenter_is_left_alone() {
    let Some(scene) = Scene::start("vcsim-metal").await else { return };
    let manager = scene.manager("vcsim-metal", "vsphere.yaml");
    // VS-68
    let status = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
    let spec = json!({"providerID": "metal://rack-7"});
    scene.create_node(json!({"metadata": {"name": "metal"}, "spec": spec, "status": status})).await;
    let vm = scene.machine(&manager, "worker", 3).await;
    scene.first.delete_machine(&text(&vm["name"])).await;
    scene.set_ready("worker", "Unknown").await;
    scene.node_deleted(&manager, "worker").await;
    tokio::time::sleep(UNTIL_DELETED).await;
    scene.nodes().get("metal").await.unwrap();
    scene.end(manager).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_is_replaced_without_a_failure() {
    let Some(scene) = Scene::start("vcsim-expiry").await else { return };
    let manager = scene.manager("vcsim-expiry", "vsphere.yaml");
    scene.machine(&manager, "first", 4).await;
    for vcenter in [&scene.first, &scene.second] {
        vcenter.end_sessions().await;
    }
    // VS-38
    scene.machine(&manager, "second", 5).await;
    assert_eq!(scene.first.sessions().await["logins"], 2);
    assert_eq!(scene.warnings("second").await, []);
    scene.end(manager).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_not_repeated_and_the_corrected_secret_is_used_at_once() {
    let Some(scene) = Scene::start("vcsim-secret").await else { return };
    scene.put_secret("wrong").await;
    let manager = scene.manager_with("vcsim-secret", &with_secret(&scene.first));
    let vm = scene.create_vm("worker", 6).await;
    scene.register_vm("worker", &vm).await;
    scene.logged(&manager, "InvalidLogin").await;
    tokio::time::sleep(UNTIL_DELETED).await;
    // Accounts are locked after five failures (VS-39).
    let logins = scene.first.sessions().await["logins"].as_u64().unwrap();
    assert!(logins <= 2, "{logins} logins with a wrong password\n{}", manager.output());

    scene.put_secret(&scene.first.value("password")).await;
    scene.initialised(&manager, "worker").await;
    scene.end(manager).await;
}

/// Configures the first vCenter with a Secret, and its certificate by thumbprint.
fn with_secret(vcenter: &Vcsim) -> String {
    let (server, port, thumbprint) = (vcenter.value("host"), vcenter.value("port"), vcenter.value("sha256"));
    format!(
        "global:\n  secretName: vsphere\n  secretNamespace: default\n\
         vcenter:\n  one:\n    server: \"{server}\"\n    port: {port}\n    thumbprint: \"{thumbprint}\"\n"
    )
}
