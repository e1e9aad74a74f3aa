//! `bowline check` with an API server with RBAC, and a cloud.

use std::process::Output;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::look::world::World;
use crate::support::bowline;

/// Returns the JSON document and the exit code.
fn checked(output: &Output) -> (Value, Option<i32>) {
    let document = serde_json::from_slice(&output.stdout);
    (document.unwrap_or_else(|error| panic!("{error}: {output:?}")), output.status.code())
}

fn check(world: &World, flags: &[&str]) -> (Value, Option<i32>) {
    checked(&world.run("check", &[&["-o=json", "--configure-cloud-routes=false"], flags].concat()))
}

/// Returns the objects of a finding, each as `about: detail`.
fn found(document: &Value, id: &str) -> Vec<String> {
    let findings = document["findings"].as_array().unwrap().iter().filter(|finding| finding["id"] == id);
    let text = |found: &Value| format!("{}: {}", found["about"].as_str().unwrap(), found["detail"].as_str().unwrap());
    findings.flat_map(|finding| finding["found"].as_array().unwrap().iter().map(text)).collect()
}

fn ids(document: &Value) -> Vec<&str> {
    document["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

async fn create_account(world: &World, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "kube-system");
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
    let token: TokenRequest = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    token.status.unwrap().token.unwrap()
}

/// Returns flags with a kubeconfig of this user, and with this server address; an empty address removes the CA instead.
fn as_user(world: &World, name: &str, user: Value, address: Option<&str>) -> Vec<String> {
    let mut kubeconfig = kube::config::Kubeconfig::read_from(world.server.kubeconfig()).unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(serde_json::from_value(user).unwrap());
    if let (Some(address), Some(cluster)) = (address, kubeconfig.clusters[0].cluster.as_mut()) {
        match address {
            "" => cluster.certificate_authority_data = None,
            address => cluster.server = Some(address.to_owned()),
        }
    }
    let file = world.server.scratch.file(name, serde_json::to_string(&kubeconfig).unwrap());
    let reach = world.reach.iter().filter(|flag| !flag.starts_with("--kubeconfig"));
    reach.cloned().chain([format!("--kubeconfig={}", file.display())]).collect()
}

fn check_as(reach: &[String], flags: &[&str]) -> (Value, Option<i32>) {
    let words = ["check", "-o=json", "--configure-cloud-routes=false"].into_iter();
    checked(&bowline(&words.chain(reach.iter().map(String::as_str)).chain(flags.iter().copied()).collect::<Vec<_>>()))
}

#[tokio::test]
async fn a_healthy_cluster_has_no_errors_and_is_not_changed() {
    let world = World::start("check-sound").await;
    world.cloud(&["add", "worker-1", "--address=InternalIP=10.0.0.1"]);
    world.create_node("worker-1").await;
    let before = world.versions().await;
    let (document, code) = check(&world, &[]);
    assert_eq!((code, &document["errors"], &document["warnings"]), (Some(0), &json!(0), &json!(0)), "{document:#}");
    assert_eq!(found(&document, "nodes-waiting"), ["worker-1: in local"]);
    let (document, code) = check(&world, &["--use-service-account-credentials"]);
    assert_eq!(code, Some(0), "{document:#}");
    assert_eq!(world.versions().await, before);
    let text = world.run("check", &["--configure-cloud-routes=false"]);
    assert!(String::from_utf8_lossy(&text.stdout).ends_with("0 errors, 0 warnings.\n"), "{text:?}");
}

#[tokio::test]
async fn every_missing_permission_is_reported() {
    let world = World::start_with("check-rights", &["--authorization-mode=RBAC"]).await;
    let token = create_account(&world, "unbound").await;
    let reach = as_user(&world, "unbound.kc", json!({"token": token}), None);
    let (document, code) = check_as(&reach, &[]);
    assert_eq!(code, Some(3), "{document:#}");
    let missing = found(&document, "right-missing");
    for permission in ["list nodes: ", "patch services/status: ", "create leases.coordination.k8s.io in kube-system: "]
    {
        assert!(missing.iter().any(|missing| missing.starts_with(permission)), "{permission}: {missing:#?}");
    }
    let unseen = found(&document, "unseen");
    assert!(unseen.iter().any(|unseen| unseen.starts_with("Nodes: ")), "{unseen:#?}");
    assert!(found(&document, "api-reached")[0].ends_with("authenticated as system:serviceaccount:kube-system:unbound"));
    // Only an administrator can review the permissions of a controller's service account.
    let (document, _) = check_as(&reach, &["--use-service-account-credentials"]);
    assert!(ids(&document).contains(&"right-unknown"), "{document:#}");
    let (document, code) = check(&world, &["--use-service-account-credentials"]);
    assert_eq!((code, found(&document, "right-missing")), (Some(0), Vec::new()), "the bootstrap roles are enough");
}

/// Applies the roles that `bowline manifests` prints for these flags.
async fn apply_roles(world: &World, flags: &[&str]) {
    let printed = bowline(&[&["manifests", "--cloud-provider=local"], flags].concat());
    let printed = String::from_utf8(printed.stdout).unwrap();
    for document in printed.split("\n---\n").filter(|document| document.contains("rbac.authorization.k8s.io/v1")) {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", &text(&object["kind"]));
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(world.client.clone(), namespace, &resource),
            None => Api::all_with(world.client.clone(), &resource),
        };
        let params = PatchParams::apply("look");
        api.patch(&text(&object["metadata"]["name"]), &params, &Patch::Apply(&object)).await.unwrap();
    }
}

