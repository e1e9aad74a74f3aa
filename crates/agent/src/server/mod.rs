//! API of an agent: JSON over HTTP/1.1, over TLS with client certificates or on a Unix socket.
//!
//! ```text
//!  POST /v1/balancers/find, owners, change     clients
//!  POST /v1/routes/list, create, delete        clients
//!  GET  /v1/status                             every certificate of the CA that is listed
//!  GET  /v1/peer/beat                          peers and followers
//!  GET  /v1/peer/state                         peers and followers: the complete state
//!  POST /v1/peer/state                         peers: changes, or the complete state
//! ```

mod access;
mod calls;
mod connection;
mod credentials;
mod plain;
mod router;
mod status;

pub(crate) use bowline_agent_client::{API_HEADER, API_VERSION};
use bowline_agent_client::{ErrorBody, ErrorReply};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::error::AgentError;

pub(crate) use connection::{Listener, serve};
pub use credentials::TlsFileError;
pub(crate) use credentials::{Credentials, client_tls, client_verifier, leaf};
pub(crate) use plain::serve_plain;
pub(crate) use router::Api;

/// Header with the claim of a peer, in JSON.
pub(crate) const CLAIM_HEADER: &str = "bowline-agent-claim";

/// Checks the version of the API that the other side speaks. `what` is the other side.
pub(crate) fn check_api_version(headers: &HeaderMap, what: &str) -> Result<(), String> {
    let other = headers.get(API_HEADER).map(|value| value.to_str().unwrap_or_default());
    match other {
        Some(API_VERSION) => Ok(()),
        None => Err(format!("the {what} sends no header Bowline-Agent-API; fix: check that it is one of this version")),
        Some(other) => {
            let newer = other.parse::<u64>().is_ok_and(|other| other > 1);
            let fix = if newer { "upgrade this side" } else { "upgrade that side" };
            Err(format!("the {what} has version {other:?} of the API, and this one {API_VERSION}; fix: {fix}"))
        }
    }
}

/// Response of the API.
pub(crate) type Reply = Response<Bytes>;

/// Successful response.
fn ok(value: &impl Serialize) -> Result<Reply, AgentError> {
    let body = serde_json::to_vec(value).map_err(|error| AgentError::Internal(error.to_string()))?;
    Ok(reply(StatusCode::OK, body.into()))
}

/// Error response.
fn error_reply(error: &AgentError) -> Reply {
    let (status, code) = error.status();
    let active = if let AgentError::NotActive { active, .. } = error { active.clone() } else { None };
    let retry_after_millis = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(500);
    let body = ErrorReply {
        error: ErrorBody { code: code.to_owned(), message: error.to_string(), retry_after_millis, active },
    };
    reply(status, serde_json::to_vec(&body).unwrap_or_default().into())
}

fn reply(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    reply
}
