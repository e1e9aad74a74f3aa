//! Serves the admission webhooks of clouds on a separate listener (HOOK-1 to HOOK-4).
//!
//! upstream: the listener does not authenticate clients. The API server calls it, and presents a client certificate only if it is
//! configured to. Standbys serve webhooks, too.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bowline_runtime::{Buckets, Metric, metrics};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use serde_json::{Map, Value, json};

use crate::ServingOptions;
use crate::answer::{self, Answer};
use crate::router::{ANY, IncomingRequest, Router};
use crate::server::{BindError, Server};

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
const JSON: &str = "application/json";

metrics! {
    /// Metrics of webhooks.
    pub METRICS;
    REQUESTS = Metric::counter("cloud_provider_webhook_request_total", "Requests to a webhook, by HTTP status.")
        .labels(&["code", "webhook"]);
    DURATION = Metric::histogram(
        "cloud_provider_webhook_request_duration_seconds",
        "How long a webhook took for a request, by HTTP status.",
        Buckets::Listed(&[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0]),
    ).labels(&["code", "webhook"]);
}

/// An admission webhook of a cloud.
#[async_trait]
pub trait Webhook: Send + Sync {
    /// Name in `--webhooks` and in metrics.
    fn name(&self) -> &str;

    /// URL path that the API server calls.
    fn path(&self) -> &str;

    /// Returns the `AdmissionResponse` to an `AdmissionRequest`, both as JSON. The caller sets `uid`. An error is returned to the API
    /// server.
    async fn review(&self, request: Value) -> Result<Value, String>;
}

/// Binds the listener for these webhooks; `None` if there are none, or if the port is 0.
pub fn bind(options: &ServingOptions, webhooks: &[Arc<dyn Webhook>]) -> Result<Option<Server>, BindError> {
    // upstream: the Go library crashes with webhooks and port 0.
    match options.port == 0 || webhooks.is_empty() {
        true => Ok(None),
        false => Server::bind(options).map(Some),
    }
}

/// Request metrics of webhooks.
#[derive(Clone)]
pub struct WebhookMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
}

impl WebhookMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<WebhookMetrics> {
        Ok(WebhookMetrics { requests: REQUESTS.register(registry)?, duration: DURATION.register(registry)? })
    }

    fn observe(&self, code: StatusCode, webhook: &str, start: Instant) {
        let labels = [code.as_str(), webhook];
        self.requests.with_label_values(&labels).inc();
        self.duration.with_label_values(&labels).observe(start.elapsed().as_secs_f64());
    }
}

/// Creates a router with the path of each webhook.
pub fn router(webhooks: &[Arc<dyn Webhook>], metrics: &WebhookMetrics) -> Router {
    webhooks.iter().fold(Router::new(), |router, webhook| {
        let (path, metrics, webhook) = (webhook.path().to_owned(), metrics.clone(), webhook.clone());
        router.at(&path, ANY, move |incoming| {
            let (webhook, metrics) = (webhook.clone(), metrics.clone());
            async move {
                let start = Instant::now();
                let answer = respond(&*webhook, incoming).await;
                metrics.observe(answer.status(), webhook.name(), start);
                answer
            }
        })
    })
}

async fn respond(webhook: &dyn Webhook, incoming: IncomingRequest) -> Answer {
    let failure = |status, message: String| {
        tracing::warn!(webhook = webhook.name(), message, "an admission request failed");
        answer::failure(status, &message)
    };
    let request = match request(&incoming.headers, &incoming.body) {
        Ok(request) => request,
        Err(message) => return failure(StatusCode::BAD_REQUEST, message),
    };
    let uid = request.get("uid").cloned().unwrap_or_default();
    let failed = |message| failure(StatusCode::INTERNAL_SERVER_ERROR, message);
    match webhook.review(Value::Object(request)).await {
        Ok(Value::Object(response)) => answer::json(StatusCode::OK, &review(response, uid)),
        Ok(_) => failed("admission response cannot be nil".to_owned()),
        Err(error) => failed(format!("error generating admission response: {error}")),
    }
}

fn review(mut response: Map<String, Value>, uid: Value) -> Value {
    response.insert("uid".to_owned(), uid);
    json!({ "kind": KIND, "apiVersion": VERSION, "response": response })
}