#[tokio::test]
async fn the_manifests_grant_exactly_the_checked_permissions() {
    let flags = ["--enable-leader-migration", "--use-service-account-credentials"];
    for flags in [&flags[..0], &flags[..1], &flags[..]] {
        let world = World::start_with("check-granted", &["--authorization-mode=RBAC"]).await;
        let token = create_account(&world, "cloud-controller-manager").await;
        let reach = as_user(&world, "manager.kc", json!({"token": token}), None);
        apply_roles(&world, flags).await;
        let (document, _) = check_as(&reach, flags);
        assert_eq!(found(&document, "right-missing"), Vec::<String>::new(), "{flags:?}");
        assert_eq!(found(&document, "rights-complete").len(), 1, "{flags:?}: {document:#}");
        let roles: Api<Role> = Api::namespaced(world.client.clone(), "kube-system");
        roles.delete("bowline", &DeleteParams::default()).await.unwrap();
        let document = check_as(&reach, flags).0;
        let missing = found(&document, "right-missing");
        let all = [
            "get leases.coordination.k8s.io cloud-controller-manager in kube-system: ",
            "get configmaps extension-apiserver-authentication in kube-system: ",
            "update leases.coordination.k8s.io cloud-provider-extraction-migration in kube-system: ",
            "create serviceaccounts/token node-controller in kube-system: ",
        ];
        for permission in &all[..2 + flags.len()] {
            assert!(
                missing.iter().any(|missing| missing.starts_with(permission)),
                "{flags:?}, {permission}: {missing:#?}"
            );
        }
        let optional = found(&document, "right-dispensable");
        for permission in [
            "watch leases.coordination.k8s.io cloud-controller-manager",
            "update leases.coordination.k8s.io bowline-notes",
        ] {
            assert!(optional.iter().any(|optional| optional.starts_with(permission)), "{permission}: {optional:#?}");
        }
    }
}

/// Relevant rules of the role of openstack-cloud-controller-manager.
fn go_role() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "go"},
        "rules": [
            rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
            rule("", &["events"], &["create", "patch", "update"]),
            rule("", &["nodes"], &["*"]),
            rule("", &["nodes/status"], &["patch"]),
            rule("", &["services"], &["list", "patch", "update", "watch"]),
            rule("", &["services/status"], &["patch"]),
            rule("", &["configmaps"], &["get", "list", "watch"]),
        ],
    })
}

