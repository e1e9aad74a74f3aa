//! One request to one agent, and the error if no agent of the group executes it.

use std::fmt;

use bowline_http::{RequestError, TlsHandshakeError};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri};

use super::Agent;
use crate::config::Endpoint;
use crate::errors::NOT_AN_AGENT;
use crate::messages::{API_HEADER, API_VERSION, ErrorBody, ErrorReply, codes};

/// Outcome of an attempt.
pub(super) enum Outcome {
    /// The response to the call.
    Answered(Response<Bytes>),
    /// The agent answered, and executed nothing.
    Declined(Reason),
    /// The request was not sent.
    NotSent(RequestError),
    /// The request was sent, and there is no response.
    Unknown(RequestError),
}

/// Reason why an agent did not execute a request.
pub(super) enum Reason {
    /// It is not the active one, or not ready.
    NotActive { message: String, active: Option<String> },
    /// It has another version of the API.
    ApiVersion(String),
    /// It did not respond.
    Error(RequestError),
}

/// Fix if no agent can be reached.
const FIX: &str = "fix: start the agents, and check their endpoints and the firewalls";

/// Sends the request to the agent.
pub(super) async fn attempt(agent: &Agent, mut request: Request<Bytes>) -> Outcome {
    match address(&agent.endpoint, request.uri()) {
        Ok(uri) => *request.uri_mut() = uri,
        Err(error) => return Outcome::NotSent(error),
    }
    request.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    match agent.client.send(request).await {
        Ok(response) => judge(&agent.endpoint, response),
        Err(error @ (RequestError::Connect(_) | RequestError::Tls(_) | RequestError::Request(_))) => {
            Outcome::NotSent(error)
        }
        Err(error) => Outcome::Unknown(error),
    }
}

/// URL of the request at the agent.
fn address(endpoint: &Endpoint, uri: &Uri) -> Result<Uri, RequestError> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    format!("{}{path}", endpoint.base()).parse().map_err(|error| RequestError::Request(format!("{endpoint}: {error}")))
}

fn judge(endpoint: &Endpoint, response: Response<Bytes>) -> Outcome {
    let version = response.headers().get(API_HEADER).map(|version| String::from_utf8_lossy(version.as_bytes()));
    let is_success = response.status().is_success();
    match version.as_deref() {
        Some(API_VERSION) => {}
        Some(other) if !is_success => return Outcome::Declined(Reason::ApiVersion(mismatch(other))),
        Some(other) => {
            let message = format!("{endpoint}: {}", mismatch(other));
            return Outcome::Answered(reply(StatusCode::BAD_REQUEST, codes::API_VERSION, message));
        }
        None if is_success => {
            let message =
                format!("{endpoint}: the response has no header Bowline-Agent-API: this is no agent of Bowline");
            return Outcome::Answered(reply(StatusCode::BAD_GATEWAY, NOT_AN_AGENT, message));
        }
        // A proxy may have answered; the status decides.
        None => return Outcome::Answered(response),
    }
    if is_success {
        return Outcome::Answered(response);
    }
    let ErrorBody { code, message, active, .. } =
        serde_json::from_slice::<ErrorReply>(response.body()).unwrap_or_default().error;
    match code.as_str() {
        codes::NOT_ACTIVE | codes::NOT_READY => Outcome::Declined(Reason::NotActive { message, active }),
        codes::API_VERSION => Outcome::Declined(Reason::ApiVersion(message)),
        _ => Outcome::Answered(response),
    }
}

/// Message about another version of the API, with the side to upgrade.
fn mismatch(theirs: &str) -> String {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let fix = match (number(theirs), number(API_VERSION)) {
        (Some(theirs), Some(own)) if theirs > own => "upgrade the manager",
        _ => "upgrade the agent",
    };
    format!("the agent has version {theirs} of the API, and this manager version {API_VERSION}; fix: {fix}")
}

/// Error of a call that no agent executed, with the reason of each. If an agent answered, it is a response, so that it is decoded as
/// any other one.
pub(super) fn conclude(mut reasons: Vec<(Endpoint, Reason)>) -> Result<Response<Bytes>, RequestError> {
    let all = reasons.iter().map(|(endpoint, reason)| format!("{endpoint}: {reason}")).collect::<Vec<_>>().join("; ");
    if reasons.iter().any(|(_, reason)| matches!(reason, Reason::ApiVersion(_))) {
        return Ok(reply(StatusCode::BAD_REQUEST, codes::API_VERSION, all));
    }
    if reasons.iter().any(|(_, reason)| matches!(reason, Reason::NotActive { .. })) {
        let message = format!("no active agent is reachable: {all}");
        return Ok(reply(StatusCode::SERVICE_UNAVAILABLE, codes::NOT_ACTIVE, message));
    }
    // The same error of all agents keeps its kind, such as that of a certificate.
    Err(match reasons.pop() {
        Some((Endpoint::Https(_), Reason::Error(RequestError::Connect(cause)))) if reasons.is_empty() => {
            RequestError::Connect(format!("{cause}; {FIX}"))
        }
        Some((_, Reason::Error(error)))
            if reasons.is_empty() || is_certificate(&error) && all_certificates(&reasons) =>
        {
            error
        }
        _ => RequestError::Connect(format!("no agent is reachable: {all}; {FIX}")),
    })
}

fn all_certificates(reasons: &[(Endpoint, Reason)]) -> bool {
    reasons.iter().all(|(_, reason)| matches!(reason, Reason::Error(error) if is_certificate(error)))
}

/// Whether the certificates or the settings for them have to be corrected.
fn is_certificate(error: &RequestError) -> bool {
    matches!(error, RequestError::Tls(error) if !matches!(error, TlsHandshakeError::Other(_)))
}

/// Response of this client in place of an agent.
fn reply(status: StatusCode, code: &str, message: String) -> Response<Bytes> {
    let error = ErrorBody { code: code.to_owned(), message, ..ErrorBody::default() };
    let mut response = Response::new(serde_json::to_vec(&ErrorReply { error }).unwrap_or_default().into());
    *response.status_mut() = status;
    response.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    response
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotActive { message, .. } | Reason::ApiVersion(message) => f.write_str(message),
            Reason::Error(error) => error.fmt(f),
        }
    }
}
