//! Answers, in the forms that clients of Kubernetes components know.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// What is sent back.
pub type Answer = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Plain text.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    of_type(status, TEXT, body)
}

/// A JSON document.
pub fn json(status: StatusCode, document: &Value) -> Answer {
    of_type(status, JSON, document.to_string())
}

/// Something else.
pub fn of_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A failure in a line, which no browser is to take for a page.
pub fn failure(status: StatusCode, message: &str) -> Answer {
    sniffless(text(status, format!("{message}\n")))
}

/// With the word to browsers not to guess what it is.
pub fn sniffless(answer: Answer) -> Answer {
    with_header(answer, X_CONTENT_TYPE_OPTIONS, "nosniff")
}

/// With one more header.
pub fn with_header(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// The `Status` object for somebody who did not prove who they are.
pub(crate) fn unauthorized(headers: &HeaderMap) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
    });
    status_object(StatusCode::UNAUTHORIZED, &status, headers)
}

/// The `Status` object for somebody who may not do this.
pub(crate) fn forbidden(message: &str, headers: &HeaderMap) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("forbidden: {message}"), "reason": "Forbidden", "details": {}, "code": 403,
    });
    sniffless(status_object(StatusCode::FORBIDDEN, &status, headers))
}

/// upstream: people get it indented, programs in a line.
fn status_object(status: StatusCode, object: &Value, headers: &HeaderMap) -> Answer {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let is_person = ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name));
    let body = if is_person { format!("{object:#}") } else { format!("{object}\n") };
    of_type(status, JSON, body)
}

/// What could be taken for markup, written so that it cannot.
pub(crate) fn harmless(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
