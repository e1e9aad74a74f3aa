//! What goes wrong between us and the cloud, and what that means in terms of the contract.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};

/// What goes wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The cloud refuses.
    #[error("{message} ({status} {code})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// For programs.
        code: String,
        /// For people.
        message: String,
        /// When to come back, if the cloud said so.
        retry_after: Option<Duration>,
    },
    /// The cloud cannot be reached.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The cloud does not answer.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The cloud answers something that makes no sense.
    #[error("the answer makes no sense: {0}")]
    Garbled(String),
    /// This is no address of a cloud.
    #[error("{0}")]
    BadEndpoint(String),
}

impl CallError {
    /// The same in terms of the contract; `operation` is what was being done.
    pub(crate) fn explain(self, operation: &str) -> Error {
        let error = Error::new(self.kind(), operation, self.to_string());
        match self {
            CallError::Refused { retry_after: Some(after), .. } => error.retry(Retry::After(after)),
            _ => error,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            CallError::Refused { status, code, .. } => kind_of(*status, code),
            CallError::Unreachable(_) | CallError::TimedOut(_) => ErrorKind::Unavailable,
            CallError::Garbled(_) => ErrorKind::Unexpected,
            CallError::BadEndpoint(_) => ErrorKind::InvalidConfig,
        }
    }
}

/// What a refused `find` or `list` means. A 404 is no statement about a machine: those calls answer 200 and say "missing".
fn kind_of(status: u16, code: &str) -> ErrorKind {
    match (status, code) {
        (400, "too_many_keys") => ErrorKind::InvalidConfig,
        (401, _) => ErrorKind::Unauthenticated,
        (403, _) => ErrorKind::PermissionDenied,
        // Something answers there that is not this cloud.
        (404 | 405, _) => ErrorKind::InvalidConfig,
        (409, _) => ErrorKind::Conflict,
        (429, _) => ErrorKind::RateLimited,
        (408 | 500..=599, _) => ErrorKind::Unavailable,
        _ => ErrorKind::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, retry_after: Option<Duration>) -> CallError {
        CallError::Refused { status, code: code.to_owned(), message: "no".to_owned(), retry_after }
    }

    #[test]
    fn every_answer_of_the_cloud_has_its_kind_and_advice() {
        let seconds = Duration::from_secs;
        let table = [
            (refused(400, "invalid", None), ErrorKind::Unexpected, Retry::Backoff),
            (refused(400, "too_many_keys", None), ErrorKind::InvalidConfig, Retry::Never),
            (refused(401, "injected", None), ErrorKind::Unauthenticated, Retry::Backoff),
            (refused(403, "injected", None), ErrorKind::PermissionDenied, Retry::Backoff),
            (refused(404, "no_such_path", None), ErrorKind::InvalidConfig, Retry::Never),
            (refused(405, "", None), ErrorKind::InvalidConfig, Retry::Never),
            (refused(408, "", None), ErrorKind::Unavailable, Retry::Backoff),
            (refused(409, "exists", None), ErrorKind::Conflict, Retry::Backoff),
            (refused(418, "", None), ErrorKind::Unexpected, Retry::Backoff),
            (refused(429, "throttled", None), ErrorKind::RateLimited, Retry::Backoff),
            (refused(429, "throttled", Some(seconds(7))), ErrorKind::RateLimited, Retry::After(seconds(7))),
            (refused(500, "injected", None), ErrorKind::Unavailable, Retry::Backoff),
            (refused(503, "injected", Some(seconds(1))), ErrorKind::Unavailable, Retry::After(seconds(1))),
            (refused(599, "", None), ErrorKind::Unavailable, Retry::Backoff),
            (CallError::Unreachable("refused".to_owned()), ErrorKind::Unavailable, Retry::Backoff),
            (CallError::TimedOut(seconds(30)), ErrorKind::Unavailable, Retry::Backoff),
            (CallError::Garbled("eof".to_owned()), ErrorKind::Unexpected, Retry::Backoff),
            (CallError::BadEndpoint("ftp".to_owned()), ErrorKind::InvalidConfig, Retry::Never),
        ];
        for (error, kind, retry) in table {
            let explained = error.clone().explain("find instances");
            assert_eq!((explained.kind(), explained.retry_advice()), (kind, retry), "{error}");
        }
    }
}
