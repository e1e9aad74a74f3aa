//! Maps errors of the API to provider errors.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{ErrorDecoder, ErrorResponse};

use crate::messages::{API_HEADER, ErrorBody, ErrorReply, codes};

/// Code of this client for a server that is no agent.
pub(crate) const NOT_AN_AGENT: &str = "notAnAgent";

/// Decodes error responses by their code, which is more specific than the HTTP status.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApiErrors;

/// As [`ApiErrors`], for agents, whose responses have a header of their own: a proxy may have sent any other one.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentErrors;

impl ErrorDecoder for ApiErrors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        decode(response, response.json())
    }
}

impl ErrorDecoder for AgentErrors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let is_agent = response.headers().contains_key(API_HEADER);
        decode(response, response.json().filter(|_| is_agent))
    }

    fn tls_advice(&self) -> &'static str {
        "; see caFile, certificateFile and keyFile of the agents"
    }
}

/// Decodes a reply; without one, another server may have responded.
fn decode(response: &ErrorResponse<'_>, reply: Option<ErrorReply>) -> Error {
    let foreign = || ErrorReply { error: ErrorBody { message: response.text(), ..Default::default() } };
    let ErrorBody { code, message, retry_after_millis, .. } = reply.unwrap_or_else(foreign).error;
    let retry_after = retry_after_millis.map(Duration::from_millis).or(response.retry_after());
    by_code(response.status(), &code, &message, retry_after)
}

fn by_code(status: u16, code: &str, message: &str, retry_after: Option<Duration>) -> Error {
    let coded = |kind| Error::new(kind, "call the cloud", message);
    match code {
        "no_such_machine" | "no_such_balancer" | "no_such_address" | "no_such_route" => coded(ErrorKind::NotFound),
        "name_taken" | "foreign" | "address_taken" | "port_taken" | "destination_taken" | "pod_range_taken" => {
            coded(ErrorKind::AlreadyExists)
        }
        // The fix, a rename in the cloud, is visible only to a retry.
        "ambiguous" => coded(ErrorKind::InvalidConfig).retry(Retry::Backoff),
        "busy" => coded(ErrorKind::InProgress).retry(retry_after.map_or(Retry::Backoff, Retry::After)),
        // Executed by no agent, so the outcome is known.
        codes::NOT_ACTIVE | codes::NOT_READY => {
            coded(ErrorKind::Unavailable).retry(retry_after.map_or(Retry::Backoff, Retry::After))
        }
        // An upgrade is visible only to a retry.
        codes::API_VERSION => coded(ErrorKind::InvalidConfig).retry(Retry::Backoff),
        NOT_AN_AGENT => coded(ErrorKind::Unexpected).outcome_unknown(),
        // Another server responds at the endpoint, or the cloud is not up yet.
        _ if matches!(status, 404 | 405) => {
            let message = format!("{message} (HTTP status {status})");
            Error::new(ErrorKind::InvalidConfig, "call the cloud", message).retry(Retry::Backoff)
        }
        _ => Error::from_status("call the cloud", status, message, retry_after),
    }
}

/// Error for an invalid response.
pub fn invalid_response(operation: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unexpected, operation, format!("invalid response: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_the_cloud_has_its_kind_and_retry_advice() {
        let (seconds, rest) = (Duration::from_secs, Duration::from_secs(3));
        let table = [
            (400, "invalid", None, ErrorKind::InvalidConfig, Retry::Never),
            (400, "too_many_keys", None, ErrorKind::InvalidConfig, Retry::Never),
            (401, "injected", None, ErrorKind::Unauthenticated, Retry::Backoff),
            (403, "injected", None, ErrorKind::PermissionDenied, Retry::Backoff),
            (404, "no_such_path", None, ErrorKind::InvalidConfig, Retry::Backoff),
            (405, "", None, ErrorKind::InvalidConfig, Retry::Backoff),
            (408, "", None, ErrorKind::Unavailable, Retry::Backoff),
            (409, "exists", None, ErrorKind::Conflict, Retry::Backoff),
            (409, "in_use", None, ErrorKind::Conflict, Retry::Backoff),
            (409, "changed", None, ErrorKind::Conflict, Retry::Backoff),
            (409, "busy", Some(rest), ErrorKind::InProgress, Retry::After(rest)),
            (409, "name_taken", None, ErrorKind::AlreadyExists, Retry::Never),
            (409, "foreign", None, ErrorKind::AlreadyExists, Retry::Never),
            (409, "address_taken", None, ErrorKind::AlreadyExists, Retry::Never),
            (409, "port_taken", None, ErrorKind::AlreadyExists, Retry::Never),
            (409, "destination_taken", None, ErrorKind::AlreadyExists, Retry::Never),
            (409, "pod_range_taken", None, ErrorKind::AlreadyExists, Retry::Never),
            (409, "ambiguous", None, ErrorKind::InvalidConfig, Retry::Backoff),
            (404, "no_such_balancer", None, ErrorKind::NotFound, Retry::Backoff),
            (404, "no_such_address", None, ErrorKind::NotFound, Retry::Backoff),
            (404, "no_such_machine", None, ErrorKind::NotFound, Retry::Backoff),
            (404, "no_such_route", None, ErrorKind::NotFound, Retry::Backoff),
            (418, "", None, ErrorKind::Unexpected, Retry::Backoff),
            (429, "throttled", None, ErrorKind::RateLimited, Retry::Backoff),
            (429, "throttled", Some(seconds(7)), ErrorKind::RateLimited, Retry::After(seconds(7))),
            (500, "injected", None, ErrorKind::Unavailable, Retry::Backoff),
            (503, "injected", Some(seconds(1)), ErrorKind::Unavailable, Retry::After(seconds(1))),
            (504, "answer_lost", None, ErrorKind::Unavailable, Retry::Backoff),
            (507, "exhausted", None, ErrorKind::QuotaExceeded, Retry::Backoff),
            (599, "", None, ErrorKind::Unavailable, Retry::Backoff),
            (421, "notActive", None, ErrorKind::Unavailable, Retry::Backoff),
            (503, "notReady", Some(rest), ErrorKind::Unavailable, Retry::After(rest)),
            (400, "apiVersion", None, ErrorKind::InvalidConfig, Retry::Backoff),
            (403, "forbidden", None, ErrorKind::PermissionDenied, Retry::Backoff),
            (502, NOT_AN_AGENT, None, ErrorKind::Unexpected, Retry::Backoff),
        ];
        for (status, code, retry_after, kind, retry) in table {
            let error = by_code(status, code, "no", retry_after);
            assert_eq!((error.kind(), error.retry_advice()), (kind, retry), "{status} {code}");
        }
    }
}
