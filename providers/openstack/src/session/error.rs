//! What the faults of the services mean.

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{ErrorDecoder, ErrorResponse};
use serde_json::Value;

/// Reads the faults of Nova, Neutron, Octavia and Barbican.
pub(super) struct Faults;

impl ErrorDecoder for Faults {
    fn decode(&self, refusal: &ErrorResponse<'_>) -> Error {
        let by_fault = refusal.json().and_then(|fault| by_fault(refusal.status(), &fault));
        let is_foreign = !is_fault(&refusal.text());
        let error = match by_fault {
            Some(kind) => refusal.to_error_of(kind),
            // A proxy, or a wrong endpoint, answers 404 as well, and that does not say that the resource is gone.
            None if refusal.status() == 404 && is_foreign => refusal.to_error_of(ErrorKind::Unexpected),
            None => refusal.to_error_of(refusal.to_error().kind()),
        };
        // Rejected requests may be accepted later, without a change here: a network is made, a quota raised.
        let error = match (refusal.retry_after(), refusal.status()) {
            (Some(pause), 413 | 429 | 503) => error.retry(Retry::After(pause)),
            _ => error.retry(Retry::Backoff),
        };
        // A service that answers with a fault, whatever its status, has ended the call; a gateway in front of it knows nothing.
        if refusal.status() >= 500 && is_foreign { error.outcome_unknown() } else { error.answered() }
    }

    fn tls_advice(&self) -> &'static str {
        "; see ca-file, cert-file and key-file in [Global]"
    }
}

/// Faults of Neutron that say that there is no more of something.
const EXHAUSTED: [&str; 7] = [
    "OverQuota",
    "AllowedAddressPairExhausted",
    "RoutesExhausted",
    "IpAddressGenerationFailure",
    "IpAddressGenerationFailureAllSubnets",
    "ExternalIpAddressExhausted",
    "NoMoreIpsException",
];

/// Names in the faults of Octavia, Neutron, Nova and Barbican, the last two for what is not found.
const FAULTS: [&str; 4] = [r#""faultstring""#, r#""NeutronError""#, r#""itemNotFound""#, r#""description""#];

/// Whether a service says this, and not a gateway in front of it. It may have been cut, so it is not parsed.
fn is_fault(body: &str) -> bool {
    // Octavia says in prose that the pool is gone whose members are asked for.
    body.starts_with("404 Bad Request") || body.starts_with('{') && FAULTS.iter().any(|name| body.contains(name))
}

/// What the fault in the body says beyond the status.
fn by_fault(status: u16, fault: &Value) -> Option<ErrorKind> {
    if let Some(kind) = fault.pointer("/NeutronError/type").and_then(Value::as_str) {
        return EXHAUSTED.contains(&kind).then_some(ErrorKind::QuotaExceeded);
    }
    // Octavia's faults have no type: quotas share their status with policies, and what Neutron has no more of is an error of the
    // server. Only a person is told by these words what to look for; either way, it is tried again later.
    let words = fault.get("faultstring").and_then(Value::as_str)?;
    let is_quota = status == 403 && words.starts_with("Quota has been met");
    let is_full = status == 500 && words.contains("No more IP addresses available");
    (is_quota || is_full).then_some(ErrorKind::QuotaExceeded)
}
