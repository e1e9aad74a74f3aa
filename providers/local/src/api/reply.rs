//! Responses of the API: JSON, with a code and a message for errors.

use std::time::Duration;

use bowline_agent_client::{ErrorBody, ErrorReply};
use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cloud::CloudError;

/// Error response.
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

pub(super) type Reply = Response<Bytes>;
pub(super) type ApiResult = Result<Reply, ApiError>;

pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid(format!("invalid body: {error}")))
}

pub(super) fn ok(value: &impl Serialize) -> ApiResult {
    respond(StatusCode::OK, value)
}

pub(super) fn created(value: &impl Serialize) -> ApiResult {
    respond(StatusCode::CREATED, value)
}

pub(super) fn empty(result: Result<(), CloudError>) -> ApiResult {
    result?;
    ok(&json!({}))
}

fn respond(status: StatusCode, value: &impl Serialize) -> ApiResult {
    let body = serde_json::to_vec(value)
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(reply(status, body.into()))
}

pub(super) fn reply(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    reply
}

/// Response to a body that exceeds the limit.
pub(crate) fn too_large(limit: usize) -> Reply {
    let message = format!("the body is larger than {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_reply()
}

/// Response to a truncated body.
pub(crate) fn truncated_body(error: &str) -> Reply {
    ApiError::invalid(format!("cannot read the body: {error}")).into_reply()
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: String) -> ApiError {
        ApiError { status, code, message, retry_after: None, allow: None }
    }

    pub(super) fn invalid(message: String) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub(super) fn too_many_keys(count: usize, limit: usize) -> ApiError {
        let message = format!("{count} keys in one lookup; at most {limit} are allowed");
        ApiError::new(StatusCode::BAD_REQUEST, "too_many_keys", message)
    }

    pub(crate) fn forbidden(code: &'static str, message: String) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, code, message)
    }

    pub(crate) fn not_json(kind: &str) -> ApiError {
        let message = format!("unsupported Content-Type {kind:?}; expected application/json");
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message)
    }

    pub(crate) fn unauthenticated(message: &str) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", message.to_owned())
    }

    pub(super) fn no_fault(number: &str) -> ApiError {
        let message = format!("there is no fault {number:?}; GET /v1/faults lists the faults in force");
        ApiError::new(StatusCode::NOT_FOUND, "no_such_fault", message)
    }

    pub(super) fn no_such_path(path: &str) -> ApiError {
        let message = format!(
            "there is no path {path:?}; supported paths are /v1/instances, /v1/instances/find, /v1/instances/ID, \
             /v1/instances/ID/stop, /v1/instances/ID/start, /v1/balancers, /v1/balancers/find, /v1/balancers/change, \
             /v1/balancers/owners, /v1/balancers/ID, /v1/addresses, /v1/routes, /v1/routes/list, /v1/routes/create, \
             /v1/routes/delete, /v1/routes/ID, /v1/pod-ranges/assign, /v1/tags/change, /v1/faults, /v1/calls and /v1/latency"
        );
        ApiError::new(StatusCode::NOT_FOUND, "no_such_path", message)
    }

    pub(super) fn wrong_method(method: &Method, allow: &'static str) -> ApiError {
        let message = format!("method {method} is not allowed; supported methods are {allow}");
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
        ApiError { allow: Some(allow), ..error }
    }

    pub(super) fn throttled(retry_after: Option<Duration>) -> ApiError {
        let message = "too many calls".to_owned();
        ApiError { retry_after, ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, "throttled", message) }
    }

    pub(super) fn failing(status: u16) -> ApiError {
        let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 400);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ApiError::new(status, "injected", "injected failure".to_owned())
    }

    /// The call was applied, and its response is lost.
    pub(super) fn answer_lost() -> ApiError {
        let message = "the response was lost".to_owned();
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "answer_lost", message)
    }

    pub(super) fn into_reply(self) -> Reply {
        let retry_after_millis = self.retry_after.map(|after| after.as_millis() as u64);
        let error = ErrorBody { code: self.code.to_owned(), message: self.message, retry_after_millis, active: None };
        let body = serde_json::to_vec(&ErrorReply { error }).unwrap_or_default();
        let mut reply = reply(self.status, body.into());
        if let Some(after) = self.retry_after {
            // Rounded up to whole seconds.
            let seconds = after.as_millis().div_ceil(1000) as u64;
            reply.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(allow) = self.allow {
            reply.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
        }
        reply
    }
}

impl From<CloudError> for ApiError {
    fn from(error: CloudError) -> ApiError {
        let (status, code) = match &error {
            CloudError::NoSuchMachine(_) => (StatusCode::NOT_FOUND, "no_such_machine"),
            CloudError::Exists(_) => (StatusCode::CONFLICT, "exists"),
            CloudError::Ambiguous(..) => (StatusCode::CONFLICT, "ambiguous"),
            CloudError::NoSuchRoute(_) => (StatusCode::NOT_FOUND, "no_such_route"),
            CloudError::DestinationTaken(_) => (StatusCode::CONFLICT, "destination_taken"),
            CloudError::PodCidrTaken(..) => (StatusCode::CONFLICT, "pod_range_taken"),
            CloudError::Rule(rule) => (status(rule.status()), rule.code()),
            CloudError::Busy(_) => (StatusCode::CONFLICT, "busy"),
            CloudError::Exhausted(_) => (StatusCode::INSUFFICIENT_STORAGE, "exhausted"),
            CloudError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            CloudError::Snapshot(..) => (StatusCode::INTERNAL_SERVER_ERROR, "snapshot"),
        };
        let retry_after = if let CloudError::Busy(rest) = &error { Some(*rest) } else { None };
        ApiError { retry_after, ..ApiError::new(status, code, error.to_string()) }
    }
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
