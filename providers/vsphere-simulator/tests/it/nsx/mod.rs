//! The NSX policy API, over HTTP; tests that advance the time call it in the same process.

mod auth;
mod faults;
mod lists;
mod objects;
mod realization;
mod references;
mod routes;

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bowline_http::{Proxies, RequestError, Tls};
use bowline_vsphere_simulator::nsx::{Options, PASSWORD, Server, Simulator, USER};
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};

/// A manager, and a client of it.
struct Client {
    nsx: Simulator,
    http: bowline_http::Client,
    base: String,
    /// Credentials of all requests.
    headers: Vec<(&'static str, String)>,
    _server: Option<Server>,
}

/// Timeout of requests.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// Calls the manager over HTTP.
    async fn over_http(options: Options) -> Client {
        let nsx = Simulator::new(options);
        let server = nsx.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let options =
            bowline_http::Options { tls: Tls::default(), proxies: Proxies::default(), timeout: Duration::from_secs(5) };
        let http = bowline_http::Client::new(options).unwrap();
        Client { nsx, http, base: server.url(), headers: basic(USER, PASSWORD), _server: Some(server) }
    }

    /// Calls the manager in this process, with the time paused.
    fn paused(options: Options) -> Client {
        tokio::time::pause();
        let nsx = Simulator::new(options);
        let http = nsx.client(TIMEOUT);
        Client { nsx, http, base: "http://nsx.test".to_owned(), headers: basic(USER, PASSWORD), _server: None }
    }

    /// Sends a request to any path. An empty response body is `null`.
    async fn send(&self, method: Method, path: &str, body: &str) -> Result<(u16, HeaderMap, String), RequestError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = self.http.send(request.body(body.to_owned().into()).unwrap()).await?;
        let (head, body) = response.into_parts();
        Ok((head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap()))
    }

    /// Calls the policy API.
    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { "{}".to_owned() } else { body.to_string() };
        let (status, _, text) = self.send(method, &format!("/policy/api/v1{path}"), &body).await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, Value::Null).await
    }

    async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, body).await
    }

    async fn patch(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PATCH, path, body).await
    }

    async fn delete(&self, path: &str) -> (u16, Value) {
        self.call(Method::DELETE, path, Value::Null).await
    }

    /// Puts an object that must be accepted, and returns it.
    async fn create(&self, path: &str, body: Value) -> Value {
        let (status, created) = self.put(path, body).await;
        assert_eq!(status, 200, "{created}");
        created
    }

    /// Entities in the realized state of an object.
    async fn realized(&self, path: &str) -> Vec<Value> {
        let (status, answer) = self.get(&format!("/infra/realized-state/realized-entities?intent_path={path}")).await;
        assert_eq!((status, &answer["result_count"]), (200, &json!(answer["results"].as_array().unwrap().len())));
        answer["results"].as_array().unwrap().clone()
    }
}

fn basic(user: &str, password: &str) -> Vec<(&'static str, String)> {
    vec![("authorization", format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))]
}

/// Status and code of an error, whose body must have all fields.
fn code((status, error): (u16, Value)) -> (u16, u64) {
    assert!(error["httpStatus"].is_string() && error["module_name"].is_string(), "{error}");
    assert!(!error["error_message"].as_str().unwrap().is_empty());
    (status, error["error_code"].as_u64().unwrap())
}

/// Values of this field of all results.
fn column(answer: &Value, field: &str) -> Vec<String> {
    let results = answer["results"].as_array().unwrap();
    results.iter().map(|result| result[field].as_str().unwrap().to_owned()).collect()
}

/// Body of a virtual server.
fn virtual_server(changes: Value) -> Value {
    let mut body = json!({
        "ip_address": "10.0.0.5",
        "ports": ["80"],
        "default_pool_member_ports": ["30080"],
        "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
    });
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}
