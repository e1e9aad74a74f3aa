//! The feed against the embedded API server, the roles of the manifests, and managers with the access control of real ones.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_apiserver::{ApiServer, AuthorizationMode, Effect, FaultRule, Options};
use bowline_console::{Position, access};
use bowline_runtime::Shutdown;
use bowline_serving::{
    AccessControl, AudienceToken, AuthenticationOptions, Authenticator, AuthorizationOptions, Authorizer, READ_METHODS,
    Router, Server, ServingOptions, answer,
};
use clap::Parser as _;
use http::{HeaderName, Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};

use super::call::{CallError, call_json};
use super::remote::RemoteFeed;
use super::remote_error::RemoteError;
use crate::cli::{Cli, Command, ReachArgs};
use crate::manifests;

/// User that the role is bound to.
const JANE: &str = "jane";

/// A cluster with the console's objects of the manifests.
struct World {
    server: ApiServer,
}

/// A manager that serves a document with its name as the epoch.
struct Manager {
    port: u16,
    requests: Arc<AtomicUsize>,
    shutdown: Shutdown,
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

impl World {
    async fn new() -> World {
        let world = World::without_roles().await;
        let objects = manifests::console_objects("kube-system");
        for document in objects.split("---\n") {
            world.create(&serde_saphyr::from_str(document).unwrap()).await;
        }
        for account in ["user", "manager"] {
            world.create(&binding(account)).await;
        }
        world
    }

    async fn without_roles() -> World {
        let options =
            Options { authorization: AuthorizationMode::Rbac, loopback_endpoints: true, ..Options::default() };
        World { server: ApiServer::start(options).await.unwrap() }
    }

    /// A client that does not retry, as that of the command.
    async fn client(&self, user: &str, groups: &[&str]) -> Client {
        let kubeconfig =
            kube::config::Kubeconfig::from_yaml(&self.server.kubeconfig_for(user, groups).unwrap()).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, CallError> {
        let admin = self.client("admin", &["system:masters"]).await;
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        call_json(&admin, request.body(body.to_string().into_bytes()).unwrap()).await
    }

    async fn create(&self, object: &Value) {
        let kind = object["kind"].as_str().unwrap().to_lowercase() + "s";
        let scope =
            object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let root = match object["apiVersion"].as_str().unwrap() {
            "v1" => "/api/v1".to_owned(),
            version => format!("/apis/{version}"),
        };
        loop {
            match self.send("POST", &format!("{root}{scope}/{kind}"), object).await {
                // The built-in controller has not created the default service account yet.
                Err(CallError::Rejected(error)) if error.code == 403 && kind == "pods" => {
                    tokio::task::yield_now().await
                }
                other => return drop(other.unwrap()),
            }
        }
    }

    /// Starts a manager, and creates its Pod of this name.
    async fn manager(&self, name: &str) -> Manager {
        let manager = self.start_manager(name, access::PATH).await;
        self.create_pod(name, manager.port).await;
        manager
    }

    async fn start_manager(&self, name: &str, path: &'static str) -> Manager {
        let serving = ServingOptions { bind_address: Ipv4Addr::LOCALHOST.into(), port: 0, ..ServingOptions::default() };
        let server = Server::bind(&serving).unwrap();
        let (port, shutdown, requests) = (server.address().port(), Shutdown::new(), Arc::new(AtomicUsize::new(0)));
        let reviews = self.client("manager", &[]).await;
        let options = AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() };
        let authenticator =
            Authenticator::new(&options, Some(reviews.clone())).await.unwrap().accepting(AudienceToken {
                path: access::PATH,
                header: HeaderName::from_static(access::TOKEN_HEADER),
                audience: access::AUDIENCE,
            });
        let authorizer = Authorizer::new(&AuthorizationOptions::default(), Some(reviews)).unwrap();
        let (counter, document) = (requests.clone(), document(name));
        let router = Router::new().at(path, READ_METHODS, move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::ready(answer::json(StatusCode::OK, &document))
        });
        let serving = server.serve(router, AccessControl::protected(authenticator, authorizer), shutdown.clone());
        tokio::spawn(async move {
            let Ok(()) = serving.await;
        });
        Manager { port, requests, shutdown }
    }

