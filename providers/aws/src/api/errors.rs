//! Error responses of AWS: their code decides the kind.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{ErrorDecoder, ErrorResponse};
use serde::Deserialize;

/// Decodes error responses of all query APIs.
pub(crate) struct Errors;

/// Code and message of an error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Cause {
    code: String,
    #[serde(default)]
    message: String,
}

/// Error of EC2: `<Response><Errors><Error>…`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ec2Body {
    errors: Ec2Errors,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ec2Errors {
    error: Cause,
}

/// Error of the other APIs: `<ErrorResponse><Error>…`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OtherBody {
    error: Cause,
}

impl ErrorDecoder for Errors {
    /// A response without a code does not come from an AWS API, so it proves nothing about a resource.
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let Some(cause) = cause(response) else {
            return match response.to_error() {
                error if error.is_not_found() => response.to_error_of(ErrorKind::Unexpected),
                error => error,
            };
        };
        let kind = kind(&cause.code).unwrap_or_else(|| kind_of_status(response.status()));
        // upstream: users search Events for this text.
        let message = format!("api error {}: {}", cause.code, cause.message);
        let error = response.to_error_with(kind, message).with_code(cause.code);
        let error = match response.request_id() {
            Some(id) => error.context("request ID", id),
            None => error,
        };
        match kind {
            // The cause may be outside the Service, such as a security group of a subnet.
            ErrorKind::InvalidConfig => error.retry(Retry::Backoff),
            ErrorKind::RateLimited => throttled(error, response.retry_after()),
            _ => error,
        }
    }

    fn tls_advice(&self) -> &'static str {
        "; the CA certificates are those of the system, or of SSL_CERT_FILE"
    }
}

/// Returns the error of a throttled call, with the delay that AWS requested. AWS rejected the call before it did anything.
fn throttled(error: Error, delay: Option<Duration>) -> Error {
    let error = error.outcome_known();
    match delay {
        Some(delay) => error.retry(Retry::After(delay)),
        None => error,
    }
}

fn cause(response: &ErrorResponse<'_>) -> Option<Cause> {
    let ec2 = || response.xml::<Ec2Body>().map(|body| body.errors.error);
    response.xml::<OtherBody>().map(|body| body.error).or_else(ec2).filter(|cause| !cause.code.is_empty())
}

fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        500.. => ErrorKind::Unavailable,
        429 => ErrorKind::RateLimited,
        _ => ErrorKind::InvalidConfig,
    }
}

/// Kinds of codes that do not follow from a pattern.
const CODES: &[(ErrorKind, &[&str])] = &[
    (
        ErrorKind::RateLimited,
        &[
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "EC2ThrottledException",
            "SlowDown",
            "BandwidthLimitExceeded",
            "PriorRequestNotComplete",
        ],
    ),
    (
        ErrorKind::Unauthenticated,
        &[
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "InvalidClientTokenId",
            "InvalidIdentityToken",
            "InvalidSignatureException",
            "MissingAuthenticationToken",
            "RequestExpired",
            "RequestInTheFuture",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ],
    ),
    (
        ErrorKind::PermissionDenied,
        &[
            "AccessDenied",
            "AccessDeniedException",
            "Blocked",
            "OperationNotPermitted",
            "OptInRequired",
            "PendingVerification",
            "UnauthorizedOperation",
        ],
    ),
    (ErrorKind::AlreadyExists, &["RouteAlreadyExists"]),
    (ErrorKind::NotFound, &["InvalidInstance", "InvalidTarget"]),
    (ErrorKind::Conflict, &["DependencyViolation", "IncorrectState", "ResourceInUse", "ResourceInUseException"]),
    (ErrorKind::QuotaExceeded, &["InsufficientFreeAddressesInSubnet", "InsufficientAddressCapacity"]),
    (ErrorKind::Unsupported, &["InvalidAction", "Unsupported", "UnsupportedOperation"]),
    (
        ErrorKind::Unavailable,
        &["InternalError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable"],
    ),
];

/// Returns the kind of a code; `None` if only the status says something about it.
fn kind(code: &str) -> Option<ErrorKind> {
    if let Some((kind, _)) = CODES.iter().find(|(_, codes)| codes.contains(&code)) {
        return Some(*kind);
    }
    if code.ends_with("NotFound") || code.ends_with("NotFoundException") {
        return Some(ErrorKind::NotFound);
    }
    if code.ends_with(".Duplicate") || code.starts_with("Duplicate") {
        return Some(ErrorKind::AlreadyExists);
    }
    (code.ends_with("LimitExceeded") || code.starts_with("TooMany")).then_some(ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_decides_the_kind() {
        let cases = [
            ("RequestLimitExceeded", Some(ErrorKind::RateLimited)),
            ("RulesPerSecurityGroupLimitExceeded", Some(ErrorKind::QuotaExceeded)),
            ("TooManyLoadBalancers", Some(ErrorKind::QuotaExceeded)),
            ("TooManyRequestsException", Some(ErrorKind::RateLimited)),
            ("InvalidInstanceID.NotFound", Some(ErrorKind::NotFound)),
            ("LoadBalancerNotFound", Some(ErrorKind::NotFound)),
            ("InvalidPermission.Duplicate", Some(ErrorKind::AlreadyExists)),
            ("DuplicateListener", Some(ErrorKind::AlreadyExists)),
            ("DependencyViolation", Some(ErrorKind::Conflict)),
            ("UnauthorizedOperation", Some(ErrorKind::PermissionDenied)),
            ("ExpiredToken", Some(ErrorKind::Unauthenticated)),
            ("InvalidParameterValue", None),
        ];
        for (code, expected) in cases {
            assert_eq!(kind(code), expected, "{code}");
        }
    }

    #[test]
    fn the_error_of_a_throttled_call_carries_the_requested_delay() {
        let error = || Error::new(ErrorKind::RateLimited, "DescribeInstances", "Rate exceeded");
        let delay = Duration::from_secs(9);
        assert_eq!(throttled(error(), Some(delay)).retry_advice(), Retry::After(delay));
        assert_eq!(throttled(error(), None).retry_advice(), Retry::Backoff);
    }
}
