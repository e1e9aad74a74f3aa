//! Protocol of an admission server that runs on its own, as those built on controller-runtime: every review is answered with HTTP
//! status 200 and has the code in its status, and an `AdmissionReview` is answered in its own version.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use super::{JSON, KIND, Review, ReviewError, VERSION, Webhook, review};
use crate::answer::{self, Answer};
use crate::router::{ANY, IncomingRequest, Router};

/// Older version of the API, whose reviews have the same fields.
const BETA: &str = "admission.k8s.io/v1beta1";

/// Maximum size of a request body.
const MAX_BODY: usize = 7 << 20;

/// Creates a router with the path of each webhook.
pub fn standalone_router(webhooks: &[Webhook]) -> Router {
    let router = Router::new().oversized(|| rejected(VERSION, no_uid(), too_large()));
    webhooks.iter().fold(router, |router, webhook| {
        let hook = webhook.clone();
        router.at(&webhook.path, ANY, move |incoming| {
            let hook = hook.clone();
            async move { respond(&hook, incoming).await }
        })
    })
}

/// A decoded review.
struct Reviewed {
    version: &'static str,
    uid: Value,
    request: Map<String, Value>,
}

async fn respond(webhook: &Webhook, incoming: IncomingRequest) -> Answer {
    match decode(&incoming.headers, &incoming.body) {
        Ok(reviewed) => answered(&webhook.name, &webhook.review, reviewed).await,
        Err(error) => {
            tracing::warn!(webhook = webhook.name, message = error.message, "an admission request is invalid");
            rejected(VERSION, no_uid(), error)
        }
    }
}

async fn answered(webhook: &str, decide: &Review, Reviewed { version, uid, request }: Reviewed) -> Answer {
    let subject = Subject::of(&request);
    match decide(request).await {
        Ok(response) => {
            subject.log(webhook, &response);
            answer::json(StatusCode::OK, &review(version, response, uid))
        }
        Err(error) => {
            let (ReviewError { code, message }, Subject { operation, namespace, name }) = (&error, &subject);
            tracing::error!(webhook, code, message, operation, namespace, name, "an admission request failed");
            rejected(version, uid, error)
        }
    }
}

/// UID of a request that has none.
fn no_uid() -> Value {
    String::new().into()
}

/// Encodes a failure as a review that rejects the request.
fn rejected(version: &str, uid: Value, error: ReviewError) -> Answer {
    let status = json!({"code": error.code, "message": error.message});
    let response = Map::from_iter([("allowed".to_owned(), false.into()), ("status".to_owned(), status)]);
    answer::json(StatusCode::OK, &review(version, response, uid))
}

/// The object of a request, for the log.
struct Subject {
    operation: String,
    namespace: String,
    name: String,
}

impl Subject {
    fn of(request: &Map<String, Value>) -> Subject {
        let text = |key| request.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Subject { operation: text("operation"), namespace: text("namespace"), name: text("name") }
    }

    /// Logs a rejected request always, and an allowed one at debug level.
    fn log(&self, webhook: &str, response: &Map<String, Value>) {
        let Subject { operation, namespace, name } = self;
        let message = response.get("status").and_then(|status| status.get("message")).and_then(Value::as_str);
        match response.get("allowed") == Some(&Value::Bool(true)) {
            true => tracing::debug!(webhook, message, operation, namespace, name, "allowed an admission request"),
            false => tracing::info!(webhook, message, operation, namespace, name, "rejected an admission request"),
        }
    }
}

// upstream: the messages of controller-runtime.

fn invalid(message: impl Into<String>) -> ReviewError {
    ReviewError { code: 400, message: message.into() }
}

fn too_large() -> ReviewError {
    ReviewError { code: 413, message: format!("request entity is too large; limit is {MAX_BODY} bytes") }
}

