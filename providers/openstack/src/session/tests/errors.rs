//! What the services' refusals mean.

use std::time::Duration;

use bowline_cloud::{ErrorKind, Retry};
use bowline_http::{Failure, TlsFailure};
use http::Method;
use serde_json::{Value, json};

use super::{Answer, Cloud, GLOBAL, provider};
use crate::api::octavia;
use crate::session::CallError;

fn neutron(kind: &str) -> Value {
    json!({"NeutronError": {"type": kind, "message": "words", "detail": ""}})
}

fn octavia_fault(words: &str) -> Value {
    json!({"faultcode": "Client", "faultstring": words, "debuginfo": null})
}

async fn refused(answer: Answer) -> CallError {
    let cloud = Cloud::answering([answer]);
    octavia::create_load_balancer(&provider(&cloud, GLOBAL).session, &Value::Null).await.unwrap_err()
}

#[tokio::test]
async fn status_and_fault_decide_what_a_refusal_means() {
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
        let error = refused(Answer::new(status, &body)).await.explain("create a balancer");
        assert_eq!(error.kind(), kind, "{status} {body}");
        assert_eq!(error.retry_advice(), Retry::Backoff, "{status} {body}");
        let text = error.to_string();
        let start = format!("create a balancer: POST http://octavia/v2.0/lbaas/loadbalancers: HTTP {status}: ");
        assert!(text.starts_with(&start) && text.contains(&body.to_string()), "{text}");
    }
}

#[tokio::test]
async fn a_wish_to_be_left_alone_is_heard() {
    for (status, value) in [(429, "7"), (413, "7"), (503, " 7 ")] {
        let error = refused(Answer::new(status, "{}").header("Retry-After", value)).await.explain("create");
        assert_eq!(error.retry_advice(), Retry::After(Duration::from_secs(7)), "{status}");
    }
    let soon = (jiff::Timestamp::now() + Duration::from_secs(3600)).to_zoned(jiff::tz::TimeZone::UTC);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&soon.timestamp()).unwrap();
    let error = refused(Answer::new(429, "{}").header("Retry-After", &date)).await.explain("create");
    assert!(matches!(error.retry_advice(), Retry::After(wait) if wait > Duration::from_secs(3000)), "{date}");
    for nonsense in ["soon", "-3", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        let error = refused(Answer::new(429, "{}").header("Retry-After", nonsense)).await.explain("create");
        assert_eq!(error.retry_advice(), Retry::Backoff, "{nonsense}");
    }
}

#[tokio::test]
async fn a_page_of_a_proxy_is_told_on_one_line_and_not_for_ever() {
    let error =
        refused(Answer::new(502, "<html>\n\t<b>Bad</b>\r\n gateway\u{7}".to_owned() + &"x".repeat(10_000))).await;
    let text = error.to_string();
    assert!(text.contains("HTTP 502: <html> <b>Bad</b> gateway x") && text.len() < 2200, "{text}");
}

#[test]
fn who_cannot_show_who_it_is_is_a_matter_of_configuration() {
    let told = |failure: Failure| CallError::unreachable(&Method::GET, "https://c/", &failure).explain("ask");
    for why in [TlsFailure::UnknownIssuer, TlsFailure::Expired, TlsFailure::WrongName, TlsFailure::Refused("x".into())]
    {
        let error = told(Failure::Tls(why));
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
        assert!(error.to_string().contains("see ca-file"), "{error}");
    }
    for failure in [Failure::Connect("refused".into()), Failure::Timeout(Duration::from_secs(1))] {
        assert_eq!(told(failure).kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn a_question_about_a_hundred_servers_leaves_room_for_what_came_of_it() {
    let url = format!("http://neutron/v2.0/ports?{}", "device_id=4e6e2b9a-6b8c-4a2f-9d3e-1f0a5c7b8d90&".repeat(100));
    let answer = http::Response::builder().status(500).body("the database is gone".into()).unwrap();
    let text = CallError::answered(&Method::GET, &url, &answer).explain("find instances").to_string();
    assert!(text.starts_with("find instances: GET http://neutron/v2.0/ports?device_id=4e6e"), "{text}");
    assert!(text.ends_with("…: HTTP 500: the database is gone"), "{text}");
}

#[test]
fn a_password_in_a_url_of_the_catalog_is_not_told() {
    let table = [
        ("http://u:p%40ss@nova/servers", "http://nova/servers"),
        ("http://u:p@ss@nova:8774?a=b@c", "http://nova:8774?a=b@c"),
        ("http://nova/servers/a@b", "http://nova/servers/a@b"),
        ("http://nova", "http://nova"),
    ];
    for (url, shown) in table {
        let error = CallError::unreachable(&Method::GET, url, &Failure::Connect("refused".into()));
        assert!(error.to_string().starts_with(&format!("GET {shown}: ")), "{url}: {error}");
    }
}
