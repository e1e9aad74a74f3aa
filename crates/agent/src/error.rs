//! Errors of calls, with their HTTP status and code.

use std::sync::Arc;

use bowline_agent_client::RouteRecord;
use http::StatusCode;

use crate::balancers::RuleError;

/// Reason why a call is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum AgentError {
    /// A rule about load balancers or addresses.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The route does not exist.
    #[error("there is no route {0:?}")]
    NoSuchRoute(String),
    /// The cluster has a route to another Node for the destination.
    #[error("the route {id:?} to the Node {node:?} already has the destination {cidr}", id = .0.id, node = .0.node.as_str(),
        cidr = .0.destination)]
    DestinationTaken(Arc<RouteRecord>),
    /// A limit is reached.
    #[error("{0}")]
    Exhausted(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// This agent is not the active one.
    #[error("{message}")]
    NotActive {
        /// Endpoint of the active agent, if this agent knows it.
        active: Option<String>,
        message: String,
    },
    /// The agent cannot answer now.
    #[error("{0}")]
    NotReady(String),
    /// The state file cannot be written.
    #[error("{0}")]
    Storage(String),
    /// The client has another version of the API.
    #[error("{0}")]
    ApiVersion(String),
    /// The client may not make this call.
    #[error("{0}")]
    Forbidden(String),
    /// A standby does not have the version that precedes a change.
    #[error("{0}")]
    OutOfSync(String),
    /// A standby follows another active agent, or has a newer state.
    #[error("{0}")]
    Rejected(String),
    /// There is no such path.
    #[error("{0}")]
    NoSuchPath(String),
    /// The path has no such method.
    #[error("{0}")]
    WrongMethod(String),
    /// The body is not JSON.
    #[error("{0}")]
    NotJson(String),
    /// The body is too large.
    #[error("{0}")]
    TooLarge(String),
    /// Anything else, which is an error of the agent.
    #[error("{0}")]
    Internal(String),
}

impl AgentError {
    /// Status and code of the response.
    pub(crate) fn status(&self) -> (StatusCode, &'static str) {
        match self {
            AgentError::Rule(error) => {
                (StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error.code())
            }
            AgentError::NoSuchRoute(_) => (StatusCode::NOT_FOUND, "no_such_route"),
            AgentError::DestinationTaken(_) => (StatusCode::CONFLICT, "destination_taken"),
            AgentError::Exhausted(_) => (StatusCode::INSUFFICIENT_STORAGE, "exhausted"),
            AgentError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            AgentError::NotActive { .. } => (StatusCode::MISDIRECTED_REQUEST, "notActive"),
            AgentError::NotReady(_) => (StatusCode::SERVICE_UNAVAILABLE, "notReady"),
            AgentError::Storage(_) => (StatusCode::INTERNAL_SERVER_ERROR, "storage"),
            AgentError::ApiVersion(_) => (StatusCode::BAD_REQUEST, "apiVersion"),
            AgentError::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            AgentError::OutOfSync(_) => (StatusCode::CONFLICT, "outOfSync"),
            AgentError::Rejected(_) => (StatusCode::CONFLICT, "rejected"),
            AgentError::NoSuchPath(_) => (StatusCode::NOT_FOUND, "no_such_path"),
            AgentError::WrongMethod(_) => (StatusCode::METHOD_NOT_ALLOWED, "wrong_method"),
            AgentError::NotJson(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json"),
            AgentError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            AgentError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}
