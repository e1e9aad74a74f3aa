//! Decodes the faults of the services.

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{ErrorDecoder, ErrorResponse};
use serde_json::Value;

/// Decodes the faults of Nova, Neutron, Octavia and Barbican.
pub(super) struct Faults;

impl ErrorDecoder for Faults {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let by_fault = response.json().and_then(|fault| by_fault(response.status(), &fault));
        let is_foreign = !is_fault(&response.text());
        let error = match by_fault {
            Some(kind) => response.to_error_of(kind),
            // A proxy or a wrong endpoint answers 404 as well, which does not mean that the resource is deleted.
            None if response.status() == 404 && is_foreign => response.to_error_of(ErrorKind::Unexpected),
            None => response.to_error_of(response.to_error().kind()),
        };
        // Rejected requests may be accepted later without a change of the request: a network is created, a quota raised.
        let error = match (response.retry_after(), response.status()) {
            (Some(pause), 413 | 429 | 503) => error.retry(Retry::After(pause)),
            _ => error.retry(Retry::Backoff),
        };
        // A fault of the service, whatever its status, means that the call has ended; a gateway in front of it does not know.
        if response.status() >= 500 && is_foreign { error.outcome_unknown() } else { error.outcome_known() }
    }

    fn tls_advice(&self) -> &'static str {
        "; see ca-file, cert-file and key-file in [Global]"
    }
}

/// Neutron fault types for exhausted resources.
const EXHAUSTED: [&str; 7] = [
    "OverQuota",
    "AllowedAddressPairExhausted",
    "RoutesExhausted",
    "IpAddressGenerationFailure",
    "IpAddressGenerationFailureAllSubnets",
    "ExternalIpAddressExhausted",
    "NoMoreIpsException",
];

/// Fields in the faults of Octavia, Neutron, Nova and Barbican, the last two for missing resources.
const FAULTS: [&str; 4] = [r#""faultstring""#, r#""NeutronError""#, r#""itemNotFound""#, r#""description""#];

/// Returns whether the service sent this, not a gateway in front of it. The body may be truncated, so it is not parsed.
fn is_fault(body: &str) -> bool {
    // Octavia answers in plain text if the pool of a member listing does not exist.
    body.starts_with("404 Bad Request") || body.starts_with('{') && FAULTS.iter().any(|name| body.contains(name))
}

/// Returns the error kind that the fault implies beyond the status.
fn by_fault(status: u16, fault: &Value) -> Option<ErrorKind> {
    if let Some(kind) = fault.pointer("/NeutronError/type").and_then(Value::as_str) {
        return EXHAUSTED.contains(&kind).then_some(ErrorKind::QuotaExceeded);
    }
    // Octavia faults have no type: quotas share their status with policies, and exhausted addresses in Neutron are internal errors.
    // The kind only helps the reader of the message; the call is retried either way.
    let words = fault.get("faultstring").and_then(Value::as_str)?;
    let is_quota = status == 403 && words.starts_with("Quota has been met");
    let is_full = status == 500 && words.contains("No more IP addresses available");
    (is_quota || is_full).then_some(ErrorKind::QuotaExceeded)
}
