//! Error kinds of the services' faults.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use serde_json::{Value, json};

use super::{ApiResponse, Cloud, GLOBAL, provider};
use crate::api::octavia;

fn neutron(kind: &str) -> Value {
    json!({"NeutronError": {"type": kind, "message": "words", "detail": ""}})
}

fn octavia_fault(words: &str) -> Value {
    json!({"faultcode": "Client", "faultstring": words, "debuginfo": null})
}

async fn rejected(answer: ApiResponse) -> Error {
    let cloud = Cloud::answering([answer]);
    octavia::LOAD_BALANCERS.create(&provider(&cloud, GLOBAL).session, &Value::Null).await.unwrap_err()
}

#[tokio::test]
async fn status_and_fault_determine_the_error_kind() {
    use ErrorKind::*;
    let table = [
        (409, neutron("OverQuota"), QuotaExceeded),
        (409, neutron("IpAddressGenerationFailure"), QuotaExceeded),
        (400, neutron("ExternalIpAddressExhausted"), QuotaExceeded),
        (400, neutron("RoutesExhausted"), QuotaExceeded),
        (400, neutron("AllowedAddressPairExhausted"), QuotaExceeded),
        (409, neutron("SecurityGroupInUse"), Conflict),
        (403, neutron("PolicyNotAuthorized"), PermissionDenied),
        (404, neutron("SubnetNotFound"), NotFound),
        (412, neutron("RevisionNumberConstraintFailed"), Conflict),
        (400, neutron("HTTPBadRequest"), InvalidConfig),
        (403, octavia_fault("Quota has been met for resources: Load Balancer"), QuotaExceeded),
        (403, octavia_fault("Policy does not allow this request to be performed."), PermissionDenied),
        (409, octavia_fault("Load Balancer l is immutable and cannot be updated."), Conflict),
        (500, octavia_fault("Server error"), Unavailable),
        (
            500,
            octavia_fault("Provider 'amphora' reports error: No more IP addresses available on network n."),
            QuotaExceeded,
        ),
        (429, json!("slow down"), RateLimited),
        (503, json!("<html>"), Unavailable),
        (501, octavia_fault("not here"), Unsupported),
    ];
    for (status, body, kind) in table {
        let error = rejected(ApiResponse::new(status, &body)).await.during("create a load balancer");
        assert_eq!(error.kind(), kind, "{status} {body}");
        assert_eq!(error.retry_advice(), Retry::Backoff, "{status} {body}");
        let text = error.to_string();
        let start = format!("create a load balancer: POST http://octavia/v2.0/lbaas/loadbalancers: HTTP {status}: ");
        assert!(text.starts_with(&start) && text.contains(&body.to_string()), "{text}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured() {
    for (status, value) in [(429, "7"), (413, "7"), (503, " 7 ")] {
        let error = rejected(ApiResponse::new(status, "{}").header("Retry-After", value)).await.during("create");
        assert_eq!(error.retry_advice(), Retry::After(Duration::from_secs(7)), "{status}");
    }
    let soon = (jiff::Timestamp::now() + Duration::from_secs(3600)).to_zoned(jiff::tz::TimeZone::UTC);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&soon.timestamp()).unwrap();
    let error = rejected(ApiResponse::new(429, "{}").header("Retry-After", &date)).await.during("create");
    assert_eq!(error.retry_advice(), Retry::After(Duration::from_secs(300)), "{date}, cut to five minutes");
    for nonsense in ["soon", "-3", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        let error = rejected(ApiResponse::new(429, "{}").header("Retry-After", nonsense)).await.during("create");
        assert_eq!(error.retry_advice(), Retry::Backoff, "{nonsense}");
    }
}

#[tokio::test]
async fn the_html_page_of_a_proxy_is_reported_on_one_truncated_line() {
    let error =
        rejected(ApiResponse::new(502, "<html>\n\t<b>Bad</b>\r\n gateway\u{7}".to_owned() + &"x".repeat(10_000))).await;
    let text = error.to_string();
    assert!(text.contains("HTTP 502: <html> <b>Bad</b> gateway x") && text.len() < 2200, "{text}");
}

/// A fault of the service ends the call; a gateway in front of it does not know.
#[tokio::test]
async fn only_a_fault_of_the_service_means_that_a_call_was_not_executed() {
    let fault = octavia_fault("An unknown exception occurred.");
    let table = [
        (400, json!({}), false),
        (403, fault.clone(), false),
        (409, json!({}), false),
        (429, json!({}), false),
        (500, fault.clone(), false),
        (503, fault, false),
        (500, neutron("HTTPInternalServerError"), false),
        (500, json!("<html>Bad Gateway</html>"), true),
        (502, json!("<html>Bad Gateway</html>"), true),
        (503, json!(""), true),
        (504, json!(""), true),
    ];
    for (status, body, is_open) in table {
        assert_eq!(rejected(ApiResponse::new(status, &body)).await.is_outcome_unknown(), is_open, "{status} {body}");
    }
}
