//! What the API answers: good news as JSON, bad news with a code for programs and a message for people.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cloud::CloudError;

/// What went wrong, for programs and for people.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ErrorReply {
    pub(crate) error: ErrorBody,
}

/// See [`ErrorReply`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorBody {
    pub(crate) code: String,
    pub(crate) message: String,
    /// As Retry-After, which knows whole seconds only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_millis: Option<u64>,
}

/// Why a request is refused.
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

pub(super) type Reply = Response<Bytes>;
pub(super) type Outcome = Result<Reply, Refusal>;

pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("the body is not what is wanted: {error}")))
}

pub(super) fn good(value: &impl Serialize) -> Outcome {
    respond(StatusCode::OK, value)
}

pub(super) fn made(value: &impl Serialize) -> Outcome {
    respond(StatusCode::CREATED, value)
}

pub(super) fn done(outcome: Result<(), CloudError>) -> Outcome {
    outcome?;
    good(&json!({}))
}

fn respond(status: StatusCode, value: &impl Serialize) -> Outcome {
    let body = serde_json::to_vec(value)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(reply(status, body.into()))
}

pub(super) fn reply(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    reply
}

/// A body that is larger than the server reads.
pub(crate) fn too_large(limit: usize) -> Reply {
    let message = format!("the body is larger than {limit} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_reply()
}

/// A body that broke off.
pub(crate) fn broken_body(error: &str) -> Reply {
    Refusal::invalid(format!("the body cannot be read: {error}")).into_reply()
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: String) -> Refusal {
        Refusal { status, code, message, retry_after: None, allow: None }
    }

    pub(super) fn invalid(message: String) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub(super) fn too_many_keys(count: usize, most: usize) -> Refusal {
        let message = format!("{count} things in one lookup, and at most {most} may be asked for");
        Refusal::new(StatusCode::BAD_REQUEST, "too_many_keys", message)
    }

    pub(crate) fn forbidden(code: &'static str, message: String) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, code, message)
    }

    pub(crate) fn not_json(kind: &str) -> Refusal {
        let message = format!("the body has the type {kind:?}; Content-Type: application/json is expected");
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message)
    }

    pub(crate) fn unknown(message: &str) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", message.to_owned())
    }

    pub(super) fn no_fault(number: &str) -> Refusal {
        let message = format!("there is no fault {number:?}; GET /v1/faults tells the numbers of those in force");
        Refusal::new(StatusCode::NOT_FOUND, "no_such_fault", message)
    }

    pub(super) fn no_such_path(path: &str) -> Refusal {
        let message = format!(
            "there is no {path:?}; there are /v1/instances, /v1/instances/find, /v1/instances/ID, \
             /v1/instances/ID/stop, /v1/instances/ID/start, /v1/balancers, /v1/balancers/find, /v1/balancers/change, \
             /v1/balancers/owners, /v1/balancers/ID, /v1/addresses, /v1/routes, /v1/routes/list, /v1/routes/create, \
             /v1/routes/delete, /v1/routes/ID, /v1/pod-ranges/assign, /v1/tags/change, /v1/faults, /v1/calls and /v1/latency"
        );
        Refusal::new(StatusCode::NOT_FOUND, "no_such_path", message)
    }

    pub(super) fn wrong_method(method: &Method, allow: &'static str) -> Refusal {
        let message = format!("{method} cannot be done here; {allow} can");
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
        Refusal { allow: Some(allow), ..refusal }
    }

    pub(super) fn throttled(retry_after: Option<Duration>) -> Refusal {
        let message = "too many calls".to_owned();
        Refusal { retry_after, ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "throttled", message) }
    }

    pub(super) fn failing(status: u16) -> Refusal {
        let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 400);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refusal::new(status, "injected", "the cloud was told to fail like this".to_owned())
    }

    /// The call was carried out, and its answer went astray.
    pub(super) fn answer_lost() -> Refusal {
        let message = "the answer was lost on its way".to_owned();
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, "answer_lost", message)
    }

    pub(super) fn into_reply(self) -> Reply {
        let retry_after_millis = self.retry_after.map(|after| after.as_millis() as u64);
        let error = ErrorBody { code: self.code.to_owned(), message: self.message, retry_after_millis };
        let body = serde_json::to_vec(&ErrorReply { error }).unwrap_or_default();
        let mut reply = reply(self.status, body.into());
        if let Some(after) = self.retry_after {
            // Whole seconds, and never less than was meant.
            let seconds = after.as_millis().div_ceil(1000) as u64;
            reply.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(allow) = self.allow {
            reply.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
        }
        reply
    }
}

impl From<CloudError> for Refusal {
    fn from(error: CloudError) -> Refusal {
        let (status, code) = match &error {
            CloudError::NoSuchMachine(_) => (StatusCode::NOT_FOUND, "no_such_machine"),
            CloudError::Exists(_) => (StatusCode::CONFLICT, "exists"),
            CloudError::Ambiguous(..) => (StatusCode::CONFLICT, "ambiguous"),
            CloudError::NoSuchRoute(_) => (StatusCode::NOT_FOUND, "no_such_route"),
            CloudError::DestinationTaken(_) => (StatusCode::CONFLICT, "destination_taken"),
            CloudError::PodRangeTaken(..) => (StatusCode::CONFLICT, "pod_range_taken"),
            CloudError::NoSuchBalancer(_) => (StatusCode::NOT_FOUND, "no_such_balancer"),
            CloudError::NoSuchAddress(_) => (StatusCode::NOT_FOUND, "no_such_address"),
            CloudError::NameTaken(..) => (StatusCode::CONFLICT, "name_taken"),
            CloudError::Foreign(..) => (StatusCode::CONFLICT, "foreign"),
            CloudError::AddressTaken(..) => (StatusCode::CONFLICT, "address_taken"),
            CloudError::PortTaken(..) => (StatusCode::CONFLICT, "port_taken"),
            CloudError::InUse(..) => (StatusCode::CONFLICT, "in_use"),
            CloudError::Changed(_) => (StatusCode::CONFLICT, "changed"),
            CloudError::Busy(_) => (StatusCode::CONFLICT, "busy"),
            CloudError::Exhausted(_) => (StatusCode::INSUFFICIENT_STORAGE, "exhausted"),
            CloudError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            CloudError::Snapshot(..) => (StatusCode::INTERNAL_SERVER_ERROR, "snapshot"),
        };
        let retry_after = if let CloudError::Busy(rest) = &error { Some(*rest) } else { None };
        Refusal { retry_after, ..Refusal::new(status, code, error.to_string()) }
    }
}
