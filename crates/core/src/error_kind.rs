//! Kinds of errors, and when trying again makes sense: what every part of the manager branches on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What callers branch on. Nothing branches on the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// What the operation was about does not exist. For instances this is an answer
    /// ([`Gone`](crate::InstanceState::Gone)), not an error; as an error it says that something *needed* is missing.
    NotFound,
    /// A thing of that name exists and is not ours.
    AlreadyExists,
    /// Another client changed the resource since it was read; observe it again.
    Conflict,
    /// The cloud wants fewer calls.
    RateLimited,
    /// The account may have no more of these.
    QuotaExceeded,
    /// The credentials are missing, wrong or expired.
    Unauthenticated,
    /// The credentials are right and do not suffice.
    PermissionDenied,
    /// The configuration or an annotation is wrong.
    InvalidConfig,
    /// The cloud, or this provider, cannot do that at all.
    Unsupported,
    /// Another component does this here; that is a success without a result.
    ImplementedElsewhere,
    /// It is being done and takes a while.
    InProgress,
    /// The cloud does not answer, or answers that it is broken.
    Unavailable,
    /// We stopped waiting, because we are stopping.
    Cancelled,
    /// The cloud answered something that we do not understand. Never taken for "there is none".
    Unexpected,
}

/// When trying again makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Later and later.
    Backoff,
    /// The cloud said when.
    After(Duration),
    /// Only after something has changed: the object, the configuration, the account.
    Never,
}

impl ErrorKind {
    /// As a metric label and log field.
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

    /// The same call may succeed a moment later, so it is worth a retry.
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::RateLimited | ErrorKind::Unavailable)
    }

    /// The cloud understood the call and rejects it, now and on a retry: a step that is
    /// [dispensable](crate::Step::dispensable) is left out then.
    pub fn is_refusal(self) -> bool {
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

    /// What a person can do about it, as a sentence; empty where waiting is all.
    pub fn advice(self) -> &'static str {
        match self {
            ErrorKind::Unauthenticated => "Check the provider's credentials: they are missing, wrong or expired.",
            ErrorKind::PermissionDenied => "Give the provider's credentials the right to do this.",
            ErrorKind::InvalidConfig => {
                "Correct what it complains about: in the object, or in the provider's configuration."
            }
            ErrorKind::QuotaExceeded => {
                "Raise the account's quota, or free some of it; where addresses have run out, the subnet needs more."
            }
            _ => "",
        }
    }

    /// What is advised unless the provider knows better.
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
