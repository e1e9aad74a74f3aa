//! Rotation of credentials while the manager runs: of the cluster and of a cloud.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::look::world::World;
use crate::support::{Program, within};

/// Waits until the manager has logged this text at least `times` times.
fn wait_for_log(manager: &Program, mark: &str, times: usize) {
    let logged = within(Duration::from_secs(60), || (manager.output().matches(mark).count() >= times).then_some(()));
    assert!(logged.is_some(), "{mark} is missing; log: {}", manager.output());
}

/// Waits until the node is initialised.
async fn initialised(world: &World, name: &str, manager: &Program) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let node = nodes.get(name).await.unwrap();
        if node.spec.is_some_and(|spec| spec.provider_id.is_some()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{name} is not initialised; log: {}", manager.output());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Replaces a file atomically, as the kubelet does with a mounted Secret.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_cloud_credentials_are_used_once_they_work() {
    let world = World::start("renew-cloud").await;
    let token = world.server.scratch.file("token", "s3cr3t-of-the-second");
    let token_file = format!("--token-file={}", token.display());
    let arguments = ["cloud", "--listen=127.0.0.1:0", "--data-plane=false", &token_file];
    let mut second = Program::start("renew-cloud", &arguments);
    let second = second.wait_for("cloud ready at ");
    let config = world.server.scratch.path("local.yaml");
    let manager = world.manager("renew-cloud", &[]);
    world.cloud(&["add", "first-1", "--address=InternalIP=10.0.0.1"]);
    world.create_node("first-1").await;
    initialised(&world, "first-1", &manager).await;

    replace(&config, &format!("endpoint: {second}\ntoken: wr0ng\n"));
    wait_for_log(&manager, "cannot use changed credentials", 1);
    world.cloud(&["add", "first-2", "--address=InternalIP=10.0.0.2"]);
    world.create_node("first-2").await;
    initialised(&world, "first-2", &manager).await;

    replace(&config, &format!("endpoint: {second}\ntokenFile: {}\n", token.display()));
    wait_for_log(&manager, "reloaded changed credentials", 1);
    let printed = manager.output();
    assert!(!printed.contains("wr0ng") && !printed.contains("s3cr3t"), "secrets are not logged: {printed}");
    assert_eq!(printed.matches("cannot use changed credentials").count(), 1, "logged once: {printed}");
}

/// Creates a service account with full access, and returns a token.
async fn create_admin(world: &World, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "kube-system");
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let binding = json!({
        "metadata": {"name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let request = serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
    let token: TokenRequest = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    token.status.unwrap().token.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_kubeconfig_is_used_once_it_works() {
    let world = World::start_with("renew-cluster", &["--authorization-mode=RBAC"]).await;
    let (first, second) = (create_admin(&world, "first").await, create_admin(&world, "second").await);
    let kubeconfig = |token: &str| {
        let mut kubeconfig = kube::config::Kubeconfig::read_from(world.server.kubeconfig()).unwrap();
        kubeconfig.auth_infos[0].auth_info = Some(serde_json::from_value(json!({"token": token})).unwrap());
        serde_json::to_string(&kubeconfig).unwrap()
    };
    let file = world.server.scratch.file("manager.kc", kubeconfig(&first));
    let flag = format!("--kubeconfig={}", file.display());
    let manager = world.manager("renew-cluster", &[&flag]);
    let add = async |name: &str, address: &str| {
        world.cloud(&["add", name, &format!("--address=InternalIP={address}")]);
        world.create_node(name).await;
        initialised(&world, name, &manager).await;
    };
    add("one", "10.0.0.1").await;

    replace(&file, "half: [writt");
    wait_for_log(&manager, "cannot use changed credentials", 1);
    add("two", "10.0.0.2").await;

    replace(&file, &kubeconfig(&second));
    wait_for_log(&manager, "reloaded changed credentials", 1);
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "kube-system");
    accounts.delete("first", &DeleteParams::default()).await.unwrap();
    add("three", "10.0.0.3").await;
    assert!(!manager.output().contains(&second), "secrets are not logged");
}