/// Decodes the review. Without a request it has an empty one, which the webhook rejects.
fn decode(headers: &HeaderMap, body: &Bytes) -> Result<Reviewed, ReviewError> {
    if body.is_empty() {
        return Err(invalid("request body is empty"));
    }
    if body.len() > MAX_BODY {
        return Err(too_large());
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type != JSON {
        return Err(invalid(format!("contentType={content_type}, expected application/json")));
    }
    let mut review: Value =
        serde_json::from_slice(body).map_err(|error| invalid(format!("couldn't decode the review: {error}")))?;
    let request = match review.get_mut("request").map(Value::take) {
        Some(Value::Object(request)) => request,
        None | Some(Value::Null) => Map::new(),
        Some(_) => return Err(invalid("couldn't decode the review: request is not an object")),
    };
    let uid = request.get("uid").cloned().unwrap_or_else(no_uid);
    Ok(Reviewed { version: version(&review)?, uid, request })
}

/// Returns the version of a review.
fn version(review: &Value) -> Result<&'static str, ReviewError> {
    let field = |key: &str| review.get(key).and_then(Value::as_str).unwrap_or_default();
    match (field("kind"), field("apiVersion")) {
        (KIND, VERSION) => Ok(VERSION),
        (KIND, BETA) => Ok(BETA),
        (kind, version) => {
            Err(invalid(format!("couldn't decode the review: no kind {kind:?} is registered for version {version:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use http::{HeaderValue, Method, Uri};
    use http_body_util::BodyExt as _;

    use super::*;

    /// Allows requests with a name, denies those without one, and fails for `boat`.
    fn harbour() -> Webhook {
        let review = |request: Map<String, Value>| match request.get("name").and_then(Value::as_str) {
            Some("boat") => Err(ReviewError { code: 502, message: "no boats".to_owned() }),
            name => Ok(Map::from_iter([("allowed".to_owned(), name.is_some().into())])),
        };
        Webhook {
            name: "harbour".to_owned(),
            path: "/lb-service".to_owned(),
            review: Arc::new(move |request| std::future::ready(review(request)).boxed()),
        }
    }

    async fn ask(content_type: Option<&'static str>, body: impl Into<Bytes>) -> Value {
        let mut incoming = IncomingRequest::new(Method::POST, &Uri::from_static("/lb-service?timeout=10s"));
        content_type.map(|value| incoming.headers.insert(CONTENT_TYPE, HeaderValue::from_static(value)));
        incoming.body = body.into();
        let answer = standalone_router(&[harbour()]).answer(incoming).await;
        assert_eq!((answer.status().as_u16(), &answer.headers()[CONTENT_TYPE]), (200, &HeaderValue::from_static(JSON)));
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    fn about(version: &str, name: &str) -> String {
        json!({"kind": KIND, "apiVersion": version, "request": {"uid": "7", "name": name}}).to_string()
    }

    #[tokio::test]
    async fn a_review_is_answered_in_its_own_version_with_its_uid() {
        for version in [VERSION, BETA] {
            let response = json!({"allowed": true, "uid": "7"});
            let expected = json!({"kind": KIND, "apiVersion": version, "response": response});
            assert_eq!(ask(Some(JSON), about(version, "raft")).await, expected);
            let status = json!({"code": 502, "message": "no boats"});
            let response = json!({"allowed": false, "uid": "7", "status": status});
            let expected = json!({"kind": KIND, "apiVersion": version, "response": response});
            assert_eq!(ask(Some(JSON), about(version, "boat")).await, expected);
        }
    }

    #[tokio::test]
    async fn an_invalid_request_is_rejected_in_a_review_with_the_code() {
        let other = json!({"kind": "Pod", "apiVersion": "v1"}).to_string();
        let odd = json!({"kind": KIND, "apiVersion": VERSION, "request": 1}).to_string();
        let cases = [
            (Some(JSON), String::new(), 400, "request body is empty"),
            (Some(JSON), " ".repeat(MAX_BODY + 1), 413, "request entity is too large; limit is 7340032 bytes"),
            (Some("text/plain"), about(VERSION, "raft"), 400, "contentType=text/plain, expected application/json"),
            (None, about(VERSION, "raft"), 400, "contentType=, expected application/json"),
            (Some(JSON), "{".to_owned(), 400, "couldn't decode the review: "),
            (Some(JSON), "[]".to_owned(), 400, "no kind \"\" is registered for version \"\""),
            (Some(JSON), other, 400, "no kind \"Pod\" is registered for version \"v1\""),
            (Some(JSON), odd, 400, "request is not an object"),
        ];
        for (content_type, body, code, message) in cases {
            let review = ask(content_type, body).await;
            let (allowed, status) = (&review["response"]["allowed"], &review["response"]["status"]);
            assert_eq!(
                (&review["apiVersion"], allowed, &status["code"]),
                (&json!(VERSION), &json!(false), &json!(code))
            );
            assert!(status["message"].as_str().unwrap().contains(message), "{status} should contain {message:?}");
        }
    }

    #[tokio::test]
    async fn a_review_without_a_request_is_decided_by_the_webhook() {
        let review = ask(Some(JSON), json!({"kind": KIND, "apiVersion": VERSION}).to_string()).await;
        assert_eq!(review["response"], json!({"allowed": false, "uid": ""}));
    }
}
