//! An API server with RBAC rules, and a server that delegates to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use bowline_runtime::Shutdown;
use bowline_serving::{
    ANY, AccessControl, AudienceToken, AuthenticationOptions, Authenticator, AuthorizationOptions, Authorizer,
    CheckMetrics, Checks, IncomingRequest, READ_METHODS, Router, Server, ServingOptions, TlsOptions, answer,
};
use http::{HeaderName, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::TestClient;
use crate::pki::Scratch;

/// Token that is accepted on `/console` only.
pub(crate) const CONSOLE: AudienceToken =
    AudienceToken { path: "/console", header: HeaderName::from_static("x-console-token"), audience: "console" };

/// User that creates the reviews.
pub(crate) const MANAGER: &str = "manager";

/// An API server in RBAC mode.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    pub(crate) scratch: Scratch,
}

impl Cluster {
    /// Starts it with a manager that may create reviews and watch the settings, and a scraper that may read metrics.
    pub(crate) async fn start() -> Cluster {
        let cluster = Cluster::without_permissions().await;
        let reviews = json!([
            { "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] },
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
        ]);
        cluster.grant("reviews", MANAGER, &reviews).await;
        cluster.grant("metrics", "scraper", &json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }])).await;
        cluster.allow_watching_settings().await;
        cluster
    }

    pub(crate) async fn without_permissions() -> Cluster {
        let options = Options { authorization: AuthorizationMode::Rbac, ..Options::default() };
        let api = ApiServer::start(options).await.unwrap();
        api.add_token("scraper-token", "scraper", &[]);
        api.add_token("other-token", "other", &[]);
        api.add_token("master-token", "root", &["system:masters"]);
        Cluster { api, scratch: Scratch::new() }
    }

    pub(crate) async fn grant(&self, name: &str, user: &str, rules: &Value) {
        let client = self.api.client().await.unwrap();
        let role = json!({ "metadata": { "name": name }, "rules": rules });
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
        });
        create::<ClusterRole>(Api::all(client.clone()), role).await;
        create::<ClusterRoleBinding>(Api::all(client), binding).await;
    }

    /// Grants access by name, as the role extension-apiserver-authentication-reader does.
    async fn allow_watching_settings(&self) {
        let client = self.api.client().await.unwrap();
        let rules = json!([{
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }]);
        let role = json!({ "metadata": { "name": "settings" }, "rules": rules });
        let binding = json!({
            "metadata": { "name": "settings" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "settings" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MANAGER }],
        });
        create::<Role>(Api::namespaced(client.clone(), "kube-system"), role).await;
        create::<RoleBinding>(Api::namespaced(client, "kube-system"), binding).await;
    }

    /// Writes the API server's authentication settings.
    pub(crate) async fn settings(&self, data: Value) {
        let api: Api<ConfigMap> = Api::namespaced(self.api.client().await.unwrap(), "kube-system");
        let map = json!({ "metadata": { "name": "extension-apiserver-authentication" }, "data": data });
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        match api.get_opt("extension-apiserver-authentication").await.unwrap() {
            Some(_) => {
                drop(api.replace("extension-apiserver-authentication", &PostParams::default(), &map).await.unwrap())
            }
            None => drop(api.create(&PostParams::default(), &map).await.unwrap()),
        }
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.scratch.write(&format!("{user}.kubeconfig"), &self.api.kubeconfig_for(user, &[]).unwrap())
    }

    /// Creates the service account `default/NAME` and a token of it for this audience; `None` for the API server itself.
    pub(crate) async fn account_token(&self, name: &str, audience: Option<&str>) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.api.client().await.unwrap(), "default");
        if accounts.get_opt(name).await.unwrap().is_none() {
            create(accounts.clone(), json!({ "metadata": { "name": name } })).await;
        }
        let audiences: Vec<String> = audience.into_iter().map(str::to_owned).collect();
        let spec = TokenRequestSpec { audiences: Some(audiences), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .unwrap()
            .status
            .unwrap()
            .token
            .unwrap()
    }

    /// Number of objects of this resource created so far.
    pub(crate) fn created(&self, resource: &str) -> u64 {
        let requests = self.api.requests().into_iter();
        requests.filter(|(kind, _)| kind.verb == "create" && kind.resource == resource).map(|(_, count)| count).sum()
    }
}

