//! Session with an in-process cloud that returns the responses of a test.

mod calls;
mod catalog;
mod credentials;
mod errors;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_cloud::{BuildInputs, Calls};
use bowline_config::ConfigFile;
use bowline_http::{Client, RequestError};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::OpenStack;
use crate::config::Config;
use crate::metrics::Metrics;

/// Minimal valid section.
pub(super) const GLOBAL: &str =
    "[Global]\nauth-url = http://keystone:5000/v3\nuser-id = u\npassword = s3cret\ntenant-id = p\n";

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) token: String,
    pub(super) user_agent: String,
    pub(super) if_match: String,
    pub(super) body: Value,
}

/// Response of a service, after a delay.
#[derive(Debug, Clone)]
pub(super) struct ApiResponse {
    status: u16,
    body: String,
    headers: Vec<(&'static str, String)>,
    after: Duration,
}

/// A Keystone that issues the tokens `t1`, `t2`, …, and services with configured responses.
#[derive(Default)]
pub(super) struct Cloud {
    received: Mutex<Vec<ReceivedRequest>>,
    /// Responses of Keystone instead of a token, in this order.
    rejections: Mutex<VecDeque<ApiResponse>>,
    /// Responses of the services, in this order; then empty successes.
    answers: Mutex<VecDeque<ApiResponse>>,
    catalog: Mutex<Option<Value>>,
    /// Lifetime of a token.
    lifetime: Mutex<Option<Duration>>,
    /// The only token that the services accept, if set.
    accepted: Mutex<Option<String>>,
}

impl ApiResponse {
    pub(super) fn new(status: u16, body: impl ToString) -> ApiResponse {
        ApiResponse { status, body: body.to_string(), headers: Vec::new(), after: Duration::ZERO }
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> ApiResponse {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn after(self, after: Duration) -> ApiResponse {
        ApiResponse { after, ..self }
    }

    fn response(self) -> Response<Bytes> {
        let response = Response::builder().status(self.status);
        let response = self.headers.iter().fold(response, |response, (name, value)| response.header(*name, value));
        response.body(self.body.into()).unwrap()
    }
}

impl Cloud {
    pub(super) fn answering(answers: impl IntoIterator<Item = ApiResponse>) -> Arc<Cloud> {
        let cloud = Cloud::default();
        *cloud.answers.lock().unwrap() = answers.into_iter().collect();
        Arc::new(cloud)
    }

    pub(super) fn with_catalog(self: Arc<Self>, catalog: Value) -> Arc<Cloud> {
        *self.catalog.lock().unwrap() = Some(catalog);
        self
    }

    pub(super) fn with_lifetime(self: Arc<Self>, lifetime: Duration) -> Arc<Cloud> {
        *self.lifetime.lock().unwrap() = Some(lifetime);
        self
    }

    pub(super) fn accepting(self: Arc<Self>, token: &str) -> Arc<Cloud> {
        *self.accepted.lock().unwrap() = Some(token.to_owned());
        self
    }

    pub(super) fn rejecting(self: Arc<Self>, rejections: impl IntoIterator<Item = ApiResponse>) -> Arc<Cloud> {
        self.rejections.lock().unwrap().extend(rejections);
        self
    }

    /// Returns all requests so far.
    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the number of token requests.
    pub(super) fn authentications(&self) -> usize {
        self.received().iter().filter(|received| received.url.ends_with("/auth/tokens")).count()
    }

    /// Returns the other requests.
    pub(super) fn calls(&self) -> Vec<ReceivedRequest> {
        self.received().into_iter().filter(|received| !received.url.ends_with("/auth/tokens")).collect()
    }

    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let header = |name: &str| {
            request.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let received = ReceivedRequest {
            method: request.method().to_string(),
            url: request.uri().to_string(),
            token: header("x-auth-token"),
            user_agent: header("user-agent"),
            if_match: header("if-match"),
            body: serde_json::from_slice(request.body()).unwrap_or_default(),
        };
        self.received.lock().unwrap().push(received.clone());
        let answer = if received.url.ends_with("/auth/tokens") { self.token() } else { self.service(&received) };
        tokio::time::sleep(answer.after).await;
        Ok(answer.response())
    }

    fn token(&self) -> ApiResponse {
        if let Some(rejection) = self.rejections.lock().unwrap().pop_front() {
            return rejection;
        }
        let lifetime = self.lifetime.lock().unwrap().unwrap_or(Duration::from_secs(3600));
        let issued: jiff::Timestamp = "2001-01-01T00:00:00Z".parse().unwrap();
        let body = json!({"token": {
            "issued_at": issued.to_string(),
            "expires_at": (issued + lifetime).to_string(),
            "catalog": self.catalog.lock().unwrap().clone().unwrap_or_else(full_catalog),
            "project": {"id": "p"},
            "roles": [{"name": "member"}],
        }});
        ApiResponse::new(201, body).header("X-Subject-Token", &format!("t{}", self.authentications()))
    }

    fn service(&self, received: &ReceivedRequest) -> ApiResponse {
        if self.accepted.lock().unwrap().as_ref().is_some_and(|accepted| *accepted != received.token) {
            return ApiResponse::new(401, json!({"error": {"code": 401}}));
        }
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| ApiResponse::new(200, "{}"))
    }
}

/// A catalog with one endpoint of each service.
fn full_catalog() -> Value {
    let service = |kind: &str, url: &str| {
        let endpoint = json!({"interface": "public", "region": "R1", "region_id": "R1", "url": url});
        json!({"type": kind, "endpoints": [endpoint]})
    };
    json!([
        service("compute", "http://nova/v2.1"),
        service("network", "http://neutron"),
        service("load-balancer", "http://octavia"),
        service("key-manager", "http://barbican"),
    ])
}

pub(super) fn config(text: &str) -> Config {
    let (inputs, cluster) = (BuildInputs::default(), "kubernetes".into());
    let file = ConfigFile::from_text("cloud.conf", text);
    Config::read(&inputs.context(Some(&file), &cluster)).unwrap()
}

/// A provider with this `cloud.conf` in this cloud.
pub(super) fn provider(cloud: &Arc<Cloud>, text: &str) -> OpenStack {
    provider_counting(cloud, text, &Metrics::new())
}

pub(super) fn provider_counting(cloud: &Arc<Cloud>, text: &str, metrics: &Metrics) -> OpenStack {
    let (cloud, config) = (cloud.clone(), config(text));
    let handler = move |request| {
        let cloud = cloud.clone();
        async move { cloud.handle(request).await }
    };
    let http = Client::in_process(Arc::new(handler), config.request_timeout);
    OpenStack::new(config, &http, &Calls::default(), &["first".to_owned(), "the second".to_owned()], metrics.clone())
}
