//! Credentials from a Secret, certificates, and sessions that end.

use std::time::Duration;

use bowline_vsphere_simulator::vcenter::{PASSWORD, USER, Vcenter};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::cluster::{UNINITIALISED, taints};
use crate::vsphere::scene::{Scene, add, machine};

const SECRET: &str = "vsphere-cloud-secret";

fn secrets(scene: &Scene) -> Api<Secret> {
    Api::namespaced(scene.client.clone(), "kube-system")
}

/// Writes the password of both vCenters, which have the same address.
async fn write_secret(scene: &Scene, password: &str) {
    let data = json!({"127.0.0.1.username": USER, "127.0.0.1.password": password});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": data});
    let patch = PatchParams::apply("test").force();
    secrets(scene).patch(SECRET, &patch, &Patch::Apply(secret)).await.unwrap();
}

fn logins(vcenter: &Vcenter) -> u64 {
    vcenter.counts().iter().filter(|(call, _)| call.ends_with("Login")).map(|(_, count)| count).sum()
}

/// VS-33, VS-34, VS-39: a wrong password causes one login in each vCenter, and a corrected Secret needs no restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_secret_is_used_without_a_restart() {
    let scene = Scene::without_nodes("secret").await;
    let mut settings = scene.settings();
    settings["global"]["secretName"] = json!(SECRET);
    settings["global"]["secretNamespace"] = json!("kube-system");
    for vcenter in ["one", "two"] {
        let entry = settings["vcenter"][vcenter].as_object_mut().unwrap();
        entry.remove("user");
        entry.remove("password");
    }
    scene.configure(&settings);
    write_secret(&scene, "wrong-word").await;
    let uuid = add(&scene.one, machine("node-1", "10.10.1.11"));
    scene.register_vm("node-1", &uuid).await;
    let mut manager = scene.manager("secret");
    scene.warned(&manager, "node-1", "CloudUnavailable", &["rejected the login", USER]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for vcenter in [&scene.one, &scene.two] {
        assert!(logins(vcenter) <= 2, "{:?}", vcenter.counts());
    }
    write_secret(&scene, PASSWORD).await;
    scene.initialised(&manager, "node-1").await;
    assert!(!manager.output().contains("wrong-word"), "{}", manager.output());
    scene.stop(&mut manager);
}

/// VS-38: sessions that end, also in the middle of a listing, are renewed.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_end_are_renewed() {
    let scene = Scene::new("sessions").await;
    scene.one.configure(|options| options.max_page = 2);
    for number in 3..8 {
        scene.node(&scene.one, &format!("node-{number}"), &format!("10.10.1.{}", 10 + number)).await;
    }
    let mut manager = scene.manager("sessions");
    let uuid = add(&scene.one, machine("late-1", "10.10.1.31"));
    scene.register_vm("late-1", &uuid).await;
    scene.initialised(&manager, "late-1").await;
    scene.one.end_sessions_before("ContinueRetrievePropertiesEx");
    scene.two.end_sessions();
    assert!(scene.one.delete_machine("node-7"));
    scene.set_ready("node-7", "Unknown").await;
    scene.node_deleted(&manager, "node-7").await;
    let uuid = add(&scene.two, machine("late-2", "10.10.1.32"));
    scene.register_vm("late-2", &uuid).await;
    scene.initialised(&manager, "late-2").await;
    assert!(scene.one.sessions().0 <= 1 && scene.two.sessions().0 <= 1, "one session per vCenter");
    scene.stop(&mut manager);
}

/// VS-43: the certificate is accepted by its fingerprint, and another one is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_thumbprint_is_reported_with_the_address() {
    let scene = Scene::without_nodes("thumbprint").await;
    let mut settings = scene.settings();
    settings["global"] = json!({});
    let right = scene.one.thumbprint();
    let wrong = right.replace(|digit: char| digit.is_ascii_hexdigit(), "0");
    settings["vcenter"]["one"]["thumbprint"] = json!(wrong);
    settings["vcenter"]["two"]["thumbprint"] = json!(scene.two.thumbprint().to_lowercase());
    scene.configure(&settings);
    let uuid = add(&scene.one, machine("node-1", "10.10.1.11"));
    scene.register_vm("node-1", &uuid).await;
    let mut manager = scene.manager("thumbprint");
    let words = ["thumbprint does not match", &format!("127.0.0.1:{}", scene.one.address().port())];
    scene.warned(&manager, "node-1", "CloudUnavailable", &words).await;
    assert!(taints(&scene.nodes().get("node-1").await.unwrap()).contains(&UNINITIALISED.to_owned()));
    // The configuration is read again when it changes; no restart is needed.
    settings["vcenter"]["one"]["thumbprint"] = json!(right);
    scene.configure(&settings);
    scene.initialised(&manager, "node-1").await;
    scene.stop(&mut manager);
}

/// A password in the configuration file that is replaced is used without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_is_used_and_the_old_session_is_closed() {
    let scene = Scene::new("reconfigured").await;
    let mut manager = scene.manager("reconfigured");
    let uuid = add(&scene.one, machine("node-3", "10.10.1.13"));
    scene.register_vm("node-3", &uuid).await;
    scene.initialised(&manager, "node-3").await;
    scene.one.configure(|options| options.password = "new&word".to_owned());
    let mut settings = scene.settings();
    settings["vcenter"]["one"]["password"] = json!("new&word");
    scene.configure(&settings);
    let uuid = add(&scene.one, machine("node-4", "10.10.1.14"));
    scene.register_vm("node-4", &uuid).await;
    scene.initialised(&manager, "node-4").await;
    // VS-42
    let closed = || async { (scene.one.sessions().0 == 1).then_some(()) };
    scene.eventually(&manager, "one session", closed).await;
    scene.stop(&mut manager);
}

/// The Secret of NSX is read before the first call.
#[tokio::test(flavor = "multi_thread")]
async fn nsx_credentials_come_from_a_secret() {
    use bowline_vsphere_simulator::nsx;
    let scene = Scene::new("nsx-secret").await;
    let mut settings = scene.settings();
    let host = settings["nsxt"]["host"].clone();
    let authorities = settings["nsxt"]["caFile"].clone();
    settings["nsxt"] = json!({
        "host": host, "caFile": authorities, "secretName": "nsx-cloud-secret", "secretNamespace": "kube-system",
    });
    scene.configure(&settings);
    let data = json!({"username": nsx::USER, "password": nsx::PASSWORD});
    let secret = json!({"metadata": {"name": "nsx-cloud-secret"}, "stringData": data});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    secrets(&scene).create(&PostParams::default(), &secret).await.unwrap();
    let mut manager = scene.manager("nsx-secret");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    let refused = scene.nsx.all_calls().iter().filter(|call| matches!(call.status, Some(401 | 403))).count();
    assert_eq!(refused, 0, "VS-104");
    scene.delete(&manager, "web").await;
    scene.stop(&mut manager);
}