/// Parses the request of an `AdmissionReview`.
fn request(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, String> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type != JSON {
        return Err(format!("Content-Type: {content_type:?} should be {JSON:?}"));
    }
    if body.is_empty() {
        return Err("admission request HTTP body is empty".to_owned());
    }
    let unreadable = |what: String| format!("could not deserialize incoming admission review: {what}");
    let mut review: Value = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    let field = |key: &str| review.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (field("kind"), field("apiVersion"));
    if (kind.as_str(), version.as_str()) != (KIND, VERSION) {
        return Err(unreadable(format!("expected kind {KIND:?} of {VERSION:?}, found kind {kind:?} of {version:?}")));
    }
    match review.get_mut("request").map(Value::take) {
        Some(Value::Object(request)) => Ok(request),
        None | Some(Value::Null) => Err("admission review can't be used: Request field is nil".to_owned()),
        Some(_) => Err(unreadable("request is not an object".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method, Uri};
    use http_body_util::BodyExt as _;

    use super::*;

    /// Allows requests with a name, fails for `boat`, and returns null for `ship`.
    struct Harbour;

    #[async_trait]
    impl Webhook for Harbour {
        fn name(&self) -> &str {
            "harbour"
        }

        fn path(&self) -> &str {
            "/validate"
        }

        async fn review(&self, request: Value) -> Result<Value, String> {
            match request["name"].as_str() {
                Some("boat") => Err("no boats".to_owned()),
                Some("ship") => Ok(Value::Null),
                name => Ok(json!({ "allowed": name.is_some() })),
            }
        }
    }

    async fn ask(content_type: &'static str, body: &str) -> (u16, String) {
        let metrics = WebhookMetrics::register(&Registry::new()).unwrap();
        let router = router(&[Arc::new(Harbour)], &metrics);
        let mut incoming = IncomingRequest::new(Method::POST, &Uri::from_static("/validate"));
        incoming.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        incoming.body = body.to_owned().into();
        let answer = router.answer(incoming).await;
        let code = answer.status();
        assert_eq!(metrics.requests.with_label_values(&[code.as_str(), "harbour"]).get(), 1);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    fn about(name: &str) -> String {
        json!({ "kind": KIND, "apiVersion": VERSION, "request": { "uid": "7", "name": name } }).to_string()
    }

    #[tokio::test]
    async fn a_valid_review_gets_a_response_with_its_uid() {
        let (code, body) = ask(JSON, &about("raft")).await;
        let expected = json!({ "kind": KIND, "apiVersion": VERSION, "response": { "allowed": true, "uid": "7" } });
        assert_eq!((code, serde_json::from_str::<Value>(&body).unwrap()), (200, expected));
    }

    #[tokio::test]
    async fn an_invalid_review_is_rejected_with_the_reason() {
        let no_request = json!({ "kind": KIND, "apiVersion": VERSION }).to_string();
        let other = json!({ "kind": "Pod", "apiVersion": "v1" }).to_string();
        let cases = [
            ("text/plain", about("raft"), 400, "Content-Type: \"text/plain\" should be \"application/json\""),
            ("application/json; charset=utf-8", about("raft"), 400, "should be"),
            (JSON, String::new(), 400, "body is empty"),
            (JSON, "{".to_owned(), 400, "could not deserialize"),
            (JSON, "[]".to_owned(), 400, "could not deserialize"),
            (JSON, other, 400, "could not deserialize"),
            (JSON, no_request, 400, "Request field is nil"),
            (JSON, about("boat"), 500, "error generating admission response: no boats"),
            (JSON, about("ship"), 500, "admission response cannot be nil"),
        ];
        for (content_type, body, code, part) in cases {
            let (got, text) = ask(content_type, &body).await;
            assert!(got == code && text.contains(part), "{body}: {got} {text}");
        }
    }

    #[tokio::test]
    async fn port_0_or_no_webhooks_means_no_listener() {
        let off = ServingOptions { port: 0, ..ServingOptions::default() };
        assert!(bind(&off, &[Arc::new(Harbour)]).unwrap().is_none());
        assert!(bind(&ServingOptions::default(), &[]).unwrap().is_none());
    }
}
