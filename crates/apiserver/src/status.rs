//! API errors: `Status` objects with code, reason, message and details.

use std::collections::HashSet;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::field_error::FieldError;
use crate::go_text::quote;

/// An error as the API returns it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    pub(crate) reason: Option<&'static str>,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// Sent as `Retry-After`, in seconds, and as `details.retryAfterSeconds`.
    pub(crate) retry_after: Option<u32>,
    /// `metadata.continue`: the token to continue an expired list.
    pub(crate) continue_token: Option<String>,
}

/// Maximum number of validation errors listed for one object, and their maximum total length in bytes. kube-apiserver
/// lists all errors, so a few requests with very many errors can overload it.
pub(crate) const MAX_ERRORS: usize = 1000;
const MAX_TEXT_BYTES: usize = 256 << 10;

pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// Group and plural name (or kind) of a resource in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
}

impl Named<'_> {
    /// `leases.coordination.k8s.io`, or just `services` for the core group.
    pub(crate) fn qualified(&self) -> String {
        match self.group {
            "" => self.kind.to_owned(),
            group => format!("{}.{group}", self.kind),
        }
    }

    fn details(&self, name: &str) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, text) in [("name", name), ("group", self.group), ("kind", self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), text.into());
            }
        }
        details
    }
}

impl ApiError {
    fn new(code: StatusCode, reason: Option<&'static str>, message: impl Into<String>) -> Self {
        ApiError { code, reason, message: message.into(), details: None, retry_after: None, continue_token: None }
    }

    fn with_details(mut self, details: impl Into<Value>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// Adds the empty `details` of upstream's router errors.
    pub(crate) fn with_empty_details(self) -> Self {
        self.with_details(json!({}))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some("BadRequest"), message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Some("Unauthorized"), "Unauthorized")
    }

    /// `services "a" is forbidden: why`.
    pub(crate) fn forbidden(what: Named<'_>, name: &str, why: &str) -> Self {
        let subject = match (what.kind, name) {
            ("", _) => "forbidden".to_owned(),
            (_, "") => format!("{} is forbidden", what.qualified()),
            _ => format!("{} {} is forbidden", what.qualified(), quote(name)),
        };
        Self::new(StatusCode::FORBIDDEN, Some("Forbidden"), format!("{subject}: {why}"))
            .with_details(what.details(name))
    }

