//! Requests to an API server, or to a manager, with their failures.

use std::io::Read as _;
use std::time::Duration;

use bowline_core::with_causes;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use serde_json::Value;

/// Deadline of a request with its response: a page or a person waits for it.
const DEADLINE: Duration = Duration::from_secs(20);

/// Maximum size of a response, and of its content, in bytes: many times that of a document with 5,000 Nodes. A forged manager must not
/// use up the memory of this machine.
const MAX_BODY: usize = 64 << 20;
const MAX_CONTENT: u64 = 256 << 20;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// There is no response.
    Unreachable(String),
    /// The response is an error.
    Rejected(Rejection),
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Rejection {
    pub(super) code: u16,
    pub(super) message: String,
    /// Kind of the object that the API server's Status is about. Errors of a manager have none.
    pub(super) kind: String,
}

/// Sends the request, and returns the body of a successful response.
pub(super) async fn call(client: &Client, request: Request<Vec<u8>>) -> Result<Bytes, CallError> {
    let exchange = async {
        let response = client.send(request.map(kube::client::Body::from)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(kube::Error::Service)?;
        Ok::<_, kube::Error>((head.status, decoded(&head.headers, body.to_bytes())))
    };
    match tokio::time::timeout(DEADLINE, exchange).await {
        Err(_) => Err(CallError::Unreachable(format!("no response within {} s", DEADLINE.as_secs()))),
        Ok(Err(error)) => Err(CallError::Unreachable(with_causes(&error))),
        Ok(Ok((_, Err(error)))) => Err(CallError::Unreachable(format!("the response is invalid: {error}"))),
        Ok(Ok((status, Ok(body)))) if status.is_success() => Ok(body),
        Ok(Ok((status, Ok(body)))) => Err(CallError::Rejected(Rejection::new(status.as_u16(), &body))),
    }
}

/// Sends the request, and parses the response.
pub(super) async fn call_json(client: &Client, request: Request<Vec<u8>>) -> Result<Value, CallError> {
    let body = call(client, request).await?;
    serde_json::from_slice(&body).map_err(|error| CallError::Unreachable(format!("the response is not JSON: {error}")))
}

/// Decompresses the body.
fn decoded(headers: &HeaderMap, body: Bytes) -> std::io::Result<Bytes> {
    if headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding != "gzip") {
        return Ok(body);
    }
    let mut content = Vec::new();
    GzDecoder::new(&*body).take(MAX_CONTENT + 1).read_to_end(&mut content)?;
    match content.len() as u64 <= MAX_CONTENT {
        true => Ok(content.into()),
        false => Err(std::io::Error::other("it is too large")),
    }
}

impl Rejection {
    /// Reads the response: a Status object, or text.
    fn new(code: u16, body: &[u8]) -> Rejection {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let message = text(&status["message"]).unwrap_or_else(|| first_line(body));
        Rejection { code, message, kind: text(&status["details"]["kind"]).unwrap_or_default() }
    }
}

/// First line of a response that is not a Status, at a length that is fit to print.
fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_response_is_decompressed() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, b"{}").unwrap();
        let gzip = HeaderMap::from_iter([(CONTENT_ENCODING, http::HeaderValue::from_static("gzip"))]);
        assert_eq!(decoded(&gzip, encoder.finish().unwrap().into()).unwrap(), "{}");
        assert_eq!(decoded(&HeaderMap::new(), "{}".into()).unwrap(), "{}");
        assert!(decoded(&gzip, "{}".into()).is_err());
    }

    #[test]
    fn an_error_response_is_a_status_or_text() {
        let status =
            br#"{"kind":"Status","message":"pods \"a\" not found","details":{"name":"a","kind":"pods"},"code":404}"#;
        let expected = Rejection { code: 404, message: "pods \"a\" not found".to_owned(), kind: "pods".to_owned() };
        assert_eq!(Rejection::new(404, status), expected);
        let text = Rejection { code: 404, message: "404 page not found".to_owned(), kind: String::new() };
        assert_eq!(Rejection::new(404, b"404 page not found\nmore"), text);
        assert_eq!(Rejection::new(502, b"\x1b[2J").message, "[2J");
        assert_eq!(Rejection::new(502, "x".repeat(9_000).as_bytes()).message.len(), 200);
    }
}