    async fn create_pod(&self, name: &str, port: u16) {
        let container = json!({"name": "manager", "image": "bowline", "args": [format!("--secure-port={port}")]});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"automountServiceAccountToken": false, "containers": [container]},
        });
        self.create(&pod).await;
        let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
        self.send("PATCH", &format!("/api/v1/namespaces/kube-system/pods/{name}/status"), &status).await.unwrap();
    }

    /// Makes the process on this host the leader.
    async fn lead(&self, host: &str) {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        let name = "cloud-controller-manager";
        let spec = json!({"holderIdentity": if host.is_empty() { String::new() } else { format!("{host}_0b1e") }});
        let patch = json!({ "spec": spec });
        if self.send("PATCH", &format!("{path}/{name}"), &patch).await.is_err() {
            let lease = json!({"metadata": {"name": name}, "spec": spec});
            self.send("POST", path, &lease).await.unwrap();
        }
    }

    async fn feed(&self, user: &str, flags: &[&str]) -> RemoteFeed {
        RemoteFeed::new(self.client(user, &[]).await, self.server.url(), &args(flags))
    }
}

fn document(name: &str) -> Value {
    json!({"epoch": name, "revision": 1, "complete": true, "time": "2026-01-01T00:00:00Z", "items": {}})
}

fn args(flags: &[&str]) -> ReachArgs {
    match Cli::parse_from(["bowline", "top"].iter().chain(flags)).command {
        Some(Command::Top(args)) => args.manager,
        other => panic!("{other:?}"),
    }
}

/// Binds the role of the console to its user, or what the access control of a manager needs to the managers.
fn binding(subject: &str) -> Value {
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let user = |name: &str| json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]);
    match subject {
        "user" => json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "jane", "namespace": "kube-system"}, "roleRef": role(access::USER_ROLE), "subjects": user(JANE),
        }),
        _ => json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "manager"},
            "roleRef": role("system:auth-delegator"), "subjects": user("manager"),
        }),
    }
}

async fn epoch(feed: &RemoteFeed) -> Result<String, RemoteError> {
    let body = feed.read(&Position::default()).await?;
    let document: Value = serde_json::from_slice(&body).unwrap();
    Ok(document["epoch"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_user_with_the_role_of_the_manifests_reads_the_leaders_document_with_one_token() {
    let world = World::new().await;
    let (first, second) = (world.manager("a").await, world.manager("b").await);
    world.lead("a").await;
    let feed = world.feed(JANE, &[]).await;
    for _ in 0..3 {
        assert_eq!(epoch(&feed).await.as_deref(), Ok("a"));
    }
    assert_eq!((first.requests.load(Ordering::Relaxed), second.requests.load(Ordering::Relaxed)), (3, 0));
    let tokens = world.server.requests().into_iter().filter(|(kind, _)| kind.subresource == "token");
    assert_eq!(tokens.map(|(_, count)| count).sum::<u64>(), 1);
}

#[tokio::test]
async fn the_feed_follows_a_new_leader_and_a_new_pod() {
    let world = World::new().await;
    let (first, _second) = (world.manager("a").await, world.manager("b").await);
    world.lead("a").await;
    let feed = world.feed(JANE, &[]).await;
    assert_eq!(epoch(&feed).await.as_deref(), Ok("a"));
    drop(first);
    world.lead("b").await;
    // At the latest when the holder is read again; at once after a failure.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while epoch(&feed).await.as_deref() != Ok("b") {
        assert!(tokio::time::Instant::now() < deadline, "the new leader is not followed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The Pod is replaced by one of another name, on the same host.
    let path = "/api/v1/namespaces/kube-system/pods/b";
    world.send("DELETE", path, &json!({"gracePeriodSeconds": 0})).await.unwrap();
    let error = epoch(&feed).await.unwrap_err();
    assert_eq!(error, RemoteError::NoPod { holder: "b_0b1e".to_owned(), namespace: "kube-system".to_owned() });
    let third = world.start_manager("c", access::PATH).await;
    world.create_pod("b", third.port).await;
    assert_eq!(epoch(&feed).await.as_deref(), Ok("c"));
}

#[tokio::test]
async fn each_missing_object_has_its_remedy() {
    let world = World::new().await;
    let feed = world.feed(JANE, &[]).await;
    let message = async |feed: &RemoteFeed| epoch(feed).await.unwrap_err().to_string();
    let text = message(&feed).await;
    assert!(
        text.starts_with("there is no Lease kube-system/cloud-controller-manager") && text.contains("--lease"),
        "{text}"
    );
    world.lead("").await;
    let text = message(&feed).await;
    assert!(text.starts_with("no manager holds the Lease kube-system/cloud-controller-manager"), "{text}");
    world.lead("a").await;
    let text = message(&feed).await;
    assert!(text.starts_with("the leader a_0b1e has no Pod in the namespace kube-system"), "{text}");
    assert!(text.contains("--namespace") && text.contains("--manager"), "{text}");
    let old = world.start_manager("a", "/statusz").await;
    world.create_pod("a", old.port).await;
    let text = message(&feed).await;
    assert!(text.starts_with("the manager a has no /consolez: it is older"), "{text}");
    drop(old);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let text = message(&feed).await;
    assert!(text.starts_with("the API server cannot reach the Pod a on port ") && text.contains("refused"), "{text}");
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/bowline-console";
    world.send("DELETE", path, &json!({})).await.unwrap();
    let text = message(&world.feed(JANE, &[]).await).await;
    assert!(text.starts_with("the service account kube-system/bowline-console does not exist"), "{text}");
    assert!(text.contains("bowline manifests") && text.contains("console.enabled"), "{text}");
}

#[tokio::test]
async fn each_missing_permission_is_named_with_the_role_to_bind() {
    let world = World::new().await;
    let _manager = world.manager("a").await;
    world.lead("a").await;
    let rules = |kept: usize| {
        let all = [
            json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}),
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}),
            json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}),
            json!({"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}),
        ];
        json!(all[..kept])
    };
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bowline-console-user";
    let actions = [
        "get the Lease kube-system/cloud-controller-manager",
        "list the Pods in kube-system",
        "create a token of the service account kube-system/bowline-console",
        "send requests to Pods in kube-system through the API server",
    ];
    for (kept, action) in actions.iter().enumerate() {
        world.send("PATCH", role, &json!({"rules": rules(kept)})).await.unwrap();
        let text = epoch(&world.feed(JANE, &[]).await).await.unwrap_err().to_string();
        assert!(text.starts_with(&format!("no permission to {action}: ")), "{text}");
        assert!(text.contains("User \"jane\" cannot") || text.contains("\\\"jane\\\""), "{text}");
        let command = "kubectl -n kube-system create rolebinding bowline-console-user --clusterrole=bowline-console-user --user=NAME";
        assert!(text.ends_with(command), "{text}");
    }
    world.send("PATCH", role, &json!({"rules": rules(4)})).await.unwrap();
    assert_eq!(epoch(&world.feed(JANE, &[]).await).await.as_deref(), Ok("a"));
}

