//! Errors of NSX: the code in the body decides the kind, before the status.

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{ErrorDecoder, ErrorResponse};
use serde::Deserialize;

use super::auth::Renewed;

/// Code for a path with a parent, or a reference, that does not exist.
pub(crate) const INVALID_PATH: &str = "500012";

/// Code for the deletion of an object that another one refers to.
pub(crate) const IN_USE: &str = "500030";

/// Returns the error with a remedy at the end of its message.
pub(crate) fn with_advice(error: &Error, advice: &str) -> Error {
    let message = format!("{}; {advice}", error.message());
    let mut advised = Error::new(error.kind(), error.operation(), message).retry(error.retry_advice());
    if let Some(code) = error.code() {
        advised = advised.with_code(code);
    }
    if let Some(status) = error.status() {
        advised = advised.with_status(status);
    }
    if error.is_outcome_unknown() { advised.outcome_unknown() } else { advised }
}

/// Returns whether a write was rejected because another client has changed the object since it was read.
pub(crate) fn is_stale(error: &Error) -> bool {
    let is_in_use = matches!(error.code(), Some(IN_USE | "500045"));
    error.kind() == ErrorKind::Conflict && !is_in_use
}

/// Decodes error responses.
pub(super) struct Errors {
    /// Calls have an access token. It may have expired if the answer is 403, unless it was renewed a short time ago.
    pub token: Option<Renewed>,
}

/// Decodes error responses of the server that issues access tokens.
pub(super) struct TokenErrors;

impl ErrorDecoder for TokenErrors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        match response.status() {
            // A refresh token that is unknown or has expired.
            400 | 401 | 403 => response.to_error_of(ErrorKind::Unauthenticated),
            _ => response.to_error(),
        }
    }
}

/// Error body. All fields are optional.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    error_code: Option<i64>,
    error_message: String,
    details: String,
    related_errors: Vec<Related>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Related {
    error_code: Option<i64>,
    error_message: String,
}

impl ErrorDecoder for Errors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        // A body without a code is not from NSX itself, and its 404 proves nothing.
        let body = response.json::<Body>().and_then(|body| Some((body.error_code?, body)));
        let Some((code, body)) = body else { return self.foreign(response) };
        let status = response.status();
        let (kind, retry) = self.kind(status, code, response);
        let error = response.to_error_with(kind, message(status, code, &body)).with_code(code.to_string());
        match retry {
            Some(retry) => error.retry(retry),
            None => error,
        }
    }

    fn tls_advice(&self) -> &'static str {
        "; set caFile (ca-file) of the section nsxt to the CA of the NSX manager"
    }
}

impl Errors {
    /// Returns the error for a body that is not from NSX.
    fn foreign(&self, response: &ErrorResponse<'_>) -> Error {
        match response.status() {
            404 | 410 => response.to_error_of(ErrorKind::Unexpected),
            403 if self.token.is_some() && !self.is_token_new() => response.to_error_of(ErrorKind::Unauthenticated),
            _ => response.to_error(),
        }
    }

    fn is_token_new(&self) -> bool {
        self.token.as_ref().is_some_and(Renewed::is_recent)
    }

    fn kind(&self, status: u16, code: i64, response: &ErrorResponse<'_>) -> (ErrorKind, Option<Retry>) {
        let kind = match (status, code) {
            // The object is referenced, or is still being deleted.
            (400, 500_030 | 500_045) => return (ErrorKind::Conflict, Some(Retry::Backoff)),
            // The revision is stale.
            (400, 500_087 | 500_232 | 100_148) | (404, 500_090) => ErrorKind::Conflict,
            // Any other 404 is no proof that the object does not exist.
            (404, 600 | 202) => ErrorKind::NotFound,
            (404, _) => ErrorKind::Unexpected,
            // The search index is busy, too slow or behind.
            (400, 60_508 | 60_514 | 60_515) => ErrorKind::Unavailable,
            // A new access token has not expired, so the permission is missing.
            (403, _) if self.is_token_new() => ErrorKind::PermissionDenied,
            // Wrong credentials or a locked account; an invalid session.
            (403, 403 | 98) => ErrorKind::Unauthenticated,
            (403, _) if self.token.is_some() => ErrorKind::Unauthenticated,
            _ => response.to_error().kind(),
        };
        // Other objects of NSX decide whether it accepts a call, so a refusal is never final.
        let refused = (kind == ErrorKind::InvalidConfig).then_some(Retry::Backoff);
        let delay = response.retry_after().filter(|_| kind.is_transient()).map(Retry::After);
        (kind, delay.or(refused))
    }
}

/// Returns the message, with the words of the Go manager.
fn message(status: u16, code: i64, body: &Body) -> String {
    let text = if body.error_message.is_empty() { &body.details } else { &body.error_message };
    let related: Vec<_> = body
        .related_errors
        .iter()
        .map(|one| match one.error_code {
            Some(code) => format!("{} (code {code})", one.error_message),
            None => one.error_message.clone(),
        })
        .collect();
    let related = if related.is_empty() { String::new() } else { format!(". Related errors: {}", related.join("; ")) };
    format!("{}: {text} (code {code}){related}", class(status))
}

fn class(status: u16) -> &'static str {
    match status {
        400 | 412 => "InvalidRequest",
        401 => "Unauthenticated",
        403 => "Unauthorized",
        404 => "NotFound",
        408 | 504 => "TimedOut",
        409 => "ConcurrentChange",
        429 | 503 => "ServiceUnavailable",
        _ => "InternalServerError",
    }
}
