//! Serves the admission webhooks of clouds on a separate listener (HOOK-1 to HOOK-4).
//!
//! upstream: the listener does not authenticate clients. The API server calls it, and presents a client certificate only if it is
//! configured to. Standbys serve webhooks, too. [`standalone_router`] has the protocol of admission servers that run on their own.

mod standalone;

use std::sync::Arc;
use std::time::Instant;

use bowline_runtime::{Buckets, Metric, metrics};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use serde_json::{Map, Value, json};

use crate::ServingOptions;
use crate::answer::{self, Answer};
use crate::router::{ANY, IncomingRequest, Router};
use crate::server::{BindError, Server};

pub use standalone::standalone_router;

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
#[derive(Clone)]
pub struct Webhook {
    /// Name in `--webhooks` and in metrics.
    pub name: String,
    /// URL path that the API server calls.
    pub path: String,
    /// Decides about a request.
    pub review: Review,
}

/// Returns the `AdmissionResponse` to an `AdmissionRequest`, both as JSON, or the reason why there is none. The caller sets `uid`.
pub type Review = Arc<dyn Fn(Map<String, Value>) -> BoxFuture<'static, Result<Response, ReviewError>> + Send + Sync>;

/// Fields of an `AdmissionResponse`.
pub type Response = Map<String, Value>;

/// The webhook could not review a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewError {
    /// HTTP status of the cause.
    pub code: u16,
    /// Cause.
    pub message: String,
}

/// Binds the listener for these webhooks; `None` if there are none, or if the port is 0.
pub fn bind(options: &ServingOptions, webhooks: &[Webhook]) -> Result<Option<Server>, BindError> {
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
pub fn router(webhooks: &[Webhook], metrics: &WebhookMetrics) -> Router {
    webhooks.iter().fold(Router::new(), |router, webhook| {
        let (metrics, hook) = (metrics.clone(), webhook.clone());
        router.at(&webhook.path, ANY, move |incoming| {
            let (webhook, metrics) = (hook.clone(), metrics.clone());
            async move {
                let start = Instant::now();
                let answer = respond(&webhook, incoming).await;
                metrics.observe(answer.status(), &webhook.name, start);
                answer
            }
        })
    })
}

async fn respond(webhook: &Webhook, incoming: IncomingRequest) -> Answer {
    let failure = |status, message: String| {
        tracing::warn!(webhook = webhook.name, message, "an admission request failed");
        answer::failure(status, &message)
    };
    let request = match request(&incoming.headers, &incoming.body) {
        Ok(request) => request,
        Err(message) => return failure(StatusCode::BAD_REQUEST, message),
    };
    let uid = request.get("uid").cloned().unwrap_or_default();
    match (webhook.review)(request).await {
        Ok(response) => answer::json(StatusCode::OK, &review(VERSION, response, uid)),
        Err(error) => {
            let message = format!("error generating admission response: {}", error.message);
            failure(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

fn review(version: &str, mut response: Response, uid: Value) -> Value {
    response.insert("uid".to_owned(), uid);
    json!({ "kind": KIND, "apiVersion": version, "response": response })
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
    use futures::FutureExt as _;
    use http::{HeaderValue, Method, Uri};
    use http_body_util::BodyExt as _;

    use super::*;

    /// Allows requests with a name, and fails for `boat`.
    fn harbour() -> Webhook {
        let review = |request: Map<String, Value>| match request.get("name").and_then(Value::as_str) {
            Some("boat") => Err(ReviewError { code: 500, message: "no boats".to_owned() }),
            name => Ok(Map::from_iter([("allowed".to_owned(), name.is_some().into())])),
        };
        Webhook {
            name: "harbour".to_owned(),
            path: "/validate".to_owned(),
            review: Arc::new(move |request| std::future::ready(review(request)).boxed()),
        }
    }

    async fn ask(content_type: &'static str, body: &str) -> (u16, String) {
        let metrics = WebhookMetrics::register(&Registry::new()).unwrap();
        let router = router(&[harbour()], &metrics);
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
        ];
        for (content_type, body, code, part) in cases {
            let (got, text) = ask(content_type, &body).await;
            assert!(got == code && text.contains(part), "{body}: {got} {text}");
        }
    }

    #[tokio::test]
    async fn port_0_or_no_webhooks_means_no_listener() {
        let off = ServingOptions { port: 0, ..ServingOptions::default() };
        assert!(bind(&off, &[harbour()]).unwrap().is_none());
        assert!(bind(&ServingOptions::default(), &[]).unwrap().is_none());
    }
}
