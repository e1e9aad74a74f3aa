//! A real OpenStack, and the hands of somebody who may do everything in it: they reach past the provider.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_http::{Client, Options, Proxies, Tls};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

/// Longer than anything on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Identity,
    Compute,
    Network,
    LoadBalancer,
}

/// The services, and who asks.
pub(crate) struct Cloud {
    client: Client,
    user: String,
    project: String,
    /// It lasts an hour, and some cases last longer.
    token: Mutex<String>,
    catalog: Vec<(Service, String)>,
    /// What `ids.json` says.
    pub(crate) ids: Value,
    /// What `clouds.yaml` says; it is JSON.
    clouds: Value,
}

/// What was answered.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Cloud {
    /// The folder that `tests/openstack/up` filled, if there is one.
    pub(crate) fn folder() -> Option<PathBuf> {
        std::env::var_os("BOWLINE_OPENSTACK").map(PathBuf::from)
    }

    /// As the administrator.
    pub(crate) async fn open(folder: &Path) -> Arc<Cloud> {
        let read = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout: PATIENCE };
        let clouds = read("clouds.yaml")["clouds"].clone();
        let mut cloud = Cloud {
            client: Client::new(options).unwrap(),
            user: "admin".to_owned(),
            project: "admin".to_owned(),
            token: Mutex::default(),
            catalog: vec![(Service::Identity, text(&clouds["admin"]["auth"]["auth_url"]))],
            ids: read("ids.json"),
            clouds,
        };
        cloud.catalog.extend(services(&cloud.authenticate().await));
        Arc::new(cloud)
    }

    /// The same services, as the user of the cluster in this project.
    pub(crate) async fn within(&self, project: &str) -> Arc<Cloud> {
        let mut cloud = Cloud {
            client: self.client.clone(),
            user: "k8s".to_owned(),
            project: project.to_owned(),
            token: Mutex::default(),
            catalog: self.catalog.iter().filter(|(service, _)| *service == Service::Identity).cloned().collect(),
            ids: self.ids.clone(),
            clouds: self.clouds.clone(),
        };
        cloud.catalog.extend(services(&cloud.authenticate().await));
        Arc::new(cloud)
    }

    /// Takes a new token, and tells where the services are.
    async fn authenticate(&self) -> Value {
        let password = &self.clouds[&self.user]["auth"]["password"];
        let user = json!({"name": self.user, "password": password, "domain": {"name": "Default"}});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": self.project, "domain": {"name": "Default"}}},
        }});
        let (token, answer) = self.ask(&Method::POST, Service::Identity, "/v3/auth/tokens", Some(&body)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        *self.token.lock().unwrap() = token;
        answer.body["token"]["catalog"].clone()
    }

    /// Where Keystone is.
    pub(crate) fn auth_url(&self) -> String {
        text(&self.clouds["admin"]["auth"]["auth_url"])
    }

    /// The password of the cluster's user.
    pub(crate) fn password(&self) -> String {
        text(&self.clouds["k8s"]["auth"]["password"])
    }

    /// One of the IDs in `ids.json`.
    pub(crate) fn id(&self, name: &str) -> String {
        text(&self.ids[name])
    }

    async fn ask(&self, method: &Method, service: Service, path: &str, body: Option<&Value>) -> (String, ApiResponse) {
        let base = self.catalog.iter().find(|(known, _)| *known == service).map_or("", |(_, url)| url);
        let prefix = match service {
            Service::Identity | Service::Compute => "",
            Service::Network => "/v2.0",
            Service::LoadBalancer => "/v2.0/lbaas",
        };
        let token = self.token.lock().unwrap().clone();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{base}{prefix}{path}"))
            .header("content-type", "application/json")
            .header("x-auth-token", token)
            .body(body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string())))
            .unwrap();
        let answer = self.client.send(request).await.unwrap_or_else(|failure| panic!("{path}: {failure}"));
        let token = answer.headers().get("x-subject-token").map(|token| token.to_str().unwrap().to_owned());
        let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
        (token.unwrap_or_default(), ApiResponse { status: answer.status().as_u16(), body })
    }

    /// Asks, whatever the answer.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> ApiResponse {
        let answer = self.ask(&method, service, path, body).await.1;
        if answer.status != 401 {
            return answer;
        }
        self.authenticate().await;
        self.ask(&method, service, path, body).await.1
    }

    /// Asks, and must be given what was asked for.
    pub(crate) async fn call(&self, method: Method, service: Service, path: &str, body: Option<&Value>) -> Value {
        let answer = self.try_call(method.clone(), service, path, body).await;
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.body);
        answer.body
    }

    pub(crate) async fn get(&self, service: Service, path: &str) -> Value {
        self.call(Method::GET, service, path, None).await
    }

    pub(crate) async fn post(&self, service: Service, path: &str, body: Value) -> Value {
        self.call(Method::POST, service, path, Some(&body)).await
    }

    pub(crate) async fn put(&self, service: Service, path: &str, body: Value) -> Value {
        self.call(Method::PUT, service, path, Some(&body)).await
    }

    /// Deletes what may be gone already.
    pub(crate) async fn delete(&self, service: Service, path: &str) {
        let answer = self.try_call(Method::DELETE, service, path, None).await;
        assert!(answer.status < 300 || answer.status == 404, "DELETE {path}: {} {}", answer.status, answer.body);
    }

    /// What a list names.
    pub(crate) async fn list(&self, service: Service, path: &str) -> Vec<Value> {
        let kind = path.trim_start_matches('/').split('?').next().unwrap_or_default();
        let kind = kind.rsplit('/').next().unwrap_or_default().replace('-', "_");
        list(&self.get(service, path).await[kind.as_str()]).to_vec()
    }
}

/// Where the services of a catalog are.
fn services(catalog: &Value) -> Vec<(Service, String)> {
    let known = |entry: &Value| {
        let service = match entry["type"].as_str() {
            Some("compute") => Service::Compute,
            Some("network") => Service::Network,
            Some("load-balancer") => Service::LoadBalancer,
            _ => return None,
        };
        Some((service, text(&entry["endpoints"][0]["url"])))
    };
    list(catalog).iter().filter_map(known).collect()
}

/// Asks until the answer is the one that was waited for.
pub(crate) async fn until<F: Future<Output = Option<T>>, T>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A text; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A list; empty if it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