    /// Adds an entry to `details.causes`.
    pub(crate) fn with_cause(mut self, cause: Value) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        match details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => details["causes"] = json!([cause]),
        }
        self
    }

    pub(crate) fn not_found(what: Named<'_>, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, Some("NotFound"), format!("{} {} not found", what.qualified(), quote(name)))
            .with_details(what.details(name))
    }

    /// No such resource, subresource or version.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, Some("NotFound"), "the server could not find the requested resource")
            .with_details(json!({}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            Some("MethodNotAllowed"),
            "the server does not allow this method on the requested resource",
        )
        .with_details(json!({}))
    }

    /// A feature of a real server that this one does not implement.
    pub(crate) fn not_implemented(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, Some("NotImplemented"), why)
    }

    pub(crate) fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Some("ServiceUnavailable"), message)
    }

    pub(crate) fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, Some("NotAcceptable"), message)
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Some("UnsupportedMediaType"), message)
    }

    pub(crate) fn already_exists(what: Named<'_>, name: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            Some("AlreadyExists"),
            format!("{} {} already exists", what.qualified(), quote(name)),
        )
        .with_details(what.details(name))
    }

    /// Like [`ApiError::already_exists`], for an object with a `generateName`: a retry may generate another name.
    pub(crate) fn name_not_unique(what: Named<'_>, name: &str) -> Self {
        let mut details = what.details(name);
        details.insert("retryAfterSeconds".into(), 1.into());
        let mut error = Self::already_exists(what, name).with_details(details);
        error.message.push_str(", the server was not able to generate a unique name for the object");
        error.retry_after = Some(1);
        error
    }

    /// `Operation cannot be fulfilled on services "a": why`.
    pub(crate) fn conflict(what: Named<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {}: {why}", what.qualified(), quote(name));
        Self::new(StatusCode::CONFLICT, Some("Conflict"), message).with_details(what.details(name))
    }

    /// The optimistic locking conflict: another client modified the object.
    pub(crate) fn modified(what: Named<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(what, name, why)
    }

    /// A server-side apply conflict.
    pub(crate) fn conflict_with_causes(message: impl Into<String>, causes: Vec<Value>) -> Self {
        Self::new(StatusCode::CONFLICT, Some("Conflict"), message).with_details(json!({"causes": causes}))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, Some("Expired"), message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            Some("RequestEntityTooLarge"),
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// The client exceeds its limits. The message is upstream's.
    pub(crate) fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, Some("TooManyRequests"), message);
        error.retry_after = Some(1);
        error.with_details(json!({"retryAfterSeconds": 1}))
    }

    /// The request exceeded the request timeout.
    pub(crate) fn timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, Some("Timeout"), message).with_details(json!({}))
    }

    /// `Service "a" is invalid: …` with one cause per error; duplicate errors are listed once.
    pub(crate) fn invalid(what: Named<'_>, name: &str, errors: &[FieldError]) -> Self {
        let (mut seen, mut texts, mut causes) = (HashSet::new(), Vec::new(), Vec::new());
        let (mut listed, mut length) = (0, 0);
        for error in errors.iter().take(MAX_ERRORS) {
            let text = error.to_string();
            length += text.len();
            if listed > 0 && length > MAX_TEXT_BYTES {
                break;
            }
            listed += 1;
            if seen.insert(text.clone()) {
                texts.push(text);
                causes.push(error.cause());
            }
        }
        if listed < errors.len() {
            texts.push(format!("{} further errors are not listed", errors.len() - listed));
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = what.details(name);
        details.insert("causes".into(), causes.into());
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Some("Invalid"),
            format!("{} {} is invalid: {list}", what.qualified(), quote(name)),
        )
        .with_details(details)
    }

    /// 422 for a JSON patch that does not apply.
    pub(crate) fn rejected_patch() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Some("Invalid"),
            "the server rejected our request due to an error in our request",
        )
        .with_details(json!({}))
    }

    /// 500 with only a message, as upstream returns a plain Go error.
    pub(crate) fn plain(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, None, message)
    }

    /// 500 with reason `InternalError` and the cause upstream adds.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let details = json!({"causes": [{"message": message}]});
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Some("InternalError"),
            format!("Internal error occurred: {message}"),
        )
        .with_details(details)
    }

    /// 504 for a resource version that the server has not reached.
    pub(crate) fn too_large_resource_version(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, Some("Timeout"), format!("Timeout: {message}"));
        error.retry_after = Some(1);
        error.with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// An injected fault, with the reason that belongs to its code.
    pub(crate) fn injected(code: StatusCode, message: &str, retry_after: Option<u32>) -> Self {
        let reason = match code.as_u16() {
            400 => Some("BadRequest"),
            401 => Some("Unauthorized"),
            403 => Some("Forbidden"),
            404 => Some("NotFound"),
            409 => Some("Conflict"),
            410 => Some("Expired"),
            422 => Some("Invalid"),
            429 => Some("TooManyRequests"),
            500 => Some("InternalError"),
            503 => Some("ServiceUnavailable"),
            504 => Some("Timeout"),
            _ => None,
        };
        let mut error = Self::new(code, reason, message);
        error.retry_after = retry_after;
        match retry_after {
            Some(seconds) => error.with_details(json!({"retryAfterSeconds": seconds})),
            None => error,
        }
    }

    /// The Status object sent to the client.
    pub(crate) fn to_status(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.clone().into();
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if let Some(reason) = self.reason {
            status["reason"] = reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGMAP: Named<'static> = Named { group: "", kind: "ConfigMap" };

    fn invalid(errors: &[FieldError]) -> (String, usize) {
        let error = ApiError::invalid(CONFIGMAP, "a", errors);
        let causes = error.details.as_ref().and_then(|details| details["causes"].as_array()).map_or(0, Vec::len);
        (error.message, causes)
    }

    #[test]
    fn duplicate_errors_are_listed_once() {
        let errors = ["a", "b", "a"].map(|field| FieldError::required(field, ""));
        let message = r#"ConfigMap "a" is invalid: [a: Required value, b: Required value]"#;
        assert_eq!(invalid(&errors), (message.to_owned(), 2));
    }

    #[test]
    fn the_number_of_listed_errors_is_limited() {
        let errors: Vec<FieldError> = (0..3000).map(|n| FieldError::required(n.to_string(), "")).collect();
        let (message, causes) = invalid(&errors);
        assert_eq!(causes, MAX_ERRORS);
        assert!(message.ends_with("999: Required value, 2000 further errors are not listed]"), "{message}");
    }

    #[test]
    fn the_length_of_listed_errors_is_limited() {
        let value = "x".repeat(100 << 10);
        let errors: Vec<FieldError> = (0..100).map(|n| FieldError::invalid(n.to_string(), &*value, "")).collect();
        let (message, causes) = invalid(&errors);
        assert_eq!(causes, 2);
        assert!(message.ends_with("98 further errors are not listed]") && message.len() <= MAX_TEXT_BYTES + 100);
    }
}
