//! Errors from error responses and from requests without a response.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, header};
use serde::de::DeserializeOwned;

use crate::{RequestError, TlsHandshakeError};

/// Decodes the error responses of a service.
pub trait ErrorDecoder: Send + Sync {
    /// Decodes an error response. The default uses only the status.
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        response.to_error()
    }

    /// Returns advice for TLS errors, such as the names of configuration keys, which is appended to the message.
    fn tls_advice(&self) -> &'static str {
        ""
    }
}

/// Decodes errors by their status only.
pub struct ByStatus;

impl ErrorDecoder for ByStatus {}

/// A response that is not a success.
pub struct ErrorResponse<'a> {
    name: &'static str,
    method: &'a Method,
    url: &'a str,
    response: &'a Response<Bytes>,
    retry_after: Option<Duration>,
}

/// Headers with the request ID, by cloud.
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

    /// Returns the method of the request.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URL of the request for messages: without user and password, and truncated.
    pub fn url(&self) -> &'a str {
        self.url
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the delay of `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the ID that the cloud gave to the request, from any of the usual headers.
    pub fn request_id(&self) -> Option<&'a str> {
        REQUEST_IDS.iter().find_map(|name| self.response.headers().get(*name)?.to_str().ok())
    }

    /// Returns the body as one line of text, truncated.
    pub fn text(&self) -> String {
        line(&String::from_utf8_lossy(self.response.body()))
    }

    /// Returns the whole body; `None` if it is not UTF-8.
    pub fn body(&self) -> Option<&'a str> {
        std::str::from_utf8(self.response.body()).ok()
    }

    /// Decodes the body as JSON; `None` if it is not valid.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.response.body()).ok()
    }

    /// Decodes the body as XML; `None` if it is not valid.
    pub fn xml<T: DeserializeOwned>(&self) -> Option<T> {
        quick_xml::de::from_str(self.body()?).ok()
    }

    /// Returns the error for the status.
    pub fn to_error(&self) -> Error {
        let by_status = Error::from_status(self.name, self.status(), "", self.retry_after);
        let error = Error::new(by_status.kind(), self.name, self.message()).retry(by_status.retry_advice());
        let error = if by_status.is_outcome_unknown() { error.outcome_unknown() } else { error };
        self.with_context(error)
    }

    /// Returns an error of this kind with the usual message. The status determines whether the outcome is unknown. If the body
    /// shows that the cloud itself responded and not a gateway, add [`outcome_known`](Error::outcome_known).
    pub fn to_error_of(&self, kind: ErrorKind) -> Error {
        self.with_context(self.to_error_with(kind, self.message()))
    }

    /// Returns an error like [`to_error_of`](ErrorResponse::to_error_of) with another message, which contains whatever it should of
    /// the call, the status and the request ID: nothing is added to it.
    pub fn to_error_with(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        let error = Error::new(kind, self.name, message).with_status(self.status());
        if self.to_error().is_outcome_unknown() { error.outcome_unknown() } else { error }
    }

    /// Returns the message with call, status and body. Redirects are not followed: they would send the credentials to another host.
    fn message(&self) -> String {
        let (method, url, status) = (self.method, self.url, self.status());
        match self.redirect() {
            Some(host) => {
                format!("{method} {url}: HTTP {status}: redirects are not followed; this one leads to {host}")
            }
            None => format!("{method} {url}: HTTP {status}: {}", self.text()).trim_end_matches(": ").to_owned(),
        }
    }

    /// Returns the target host of a redirect.
    fn redirect(&self) -> Option<String> {
        let location = self.headers().get(header::LOCATION).filter(|_| self.response.status().is_redirection())?;
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        let host = location.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        Some(host.unwrap_or_else(|| "the same host".to_owned()))
    }

    fn with_context(&self, error: Error) -> Error {
        let error = error.with_status(self.status());
        match self.request_id() {
            Some(id) => error.context("request", id),
            None => error,
        }
    }
}

/// Returns the error for a call without a response.
pub(super) fn without_response(
    name: &'static str,
    method: &Method,
    url: &str,
    cause: &RequestError,
    tls_advice: &'static str,
) -> Error {
    let new = |kind, advice: &str| Error::new(kind, name, format!("{method} {url}: {cause}{advice}"));
    match cause {
        RequestError::Tls(error) if !matches!(error, TlsHandshakeError::Other(_)) => {
            new(ErrorKind::InvalidConfig, tls_advice).retry(Retry::Backoff)
        }
        RequestError::Connect(_) | RequestError::Tls(_) => new(ErrorKind::Unavailable, ""),
        RequestError::Request(_) => new(ErrorKind::InvalidConfig, "").retry(Retry::Backoff),
        RequestError::Timeout(_) | RequestError::Broken(_) => new(ErrorKind::Unavailable, "").outcome_unknown(),
        RequestError::OverBudget(_) => new(ErrorKind::Unavailable, "").outcome_unknown().too_large(),
        RequestError::TooLarge(_) => new(ErrorKind::Unexpected, "").outcome_unknown().too_large(),
        RequestError::Encoded(_) => new(ErrorKind::Unexpected, "").outcome_unknown(),
    }
}

/// Maximum length of a body in a message.
const MAX_BODY: usize = 2000;

/// Joins the text to one line, truncated.
fn line(text: &str) -> String {
    let words: Vec<_> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    let mut line = words.join(" ");
    if line.len() > MAX_BODY {
        line.truncate(line.floor_char_boundary(MAX_BODY));
        line.push('…');
    }
    line
}