async fn create<K>(api: Api<K>, object: Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Options of a server under test.
#[derive(Clone)]
pub(crate) struct ServerSpec {
    pub(crate) serving: ServingOptions,
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) authorization: AuthorizationOptions,
}

impl ServerSpec {
    /// A server on a free loopback port that makes no reviews.
    pub(crate) fn without_reviews() -> ServerSpec {
        let bind_address = Ipv4Addr::LOCALHOST.into();
        ServerSpec {
            serving: ServingOptions { bind_address, port: 0, ..ServingOptions::default() },
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
        }
    }

    pub(crate) fn with_tls(tls: TlsOptions) -> ServerSpec {
        let base = ServerSpec::without_reviews();
        ServerSpec { serving: ServingOptions { tls, ..base.serving }, ..base }
    }

    /// A server that makes reviews as this user and does not read the settings.
    pub(crate) fn with_reviews(cluster: &Cluster, user: &str) -> ServerSpec {
        let (base, kubeconfig) = (ServerSpec::without_reviews(), Some(cluster.kubeconfig(user)));
        ServerSpec {
            authentication: AuthenticationOptions {
                kubeconfig: kubeconfig.clone(),
                skip_lookup: true,
                ..base.authentication
            },
            authorization: AuthorizationOptions { kubeconfig, ..base.authorization },
            ..base
        }
    }

    pub(crate) async fn access_control(&self) -> Result<AccessControl, Box<dyn std::error::Error>> {
        let reviews = client(self.authentication.kubeconfig.as_deref()).await?;
        let authenticator = Authenticator::new(&self.authentication, reviews).await?;
        let reviews = client(self.authorization.kubeconfig.as_deref()).await?;
        let authenticator = authenticator.accepting(CONSOLE);
        Ok(AccessControl::protected(authenticator, Authorizer::new(&self.authorization, reviews)?))
    }

    pub(crate) async fn start(&self) -> Running {
        let server = Server::bind(&self.serving).unwrap();
        Running::start(server, router(), self.access_control().await.unwrap())
    }
}

/// Creates a client from the kubeconfig, if there is one.
async fn client(kubeconfig: Option<&Path>) -> Result<Option<kube::Client>, Box<dyn std::error::Error>> {
    let Some(path) = kubeconfig else { return Ok(None) };
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    config.default_retry = false;
    Ok(Some(kube::Client::try_from(config)?))
}

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(server: Server, router: Router, access: AccessControl) -> Running {
        let (address, shutdown) = (server.address(), Shutdown::new());
        let serving = server.serve(router, access, shutdown.clone());
        let task = tokio::spawn(async move {
            let Ok(()) = serving.await;
        });
        Running { address, shutdown, task }
    }

    pub(crate) fn client(&self) -> TestClient {
        TestClient::to(self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// `/healthz`; `/metrics`; `/who` returns the user, `/headers` the headers that a handler sees, `/panic` panics.
fn router() -> Router {
    let metrics = CheckMetrics::register(&prometheus::Registry::new()).unwrap();
    let who = |request: IncomingRequest| async move {
        let user = request.user;
        let response = json!({ "name": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra });
        answer::json(StatusCode::OK, &response)
    };
    let headers = |request: IncomingRequest| async move {
        let names: Vec<_> = request.headers.keys().map(|name| name.as_str().to_owned()).collect();
        answer::text(StatusCode::OK, names.join("\n"))
    };
    let panics = |request: IncomingRequest| async move {
        assert!(request.has("well"), "the test panics here");
        answer::text(StatusCode::OK, "well")
    };
    let slow = |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        answer::text(StatusCode::OK, "at last")
    };
    let body = |request: IncomingRequest| async move { answer::text(StatusCode::OK, request.body.len().to_string()) };
    Checks::new("healthz", &metrics)
        .on(Router::new())
        .at("/metrics", ANY, |_| async { answer::text(StatusCode::OK, "knots 1\n") })
        .at("/who", READ_METHODS, who)
        .at("/console", READ_METHODS, who)
        .at("/console/headers", READ_METHODS, headers)
        .at("/headers", READ_METHODS, headers)
        .at("/panic", READ_METHODS, panics)
        .at("/slow", READ_METHODS, slow)
        .at("/body", ANY, body)
}

/// Polls until the condition is true.
pub(crate) async fn eventually<F>(what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "timed out after 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
