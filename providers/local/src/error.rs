//! What goes wrong between us and the cloud, and what that means in terms of the contract.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};

/// What goes wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The cloud refuses.
    #[error("{message} (HTTP status {status})")]
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
        let as_it_is = |kind| Error::new(kind, operation, self.to_string());
        match &self {
            // Something answers there that is not this cloud, or not yet. It is no statement about a machine: `find` and
            // `list` answer 200 and say "missing".
            CallError::Refused { status: 404 | 405, .. } => as_it_is(ErrorKind::InvalidConfig).retry(Retry::Backoff),
            CallError::Refused { status, message, retry_after, .. } => {
                Error::from_status(operation, *status, message, *retry_after)
            }
            CallError::Unreachable(_) | CallError::TimedOut(_) => as_it_is(ErrorKind::Unavailable),
            CallError::Garbled(_) => as_it_is(ErrorKind::Unexpected),
            CallError::BadEndpoint(_) => as_it_is(ErrorKind::InvalidConfig),
        }
    }

    /// The same for calls about balancers, where the cloud says more in its codes than statuses can.
    pub(crate) fn explain_balancer(self, operation: &str) -> Error {
        let CallError::Refused { code, message, retry_after, .. } = &self else { return self.explain(operation) };
        let kind = match code.as_str() {
            "name_taken" | "foreign" | "address_taken" | "port_taken" => ErrorKind::AlreadyExists,
            // It was there when the plan was made.
            "no_such_balancer" | "no_such_address" => ErrorKind::Conflict,
            "busy" => ErrorKind::InProgress,
            _ => return self.explain(operation),
        };
        let error = Error::new(kind, operation, message.as_str());
        match retry_after {
            Some(rest) if kind == ErrorKind::InProgress => error.retry(Retry::After(*rest)),
            _ => error,
        }
    }

    /// The same for calls about routes and pod ranges.
    pub(crate) fn explain_route(self, operation: &str) -> Error {
        let CallError::Refused { code, message, .. } = &self else { return self.explain(operation) };
        let explained = |kind| Error::new(kind, operation, message.as_str());
        match code.as_str() {
            "no_such_machine" | "no_such_route" => explained(ErrorKind::NotFound),
            "destination_taken" | "pod_range_taken" => explained(ErrorKind::AlreadyExists),
            // Renaming happens in the cloud, where we see it only by trying again.
            "ambiguous" => explained(ErrorKind::InvalidConfig).retry(Retry::Backoff),
            _ => self.explain(operation),
        }
    }

    /// What the call was about is not there.
    pub(crate) fn is_missing(&self) -> bool {
        const MISSING: [&str; 3] = ["no_such_balancer", "no_such_address", "no_such_route"];
        matches!(self, CallError::Refused { code, .. } if MISSING.contains(&code.as_str()))
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
            (refused(400, "invalid", None), ErrorKind::InvalidConfig, Retry::Never),
            (refused(400, "too_many_keys", None), ErrorKind::InvalidConfig, Retry::Never),
            (refused(401, "injected", None), ErrorKind::Unauthenticated, Retry::Backoff),
            (refused(403, "injected", None), ErrorKind::PermissionDenied, Retry::Backoff),
            (refused(404, "no_such_path", None), ErrorKind::InvalidConfig, Retry::Backoff),
            (refused(405, "", None), ErrorKind::InvalidConfig, Retry::Backoff),
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

    #[test]
    fn what_the_cloud_says_of_balancers_has_its_kind_and_advice() {
        let rest = Duration::from_secs(3);
        let table = [
            (refused(409, "name_taken", None), ErrorKind::AlreadyExists, Retry::Never),
            (refused(409, "foreign", None), ErrorKind::AlreadyExists, Retry::Never),
            (refused(409, "address_taken", None), ErrorKind::AlreadyExists, Retry::Never),
            (refused(409, "port_taken", None), ErrorKind::AlreadyExists, Retry::Never),
            (refused(409, "busy", Some(rest)), ErrorKind::InProgress, Retry::After(rest)),
            (refused(409, "in_use", None), ErrorKind::Conflict, Retry::Backoff),
            (refused(409, "changed", None), ErrorKind::Conflict, Retry::Backoff),
            (refused(404, "no_such_balancer", None), ErrorKind::Conflict, Retry::Backoff),
            (refused(404, "no_such_address", None), ErrorKind::Conflict, Retry::Backoff),
            (refused(404, "no_such_path", None), ErrorKind::InvalidConfig, Retry::Backoff),
            (refused(507, "exhausted", None), ErrorKind::QuotaExceeded, Retry::Backoff),
            (refused(504, "answer_lost", None), ErrorKind::Unavailable, Retry::Backoff),
            (CallError::TimedOut(rest), ErrorKind::Unavailable, Retry::Backoff),
        ];
        for (error, kind, retry) in table {
            let explained = error.clone().explain_balancer("change a balancer");
            assert_eq!((explained.kind(), explained.retry_advice()), (kind, retry), "{error}");
        }
    }

    #[test]
    fn what_the_cloud_says_of_routes_and_pod_ranges_has_its_kind_and_advice() {
        let rest = Duration::from_secs(3);
        let table = [
            (refused(404, "no_such_machine", None), ErrorKind::NotFound, Retry::Backoff),
            (refused(404, "no_such_route", None), ErrorKind::NotFound, Retry::Backoff),
            (refused(404, "no_such_path", None), ErrorKind::InvalidConfig, Retry::Backoff),
            (refused(409, "destination_taken", None), ErrorKind::AlreadyExists, Retry::Never),
            (refused(409, "pod_range_taken", None), ErrorKind::AlreadyExists, Retry::Never),
            (refused(409, "ambiguous", None), ErrorKind::InvalidConfig, Retry::Backoff),
            (refused(507, "exhausted", None), ErrorKind::QuotaExceeded, Retry::Backoff),
            (refused(429, "throttled", Some(rest)), ErrorKind::RateLimited, Retry::After(rest)),
            (CallError::TimedOut(rest), ErrorKind::Unavailable, Retry::Backoff),
        ];
        for (error, kind, retry) in table {
            let explained = error.clone().explain_route("create route");
            assert_eq!((explained.kind(), explained.retry_advice()), (kind, retry), "{error}");
        }
    }
}
