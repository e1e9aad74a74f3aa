//! A real OpenStack, used by an administrator directly, without the provider.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_http::{Client, Options, Proxies, Tls};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

/// Timeout, longer than any call on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Identity,
    Compute,
    Network,
    LoadBalancer,
}

/// The services, and the user.
pub(crate) struct Cloud {
    client: Client,
    user: String,
    project: String,
    /// It is valid for an hour, and some cases take longer.
    token: Mutex<String>,
    catalog: Vec<(Service, String)>,
    /// Content of `ids.json`.
    pub(crate) ids: Value,
    /// Content of `clouds.yaml`, which is JSON.
    clouds: Value,
}

/// A response.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Cloud {
    /// Returns the folder that `tests/openstack/up` has filled, if there is one.
    pub(crate) fn folder() -> Option<PathBuf> {
        std::env::var_os("BOWLINE_OPENSTACK").map(PathBuf::from)
    }

    /// Authenticates as the administrator.
    pub(crate) async fn open(folder: &Path) -> Arc<Cloud> {
        let read = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout: TIMEOUT };
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

    /// Requests a token, and returns the service catalog.
    async fn authenticate(&self) -> Value {
        let password = &self.clouds[&self.user]["auth"]["password"];
        let user = json!({"name": self.user, "password": password, "domain": {"name": "Default"}});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": self.project, "domain": {"name": "Default"}}},
        }});
        let (token, answer) = self.send(&Method::POST, Service::Identity, "/v3/auth/tokens", Some(&body)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        *self.token.lock().unwrap() = token;
        answer.body["token"]["catalog"].clone()
    }

    /// Returns the URL of Keystone.
    pub(crate) fn auth_url(&self) -> String {
        text(&self.clouds["admin"]["auth"]["auth_url"])
    }

    /// Returns the password of the cluster's user.
    pub(crate) fn password(&self) -> String {
        text(&self.clouds["k8s"]["auth"]["password"])
    }

    /// Returns an ID of `ids.json`.
    pub(crate) fn id(&self, name: &str) -> String {
        text(&self.ids[name])
    }

    async fn send(&self, method: &Method, service: Service, path: &str, body: Option<&Value>) -> (String, ApiResponse) {
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

    /// Sends a request, and returns any response.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> ApiResponse {
        let answer = self.send(&method, service, path, body).await.1;
        if answer.status != 401 {
            return answer;
        }
        self.authenticate().await;
        self.send(&method, service, path, body).await.1
    }

    /// Sends a request that must succeed.
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

    /// Deletes a resource, which may be deleted already.
    pub(crate) async fn delete(&self, service: Service, path: &str) {
        let answer = self.try_call(Method::DELETE, service, path, None).await;
        assert!(answer.status < 300 || answer.status == 404, "DELETE {path}: {} {}", answer.status, answer.body);
    }

    /// Lists resources.
    pub(crate) async fn list(&self, service: Service, path: &str) -> Vec<Value> {
        let kind = path.trim_start_matches('/').split('?').next().unwrap_or_default();
        let kind = kind.rsplit('/').next().unwrap_or_default().replace('-', "_");
        list(&self.get(service, path).await[kind.as_str()]).to_vec()
    }
}

/// Returns the endpoints of a catalog.
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

/// Polls until there is a result.
pub(crate) async fn until<F: Future<Output = Option<T>>, T>(what: &str, mut send: impl FnMut() -> F) -> T {
    let end = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = send().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < end, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns a text; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a list; empty if it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