#[tokio::test]
async fn the_role_of_a_go_manager_has_all_required_permissions() {
    let world = World::start_with("check-go", &["--authorization-mode=RBAC"]).await;
    let token = create_account(&world, "go").await;
    let role: ClusterRole = serde_json::from_value(go_role()).unwrap();
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = json!({
        "metadata": {"name": "go"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "go"},
        "subjects": [{"kind": "ServiceAccount", "name": "go", "namespace": "kube-system"}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let (document, code) = check_as(&as_user(&world, "go.kc", json!({"token": token}), None), &[]);
    assert_eq!((code, &document["errors"]), (Some(0), &json!(0)), "{document:#}");
    let permissions = found(&document, "right-dispensable");
    let mut permissions: Vec<_> =
        permissions.iter().filter_map(|permission| Some(permission.split_once(": ")?.0)).collect();
    permissions.sort_unstable();
    let expected = [
        "create subjectaccessreviews.authorization.k8s.io",
        "create tokenreviews.authentication.k8s.io",
        "get services",
        "watch leases.coordination.k8s.io cloud-controller-manager in kube-system",
    ];
    assert_eq!(permissions, expected);
}

#[tokio::test]
async fn connection_failures_are_reported_by_their_stage() {
    let world = World::start("check-reach").await;
    let port = world.server.url().rsplit(':').next().unwrap().to_owned();
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let cases = [
        (json!({"token": "unknown"}), None, "api-credentials"),
        (json!({}), None, "api-credentials"),
        (json!({}), Some(format!("https://{unused_address}")), "api-connection"),
        (json!({}), Some("https://nowhere.invalid:6443".to_owned()), "api-name"),
        (json!({}), Some(format!("http://127.0.0.1:{port}")), "api-conversation"),
        (json!({}), Some(String::new()), "api-conversation"),
    ];
    for (user, address, expected) in cases {
        let (document, code) = check_as(&as_user(&world, expected, user, address.as_deref()), &[]);
        assert_eq!(code, Some(3), "{expected}: {document:#}");
        assert!(ids(&document).contains(&expected), "{expected}: {document:#}");
        assert!(ids(&document).contains(&"cloud-reached"), "the clouds are checked anyway: {document:#}");
    }
}

#[tokio::test]
async fn missing_credentials_are_reported_if_the_server_allows_anonymous_access() {
    let world = World::start_with("check-anonymous", &["--authorization-mode=RBAC"]).await;
    let (document, code) = check_as(&as_user(&world, "anonymous", json!({}), None), &[]);
    assert_eq!(code, Some(3), "{document:#}");
    assert!(ids(&document).contains(&"api-anonymous"), "{document:#}");
}

#[tokio::test]
async fn wrong_kubelet_flags_are_detected_from_nodes() {
    let world = World::start("check-nodes").await;
    world.cloud(&["add", "plain", "--address=InternalIP=10.0.0.1"]);
    world.create_node("unknown").await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    for (name, id) in [("plain", None), ("moon", Some("moon://1")), ("gone", Some("local://nowhere"))] {
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": id}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }
    let (document, code) = check(&world, &[]);
    assert_eq!(code, Some(3), "{document:#}");
    assert_eq!(found(&document, "kubelet-not-external"), ["plain: in local"]);
    assert_eq!(found(&document, "node-name-unknown"), ["unknown: "]);
    assert_eq!(found(&document, "provider-id-foreign"), ["moon: moon://1"]);
    assert_eq!(found(&document, "machine-gone"), ["gone: in local"]);
}

#[tokio::test]
async fn other_managers_are_found_by_their_leases() {
    let world = World::start("check-rivals").await;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-system");
    let now = jiff::Timestamp::now().to_string();
    for name in ["cloud-controller-manager", "hcloud-cloud-controller-manager", "kube-scheduler"] {
        let spec = json!({"holderIdentity": "host_1", "leaseDurationSeconds": 15, "renewTime": now});
        let lease = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
    let (document, code) = check(&world, &[]);
    assert_eq!(code, Some(3), "{document:#}");
    assert!(found(&document, "second-manager")[0].starts_with("hcloud-cloud-controller-manager: held by host_1"));
    assert_eq!(found(&document, "second-manager").len(), 1);
    assert_eq!(found(&document, "lease-of-another").len(), 1, "{document:#}");
    let (document, _) = check(&world, &["--leader-elect=false"]);
    assert_eq!(found(&document, "election-off").len(), 1, "{document:#}");
}

#[tokio::test]
async fn invalid_and_unknown_flags_are_findings() {
    let world = World::start("check-flags").await;
    let (document, code) = check(&world, &["--cluster-name=", "--node-monitor-period=1d", "--knots=3"]);
    assert_eq!((code, found(&document, "configuration").len()), (Some(3), 3), "{document:#}");
    assert!(found(&document, "configuration").iter().any(|found| found.contains("--knots: unknown flag")));
    assert!(ids(&document).contains(&"api-reached"), "the rest is checked anyway: {document:#}");
    assert!(!ids(&document).contains(&"server-new"), "the version of our own API server is known: {document:#}");
    let output = world.run("check", &["-o", "xml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
