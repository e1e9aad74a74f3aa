//! Error responses, with the texts of the Go manager.

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{ErrorDecoder, ErrorResponse};
use serde::Deserialize;

/// Decodes error responses.
pub(crate) struct Errors;

/// Body of an error response.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    id: String,
    message: String,
    request_id: Option<String>,
}

impl ErrorDecoder for Errors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let body = response.json::<ErrorBody>();
        let kind = kind(response, body.as_ref());
        let Some(body) = body.filter(|body| !body.message.is_empty()) else {
            let by_status = response.to_error();
            return if by_status.kind() == kind { by_status } else { response.to_error_of(kind) };
        };
        let (method, url, status) = (response.method(), response.url(), response.status());
        // upstream: users search Events for this text.
        let message = match body.request_id.as_deref().or(response.request_id()) {
            Some(id) => format!("{method} {url}: {status} (request {id:?}) {}", body.message),
            None => format!("{method} {url}: {status} {}", body.message),
        };
        let error = response.to_error_with(kind, message);
        match (kind, response.retry_after()) {
            (ErrorKind::RateLimited | ErrorKind::Unavailable, Some(pause)) => error.retry(Retry::After(pause)),
            // The cause may be outside the Service: the VPC of a Droplet, a resize within the hour.
            (ErrorKind::InvalidConfig, _) => error.retry(Retry::Backoff),
            _ => error,
        }
    }
}

/// Returns the kind of an error. A 404 without the API's own error ID comes from a proxy or a wrong endpoint and proves nothing.
fn kind(response: &ErrorResponse<'_>, body: Option<&ErrorBody>) -> ErrorKind {
    let is_limit = |body: &ErrorBody| body.message.to_ascii_lowercase().contains("limit");
    let is_busy = |body: &ErrorBody| body.message.contains("processes previous actions");
    match (response.status(), body) {
        (404, Some(body)) if body.id == "not_found" => ErrorKind::NotFound,
        (404, _) => ErrorKind::Unexpected,
        (403, Some(body)) if is_busy(body) => ErrorKind::Conflict,
        (403 | 422, Some(body)) if is_limit(body) => ErrorKind::QuotaExceeded,
        _ => response.to_error().kind(),
    }
}
