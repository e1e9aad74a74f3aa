//! Errors: from an answer that is no success, or from none at all.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, header};
use serde::de::DeserializeOwned;

use crate::{Failure, TlsFailure};

/// Reads the errors of a service.
pub trait ErrorDecoder: Send + Sync {
    /// The error that this answer means. The default goes by the status alone.
    fn decode(&self, refusal: &ErrorResponse<'_>) -> Error {
        refusal.to_error()
    }

    /// Where to look if TLS fails, such as the names of configuration keys; stands behind the error.
    fn tls_advice(&self) -> &'static str {
        ""
    }
}

/// Reads errors by their status alone.
pub struct ByStatus;

impl ErrorDecoder for ByStatus {}

/// An answer that is no success.
pub struct ErrorResponse<'a> {
    name: &'static str,
    method: &'a Method,
    url: &'a str,
    response: &'a Response<Bytes>,
    retry_after: Option<Duration>,
}

/// Headers in which clouds send the ID of a request.
const REQUEST_IDS: [&str; 8] = [
    "x-openstack-request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-ms-request-id",
    "opc-request-id",
    "x-acs-request-id",
    "x-goog-request-id",
    "x-request-id",
];

impl<'a> ErrorResponse<'a> {
    pub(super) fn new(
        name: &'static str,
        method: &'a Method,
        url: &'a str,
        response: &'a Response<Bytes>,
        retry_after: Option<Duration>,
    ) -> ErrorResponse<'a> {
        ErrorResponse { name, method, url, response, retry_after }
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The body as one line of text, cut.
    pub fn text(&self) -> String {
        line(&String::from_utf8_lossy(self.response.body()))
    }

    /// The body as JSON, if it is that.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.response.body()).ok()
    }

    /// The body as XML, if it is that.
    pub fn xml<T: DeserializeOwned>(&self) -> Option<T> {
        quick_xml::de::from_str(std::str::from_utf8(self.response.body()).ok()?).ok()
    }

    /// The error that the status means.
    pub fn to_error(&self) -> Error {
        let by_status = Error::from_status(self.name, self.status(), "", self.retry_after);
        let error = Error::new(by_status.kind(), self.name, self.message()).retry(by_status.retry_advice());
        let error = if by_status.is_outcome_unknown() { error.outcome_unknown() } else { error };
        self.with_facts(error)
    }

    /// An error of this kind with the usual message. Whether the call has an outcome is as the status says: where the body shows
    /// that the cloud itself has answered, and not a gateway, add [`answered`](Error::answered).
    pub fn to_error_of(&self, kind: ErrorKind) -> Error {
        let error = Error::new(kind, self.name, self.message());
        self.with_facts(if self.to_error().is_outcome_unknown() { error.outcome_unknown() } else { error })
    }

    /// Call, status and body. A redirect is not followed: it would take the credentials elsewhere.
    fn message(&self) -> String {
        let (method, url, status) = (self.method, self.url, self.status());
        match self.redirect() {
            Some(host) => {
                format!("{method} {url}: HTTP {status}: redirects are not followed; this one leads to {host}")
            }
            None => format!("{method} {url}: HTTP {status}: {}", self.text()).trim_end_matches(": ").to_owned(),
        }
    }

    /// Host that a redirect leads to.
    fn redirect(&self) -> Option<String> {
        let location = self.headers().get(header::LOCATION).filter(|_| self.response.status().is_redirection())?;
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        let host = location.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        Some(host.unwrap_or_else(|| "the same host".to_owned()))
    }

    fn with_facts(&self, error: Error) -> Error {
        let error = error.with_status(self.status());
        let id = REQUEST_IDS.iter().find_map(|name| self.headers().get(*name)?.to_str().ok());
        match id {
            Some(id) => error.context("request", id),
            None => error,
        }
    }
}

/// The error for a call without an answer.
pub(super) fn by_failure(
    name: &'static str,
    method: &Method,
    url: &str,
    failure: &Failure,
    tls_advice: &'static str,
) -> Error {
    let error = |kind, advice: &str| Error::new(kind, name, format!("{method} {url}: {failure}{advice}"));
    match failure {
        Failure::Tls(why) if !matches!(why, TlsFailure::Other(_)) => {
            error(ErrorKind::InvalidConfig, tls_advice).retry(Retry::Backoff)
        }
        Failure::Connect(_) | Failure::Tls(_) => error(ErrorKind::Unavailable, ""),
        Failure::Request(_) => error(ErrorKind::InvalidConfig, "").retry(Retry::Backoff),
        Failure::Timeout(_) | Failure::Broken(_) => error(ErrorKind::Unavailable, "").outcome_unknown(),
        Failure::Crowded(_) => error(ErrorKind::Unavailable, "").outcome_unknown().too_large(),
        Failure::TooLarge(_) => error(ErrorKind::Unexpected, "").outcome_unknown().too_large(),
        Failure::Encoded(_) => error(ErrorKind::Unexpected, "").outcome_unknown(),
    }
}

/// Longest part of a body in a message.
const LONGEST: usize = 2000;

/// On one line, and cut.
fn line(text: &str) -> String {
    let words: Vec<_> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    let mut line = words.join(" ");
    if line.len() > LONGEST {
        line.truncate(line.floor_char_boundary(LONGEST));
        line.push('…');
    }
    line
}