#[tokio::test]
async fn the_service_account_needs_the_permission_for_the_path() {
    let world = World::new().await;
    let _manager = world.manager("a").await;
    world.lead("a").await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/bowline-console";
    world.send("DELETE", path, &json!({})).await.unwrap();
    let text = epoch(&world.feed(JANE, &[]).await).await.unwrap_err().to_string();
    assert!(
        text.starts_with("the manager a does not let the service account kube-system/bowline-console read /consolez"),
        "{text}"
    );
    assert!(text.contains("apply the manifests"), "{text}");
}

#[tokio::test]
async fn a_manager_that_cannot_review_tokens_is_reported_after_one_new_token() {
    let world = World::new().await;
    let _manager = world.manager("a").await;
    world.lead("a").await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/manager";
    world.send("DELETE", path, &json!({})).await.unwrap();
    let text = epoch(&world.feed(JANE, &[]).await).await.unwrap_err().to_string();
    assert!(text.starts_with("the manager a does not accept tokens of the service account"), "{text}");
    let tokens = world.server.requests().into_iter().filter(|(kind, _)| kind.subresource == "token");
    assert_eq!(tokens.map(|(_, count)| count).sum::<u64>(), 2);
}

#[tokio::test]
async fn an_api_server_that_fails_or_is_gone_is_reported() {
    let world = World::new().await;
    let feed = world.feed(JANE, &[]).await;
    let effect = Effect::Status {
        code: StatusCode::INTERNAL_SERVER_ERROR,
        message: "etcd is down".to_owned(),
        retry_after: None,
    };
    let fault = FaultRule { effect, times: Some(1), ..FaultRule::default() };
    world.server.faults().add(fault);
    let text = epoch(&feed).await.unwrap_err().to_string();
    assert_eq!(text, "cannot get the Lease kube-system/cloud-controller-manager: status 500: etcd is down");
    let url = world.server.url();
    world.server.shutdown().await;
    let text = epoch(&feed).await.unwrap_err().to_string();
    assert!(
        text.starts_with(&format!("the API server {url} cannot be reached: ")) && text.contains("--kubeconfig"),
        "{text}"
    );
}
