//! Error kinds and retry advice, on which every part of the manager branches.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Kind of an error. Callers branch on it, never on the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A resource that the operation needs does not exist. A missing instance is not an error but a result
    /// ([`Gone`](crate::InstanceState::Gone)).
    NotFound,
    /// A resource of that name exists and belongs to another owner.
    AlreadyExists,
    /// Another client changed the resource since it was read. Observe it again before the next write.
    Conflict,
    /// The cloud throttles the client: too many calls in too short a time.
    RateLimited,
    /// The quota of the account is used up.
    QuotaExceeded,
    /// The credentials are missing, wrong or expired.
    Unauthenticated,
    /// The credentials are valid but lack the permission.
    PermissionDenied,
    /// The configuration or an annotation is invalid.
    InvalidConfig,
    /// The cloud, or this provider, does not support the operation.
    Unsupported,
    /// Another component is responsible for the operation. Callers treat this as success without a result.
    ImplementedElsewhere,
    /// The operation has started and is still running.
    InProgress,
    /// The cloud is unreachable, or reports an internal error.
    Unavailable,
    /// The operation was abandoned because the process is shutting down.
    Cancelled,
    /// The cloud returned a response that the provider does not understand. It never counts as "not found".
    Unexpected,
}

/// Retry advice of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Retry with exponential back-off.
    Backoff,
    /// Retry after this delay, as requested by the cloud.
    After(Duration),
    /// Do not retry until the object, the configuration or the account has changed.
    Never,
}

impl ErrorKind {
    /// Returns the value of the metric label and log field for this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not_found",
            ErrorKind::AlreadyExists => "already_exists",
            ErrorKind::Conflict => "conflict",
            ErrorKind::RateLimited => "rate_limited",
            ErrorKind::QuotaExceeded => "quota_exceeded",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::InvalidConfig => "invalid_config",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::ImplementedElsewhere => "implemented_elsewhere",
            ErrorKind::InProgress => "in_progress",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Unexpected => "unexpected",
        }
    }

    /// Returns whether the same call may succeed a moment later, so that an immediate retry is worthwhile.
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::RateLimited | ErrorKind::Unavailable)
    }

    /// Returns whether the cloud understood the call and rejected it, and would reject a retry as well. A
    /// [best-effort](crate::Step::best_effort) step is then skipped.
    pub fn is_rejection(self) -> bool {
        matches!(
            self,
            ErrorKind::NotFound
                | ErrorKind::AlreadyExists
                | ErrorKind::QuotaExceeded
                | ErrorKind::PermissionDenied
                | ErrorKind::InvalidConfig
                | ErrorKind::Unsupported
        )
    }

    /// Returns one sentence with the remedy for an operator; empty if there is nothing to do but wait.
    pub fn advice(self) -> &'static str {
        match self {
            ErrorKind::Unauthenticated => "Check the provider's credentials: they are missing, wrong or expired.",
            ErrorKind::PermissionDenied => "Grant the provider's credentials the permission for this operation.",
            ErrorKind::InvalidConfig => "Correct the invalid value in the object or in the provider's configuration.",
            ErrorKind::QuotaExceeded => {
                "Raise the account's quota or free some of it; if the subnet is out of addresses, enlarge it or add one."
            }
            _ => "",
        }
    }

    /// Returns the message as a sentence, followed by the [advice](ErrorKind::advice). The message may have its period already, as
    /// those of many clouds do.
    pub fn with_advice(self, message: &str) -> String {
        format!("{}. {}", message.trim_end_matches('.'), self.advice()).trim_end().to_owned()
    }

    /// Returns the retry advice for errors whose provider gives none.
    pub fn default_retry(self) -> Retry {
        match self {
            ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::RateLimited
            | ErrorKind::QuotaExceeded
            | ErrorKind::Unauthenticated
            | ErrorKind::PermissionDenied
            | ErrorKind::InProgress
            | ErrorKind::Unavailable
            | ErrorKind::Unexpected => Retry::Backoff,
            ErrorKind::AlreadyExists
            | ErrorKind::InvalidConfig
            | ErrorKind::Unsupported
            | ErrorKind::ImplementedElsewhere
            | ErrorKind::Cancelled => Retry::Never,
        }
    }
}
