//! HTTP responses in the formats of Kubernetes components.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// HTTP response with a complete body.
pub type Answer = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Plain text response.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    of_type(status, TEXT, body)
}

/// JSON response.
pub fn json(status: StatusCode, document: &Value) -> Answer {
    of_type(status, JSON, document.to_string())
}

/// Response with this content type.
pub fn of_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Error response with a one-line message, which browsers do not sniff as HTML.
pub fn failure(status: StatusCode, message: &str) -> Answer {
    no_sniff(text(status, format!("{message}\n")))
}

/// Adds `X-Content-Type-Options: nosniff`.
pub fn no_sniff(answer: Answer) -> Answer {
    with_header(answer, X_CONTENT_TYPE_OPTIONS, "nosniff")
}

/// Adds a header.
pub fn with_header(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// 401 with a `Status` object.
pub(crate) fn unauthorized(headers: &HeaderMap) -> Answer {
    status_object(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", headers)
}

/// 403 with a `Status` object.
pub(crate) fn forbidden(message: &str, headers: &HeaderMap) -> Answer {
    no_sniff(status_object(StatusCode::FORBIDDEN, "Forbidden", &format!("forbidden: {message}"), headers))
}

/// upstream: fields in this order, with empty `details` for 403; indented for browsers and curl, one line for other clients.
fn status_object(status: StatusCode, reason: &str, message: &str, headers: &HeaderMap) -> Answer {
    let fields = [
        ("kind", json!("Status")),
        ("apiVersion", json!("v1")),
        ("metadata", json!({})),
        ("status", json!("Failure")),
        ("message", json!(message)),
        ("reason", json!(reason)),
        ("details", json!({})),
        ("code", json!(status.as_u16())),
    ];
    let fields = fields.iter().filter(|(name, _)| *name != "details" || status == StatusCode::FORBIDDEN);
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let body = if ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name)) {
        let lines: Vec<_> = fields.map(|(name, value)| format!("  \"{name}\": {value}")).collect();
        format!("{{\n{}\n}}", lines.join(",\n"))
    } else {
        let fields: Vec<_> = fields.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}\n", fields.join(","))
    };
    of_type(status, JSON, body)
}

/// Escapes HTML markup.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn error_responses_are_byte_for_byte_those_of_a_go_manager() {
        let body_for = |agent: &'static str, answer: fn(&HeaderMap) -> Answer| async move {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            let body = answer(&headers).into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let forbidden = |headers: &HeaderMap| forbidden("User \"x\" cannot get path \"/\"", headers);
        let line = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\
                    \"forbidden: User \\\"x\\\" cannot get path \\\"/\\\"\",\"reason\":\"Forbidden\",\"details\":{},\"code\":403}\n";
        assert_eq!(body_for("Prometheus/3", forbidden).await, line);
        let lines = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \
                     \"message\": \"Unauthorized\",\n  \"reason\": \"Unauthorized\",\n  \"code\": 401\n}";
        assert_eq!(body_for("curl/8.5.0", unauthorized).await, lines);
    }
}
