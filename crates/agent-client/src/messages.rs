//! Requests and replies of the API, and its errors.
//!
//! | code of an error | status | meaning |
//! |---|---|---|
//! | `notActive` | 421 | this agent is not the active one of its group; nothing was executed |
//! | `notReady` | 503 | the agent cannot answer yet; nothing was executed |
//! | `apiVersion` | 400 | the client has another version of the API; nothing was executed |
//! | `forbidden` | 403 | the certificate of the client is not allowed |
//!
//! The codes of the rules about load balancers, addresses and routes are in `errors`, with what a provider makes of them.

use bowline_core::{ClusterName, LoadBalancerKey};
use serde::{Deserialize, Serialize};

use crate::calls::{Change, Query};
use crate::observation::Observation;

/// Header of every request and response of an agent, with the version of the API.
pub const API_HEADER: &str = "bowline-agent-api";

/// Version of the API.
pub const API_VERSION: &str = "1";

/// Codes of errors that an agent returns before it executes anything.
pub mod codes {
    /// The agent is not the active one of its group.
    pub const NOT_ACTIVE: &str = "notActive";
    /// The agent cannot answer yet.
    pub const NOT_READY: &str = "notReady";
    /// The client has another version of the API.
    pub const API_VERSION: &str = "apiVersion";
}

/// Services to observe.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindBalancersRequest {
    /// One query per Service.
    pub asking: Vec<Query>,
}

/// Observations in the order of the request, or the first of them if the response would be too large; the client requests the
/// rest again.
#[derive(Debug, Serialize, Deserialize)]
pub struct FindBalancersReply {
    /// One observation per query.
    pub found: Vec<Observation>,
}

/// Lists the owners of a cluster after this one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnersRequest {
    /// Cluster of the owners.
    pub cluster: ClusterName,
    /// Last owner of the previous page.
    #[serde(default)]
    pub after: Option<LoadBalancerKey>,
    /// Maximum number of owners; the server may return fewer.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// Page of owners, and whether there are more.
#[derive(Debug, Serialize, Deserialize)]
pub struct OwnersReply {
    /// Owners of load balancers and addresses, sorted.
    pub owners: Vec<LoadBalancerKey>,
    /// Whether there are more.
    pub more: bool,
}

/// Change of one resource. The reply is the resulting [`Observation`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Service.
    pub asking: Query,
    /// The change.
    pub change: Change,
}

/// Body of an error response.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorReply {
    /// The error.
    pub error: ErrorBody,
}

/// Code and message of an [`ErrorReply`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// Code, which clients branch on.
    pub code: String,
    /// Message for users.
    pub message: String,
    /// `Retry-After` in milliseconds; the header has whole seconds only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_millis: Option<u64>,
    /// Endpoint of the active agent, with `notActive`, if the agent knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
}
