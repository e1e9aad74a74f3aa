//! An API server with rules about who may do what, and a server that asks it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use bowline_runtime::Shutdown;
use bowline_serving::{
    ANY, AccessControl, AuthenticationOptions, Authenticator, AuthorizationOptions, Authorizer, CheckMetrics, Checks,
    IncomingRequest, READ_METHODS, Router, Server, ServingOptions, TlsOptions, answer,
};
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::pki::Scratch;
use crate::visitor::Visitor;

/// The one in whose name reviews are asked for.
pub(crate) const MANAGER: &str = "manager";

/// An API server in RBAC mode, whose rules are few.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    pub(crate) scratch: Scratch,
}

impl Cluster {
    /// With a manager who may ask for reviews and follow the settings, and a scraper who may look at metrics.
    pub(crate) async fn start() -> Cluster {
        let cluster = Cluster::without_rights().await;
        let reviews = json!([
            { "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] },
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
        ]);
        cluster.grant("reviews", MANAGER, &reviews).await;
        cluster.grant("metrics", "scraper", &json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }])).await;
        cluster.let_follow_settings().await;
        cluster
    }

    pub(crate) async fn without_rights() -> Cluster {
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

    /// By name, as the role that clusters have for this grants it.
    async fn let_follow_settings(&self) {
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

    /// The API server's settings, as it would write them.
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

    /// How often this was created so far.
    pub(crate) fn asked(&self, resource: &str) -> u64 {
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

/// How a server is to be.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) serving: ServingOptions,
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) authorization: AuthorizationOptions,
}

impl Wanted {
    /// On a free port of this machine, with nobody to ask.
    pub(crate) fn alone() -> Wanted {
        let bind_address = Ipv4Addr::LOCALHOST.into();
        Wanted {
            serving: ServingOptions { bind_address, port: 0, ..ServingOptions::default() },
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
        }
    }

    pub(crate) fn with_tls(tls: TlsOptions) -> Wanted {
        let alone = Wanted::alone();
        Wanted { serving: ServingOptions { tls, ..alone.serving }, ..alone }
    }

    /// Asks the API server in the name of this one. The settings are not looked up.
    pub(crate) fn asking(cluster: &Cluster, user: &str) -> Wanted {
        let (alone, kubeconfig) = (Wanted::alone(), Some(cluster.kubeconfig(user)));
        Wanted {
            authentication: AuthenticationOptions {
                kubeconfig: kubeconfig.clone(),
                skip_lookup: true,
                ..alone.authentication
            },
            authorization: AuthorizationOptions { kubeconfig, ..alone.authorization },
            ..alone
        }
    }

    pub(crate) async fn door(&self) -> Result<AccessControl, Box<dyn std::error::Error>> {
        let reviews = client(self.authentication.kubeconfig.as_deref()).await?;
        let authenticator = Authenticator::new(&self.authentication, reviews).await?;
        let reviews = client(self.authorization.kubeconfig.as_deref()).await?;
        Ok(AccessControl::protected(authenticator, Authorizer::new(&self.authorization, reviews)?))
    }

    pub(crate) async fn start(&self) -> Running {
        let server = Server::bind(&self.serving).unwrap();
        Running::start(server, site(), self.door().await.unwrap())
    }
}

/// One that asks the API server by this kubeconfig; nobody without one.
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
    pub(crate) fn start(server: Server, site: Router, door: AccessControl) -> Running {
        let (address, shutdown) = (server.address(), Shutdown::new());
        let serving = server.serve(site, door, shutdown.clone());
        let task = tokio::spawn(async move {
            let Ok(()) = serving.await;
        });
        Running { address, shutdown, task }
    }

    pub(crate) fn visitor(&self) -> Visitor {
        Visitor::to(self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// `/healthz`; `/metrics`; `/who` says who is asking, `/headers` what a handler sees, `/panic` does.
fn site() -> Router {
    let metrics = CheckMetrics::register(&prometheus::Registry::new()).unwrap();
    let who = |asked: IncomingRequest| async move {
        let user = asked.user;
        let told = json!({ "name": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra });
        answer::json(StatusCode::OK, &told)
    };
    let headers = |asked: IncomingRequest| async move {
        let names: Vec<_> = asked.headers.keys().map(|name| name.as_str().to_owned()).collect();
        answer::text(StatusCode::OK, names.join("\n"))
    };
    let panics = |asked: IncomingRequest| async move {
        assert!(asked.has("well"), "as the test wants it");
        answer::text(StatusCode::OK, "well")
    };
    let slow = |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        answer::text(StatusCode::OK, "at last")
    };
    let body = |asked: IncomingRequest| async move { answer::text(StatusCode::OK, asked.body.len().to_string()) };
    Checks::new("healthz", &metrics)
        .on(Router::new())
        .at("/metrics", ANY, |_| async { answer::text(StatusCode::OK, "knots 1\n") })
        .at("/who", READ_METHODS, who)
        .at("/headers", READ_METHODS, headers)
        .at("/panic", READ_METHODS, panics)
        .at("/slow", READ_METHODS, slow)
        .at("/body", ANY, body)
}

/// Looks again and again until it is so.
pub(crate) async fn eventually<F>(what: &str, mut is_so: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "not so after half a minute: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
