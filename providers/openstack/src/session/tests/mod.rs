//! A session against a cloud in this process that says what a test wants to hear.

mod calls;
mod catalog;
mod credentials;
mod errors;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_cloud::{Calls, Surroundings};
use bowline_config::ConfigFile;
use bowline_http::{Client, Failure};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::OpenStack;
use crate::config::Config;
use crate::metrics::Metrics;

/// Enough to be let in.
pub(super) const GLOBAL: &str =
    "[Global]\nauth-url = http://keystone:5000/v3\nuser-id = u\npassword = s3cret\ntenant-id = p\n";

/// A request as it came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) token: String,
    pub(super) user_agent: String,
    pub(super) if_match: String,
    pub(super) body: Value,
}

/// What a service answers, after so long.
#[derive(Debug, Clone)]
pub(super) struct ApiResponse {
    status: u16,
    body: String,
    headers: Vec<(&'static str, String)>,
    after: Duration,
}

/// A Keystone that hands out the tokens `t1`, `t2`, …, and services that answer as they are told.
#[derive(Default)]
pub(super) struct Cloud {
    asked: Mutex<Vec<Asked>>,
    /// What Keystone says instead of a token, one after the other.
    refusals: Mutex<VecDeque<ApiResponse>>,
    /// What the services say, one after the other; then that all is well.
    answers: Mutex<VecDeque<ApiResponse>>,
    catalog: Mutex<Option<Value>>,
    /// How long a token lives.
    life: Mutex<Option<Duration>>,
    /// The only token that the services take, if there is only one.
    taken: Mutex<Option<String>>,
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

    pub(super) fn with_life(self: Arc<Self>, life: Duration) -> Arc<Cloud> {
        *self.life.lock().unwrap() = Some(life);
        self
    }

    pub(super) fn taking(self: Arc<Self>, token: &str) -> Arc<Cloud> {
        *self.taken.lock().unwrap() = Some(token.to_owned());
        self
    }

    pub(super) fn refusing(self: Arc<Self>, refusals: impl IntoIterator<Item = ApiResponse>) -> Arc<Cloud> {
        self.refusals.lock().unwrap().extend(refusals);
        self
    }

    /// All requests so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Those for a token.
    pub(super) fn authentications(&self) -> usize {
        self.asked().iter().filter(|asked| asked.url.ends_with("/auth/tokens")).count()
    }

    /// The others.
    pub(super) fn calls(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| !asked.url.ends_with("/auth/tokens")).collect()
    }

    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        let header = |name: &str| {
            request.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let asked = Asked {
            method: request.method().to_string(),
            url: request.uri().to_string(),
            token: header("x-auth-token"),
            user_agent: header("user-agent"),
            if_match: header("if-match"),
            body: serde_json::from_slice(request.body()).unwrap_or_default(),
        };
        self.asked.lock().unwrap().push(asked.clone());
        let answer = if asked.url.ends_with("/auth/tokens") { self.token() } else { self.service(&asked) };
        tokio::time::sleep(answer.after).await;
        Ok(answer.response())
    }

    fn token(&self) -> ApiResponse {
        if let Some(refusal) = self.refusals.lock().unwrap().pop_front() {
            return refusal;
        }
        let life = self.life.lock().unwrap().unwrap_or(Duration::from_secs(3600));
        let issued: jiff::Timestamp = "2001-01-01T00:00:00Z".parse().unwrap();
        let body = json!({"token": {
            "issued_at": issued.to_string(),
            "expires_at": (issued + life).to_string(),
            "catalog": self.catalog.lock().unwrap().clone().unwrap_or_else(everything),
            "project": {"id": "p"},
            "roles": [{"name": "member"}],
        }});
        ApiResponse::new(201, body).header("X-Subject-Token", &format!("t{}", self.authentications()))
    }

    fn service(&self, asked: &Asked) -> ApiResponse {
        if self.taken.lock().unwrap().as_ref().is_some_and(|taken| *taken != asked.token) {
            return ApiResponse::new(401, json!({"error": {"code": 401}}));
        }
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| ApiResponse::new(200, "{}"))
    }
}

/// One endpoint of each service.
fn everything() -> Value {
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
    let (surroundings, cluster) = (Surroundings::default(), "kubernetes".into());
    let file = ConfigFile::from_text("cloud.conf", text);
    Config::read(&surroundings.context(Some(&file), &cluster)).unwrap()
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
