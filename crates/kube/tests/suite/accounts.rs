//! Controllers with their own service accounts, on a server with RBAC.

use crate::fixture::file::Scratch;
use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use bowline_kube::{Access, ClientOptions, Clients};
use bowline_runtime::Fence;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Server in RBAC mode, and a process that may request tokens and nothing else.
struct World {
    server: ApiServer,
    admin: kube::Client,
    clients: Clients,
    _kubeconfig: Scratch,
}

async fn world() -> Result<World, Failure> {
    let server = ApiServer::start(Options { authorization: AuthorizationMode::Rbac, ..Options::default() }).await?;
    let admin = server.client().await?;
    allow(&admin, "bowline", json!({"kind": "User", "name": "bowline"}), &["serviceaccounts", "serviceaccounts/token"])
        .await?;
    let kubeconfig = Scratch::write(&server.kubeconfig_for("bowline", &[])?)?;
    let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), ..ClientOptions::default() };
    let clients = Clients::new(Access::open(&options).await?, true);
    Ok(World { server, admin, clients, _kubeconfig: kubeconfig })
}

/// Allows the subject to create these resources in kube-system.
async fn allow(
    admin: &kube::Client,
    name: &str,
    subject: serde_json::Value,
    resources: &[&str],
) -> Result<(), Failure> {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let role = json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["create"]}]});
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let binding = json!({"metadata": {"name": name}, "subjects": [subject], "roleRef": role_ref});
    let roles: Api<Role> = Api::namespaced(admin.clone(), "kube-system");
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "kube-system");
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// User that the client is authenticated as.
async fn username(client: &kube::Client) -> Result<String, Failure> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username).unwrap_or_default())
}

#[tokio::test]
async fn cl4_each_controller_uses_its_own_account_and_the_process_its_own_user() -> Result<(), Failure> {
    let world = world().await?;
    let names = ["node-controller", "service-controller", "route-controller"];
    for name in names {
        assert_eq!(
            username(&world.clients.controller(name)).await?,
            format!("system:serviceaccount:kube-system:{name}")
        );
    }
    assert_eq!(username(&world.clients.process()).await?, "bowline");
    assert_eq!(username(&world.clients.named("leader-election")).await?, "bowline");
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin.clone(), "kube-system");
    for name in names {
        assert!(accounts.get_opt(name).await?.is_some(), "{name} was created");
    }
    Ok(())
}

#[tokio::test]
async fn cl4_a_controller_has_the_permissions_of_its_account_and_not_of_the_process() -> Result<(), Failure> {
    let world = world().await?;
    let subject = json!({"kind": "ServiceAccount", "name": "service-controller", "namespace": "kube-system"});
    allow(&world.admin, "maps", subject, &["configmaps"]).await?;
    let map =
        |name: &str| -> Result<ConfigMap, Failure> { Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?) };
    let maps = |client: kube::Client| -> Api<ConfigMap> { Api::namespaced(client, "kube-system") };
    maps(world.clients.controller("service-controller")).create(&PostParams::default(), &map("a")?).await?;
    for other in [world.clients.controller("node-controller"), world.clients.process()] {
        let result = maps(other).create(&PostParams::default(), &map("b")?).await;
        assert!(matches!(&result, Err(kube::Error::Api(status)) if status.code == 403), "{result:?}");
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(world.clients.controller("node-controller"), "kube-system");
    let result =
        accounts.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "x"}}))?).await;
    assert!(
        matches!(result, Err(kube::Error::Api(status)) if status.code == 403),
        "only the process has that permission"
    );
    Ok(())
}

#[tokio::test]
async fn cl4_a_deleted_account_is_recreated_transparently() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.clients.controller("node-controller");
    username(&client).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin.clone(), "kube-system");
    accounts.delete("node-controller", &DeleteParams::default()).await?;
    assert_eq!(username(&client).await?, "system:serviceaccount:kube-system:node-controller");
    assert!(accounts.get_opt("node-controller").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn cl4_without_the_lease_neither_account_nor_token_is_created_even_for_reads() -> Result<(), Failure> {
    let world = world().await?;
    let fence = Fence::open();
    let term = fence.term("main");
    let client = world.clients.clone().fenced(fence).controller("node-controller");
    let read = client.clone().apiserver_version().await;
    let message = read.err().map(|error| format!("{error:?}")).unwrap_or_default();
    assert!(message.contains("does not hold the lease main"), "{message}");
    let requests = world.server.requests().into_keys().filter(|kind| kind.resource == "serviceaccounts");
    assert_eq!(requests.count(), 0);
    term.extend(tokio::time::Instant::now() + std::time::Duration::from_secs(3600));
    client.apiserver_version().await?;
    Ok(())
}

#[tokio::test]
async fn cl4_without_permission_for_tokens_the_error_names_account_and_permission() -> Result<(), Failure> {
    let world = world().await?;
    let kubeconfig = Scratch::write(&world.server.kubeconfig_for("unprivileged", &[])?)?;
    let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), ..ClientOptions::default() };
    let clients = Clients::new(Access::open(&options).await?, true);
    let error = username(&clients.controller("node-controller")).await.unwrap_err().to_string();
    assert!(error.contains("kube-system/node-controller"), "{error}");
    assert!(error.contains("cannot create resource \"serviceaccounts/token\""), "{error}");
    Ok(())
}
