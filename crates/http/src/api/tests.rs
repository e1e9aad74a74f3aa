//! Tests of calls against an in-process cloud.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use bowline_cloud::calls::Effect;
use bowline_cloud::{CallPolicy, Error, ErrorKind, Result, Retry};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::{Handler, RequestError};

/// Returns prepared responses in order, and records requests.
#[derive(Default)]
struct Cloud {
    responses: Mutex<Vec<std::result::Result<Response<Bytes>, RequestError>>>,
    requests: Mutex<Vec<Request<Bytes>>>,
}

#[async_trait]
impl Handler for Cloud {
    async fn handle(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, RequestError> {
        self.requests.lock().unwrap().push(request);
        let mut responses = self.responses.lock().unwrap();
        if responses.is_empty() { Ok(Response::new(Bytes::from_static(b"{}"))) } else { responses.remove(0) }
    }
}

impl Cloud {
    fn responding(
        responses: impl IntoIterator<Item = std::result::Result<Response<Bytes>, RequestError>>,
    ) -> Arc<Cloud> {
        Arc::new(Cloud { responses: Mutex::new(responses.into_iter().collect()), requests: Mutex::default() })
    }

    fn api(self: &Arc<Cloud>) -> Api {
        let client = Client::in_process(self.clone(), Duration::from_secs(5));
        Api::new(client, &Calls::new(CallPolicy::default()), "compute").base("http://cloud.example/v2/")
    }

    fn urls(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.uri().to_string()).collect()
    }

    fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn headers(&self, name: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .map(|request| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned())
            .collect()
    }
}

fn response(status: u16, body: &str) -> std::result::Result<Response<Bytes>, RequestError> {
    Ok(Response::builder().status(status).body(body.to_owned().into()).unwrap())
}

fn with_header(status: u16, name: &str, value: &str) -> std::result::Result<Response<Bytes>, RequestError> {
    Ok(Response::builder().status(status).header(name, value).body(Bytes::from_static(b"why")).unwrap())
}

async fn get(api: &Api) -> Result<ApiResponse> {
    api.call("server_get", Method::GET, &["servers"]).send().await
}

// ---- requests

#[tokio::test(start_paused = true)]
async fn paths_and_queries_are_escaped() {
    let cloud = Cloud::responding([]);
    let call = cloud.api();
    let call = call.call("server_get", Method::GET, &["servers", "a/b c?ä"]);
    call.query(&[("name", "a&b"), ("x", "1 2")]).query(&[("y", "")]).send().await.unwrap();
    assert_eq!(cloud.urls(), ["http://cloud.example/v2/servers/a%2Fb%20c%3F%C3%A4?name=a%26b&x=1+2&y="]);
}

#[tokio::test(start_paused = true)]
async fn a_colon_in_a_path_segment_stays_literal() {
    let cloud = Cloud::responding([]);
    cloud.api().call("tag_get", Method::GET, &["tags", "k8s:a b", "resources"]).send().await.unwrap();
    assert_eq!(cloud.urls(), ["http://cloud.example/v2/tags/k8s:a%20b/resources"]);
}

#[tokio::test(start_paused = true)]
async fn a_dot_segment_is_rejected() {
    let cloud = Cloud::responding([]);
    for bad in ["", ".", ".."] {
        let error = cloud.api().call("server_get", Method::GET, &["servers", bad]).send().await.unwrap_err();
        assert_eq!(error.to_string(), format!("server_get: {bad:?} is not a valid ID"));
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!(cloud.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn bodies_have_a_content_type() {
    let cloud = Cloud::responding([]);
    let api = cloud.api();
    let post = || api.call("server_create", Method::POST, &["servers"]);
    post().json(&json!({"a": 1})).send().await.unwrap();
    post().form(&[("Action", "a b")]).send().await.unwrap();
    post().send().await.unwrap();
    let bodies: Vec<_> = cloud.requests.lock().unwrap().iter().map(|request| request.body().clone()).collect();
    assert_eq!(bodies, [&b"{\"a\":1}"[..], b"Action=a+b", b""]);
    assert_eq!(cloud.headers("content-type"), ["application/json", "application/x-www-form-urlencoded", ""]);
    assert_eq!(cloud.headers("accept-encoding"), [""; 3], "a compressed response could unpack to any size");
}

// ---- responses

#[tokio::test(start_paused = true)]
async fn a_resource_is_read_from_its_field() {
    let body = r#"{"server": {"id": 7, "name": null}, "links": null}"#;
    let cloud = Cloud::responding([response(200, body), response(200, body), response(200, "[]")]);
    let answer = get(&cloud.api()).await.unwrap();
    let mut fields = answer.fields().unwrap();
    assert_eq!(fields.take_or_default::<Value>("links").unwrap(), Value::Null);
    assert_eq!(fields.take::<Value>("server").unwrap(), json!({"id": 7}));
    let error = get(&cloud.api()).await.unwrap().field::<Vec<u8>>("servers").unwrap_err();
    assert!(error.is_outcome_unknown() && error.to_string().contains("missing field `servers`"), "{error}");
    assert!(get(&cloud.api()).await.unwrap().field::<Value>("server").is_err(), "a list has no fields");
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_of_the_api_is_a_success_without_a_result() {
    let cloud = Cloud::responding([response(204, ""), response(200, "{}"), response(200, "<html>")]);
    for expected in [true, true, false] {
        assert_eq!(get(&cloud.api()).await.unwrap().without_result().is_ok(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_does_not_exist_is_not_found_and_other_errors_stay() {
    let cloud = Cloud::responding([response(404, "{}"), response(200, "{}"), response(403, "{}")]);
    let api = cloud.api();
    let find = async || api.call("server_get", Method::GET, &["servers", "a"]).find().await;
    assert!(find().await.unwrap().is_none());
    assert!(find().await.unwrap().is_some());
    assert_eq!(find().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[derive(Debug, PartialEq, Deserialize)]
struct Item {
    id: String,
}

#[tokio::test(start_paused = true)]
async fn responses_are_decoded_as_json_and_xml() {
    let cloud = Cloud::responding([response(200, r#"{"id": "a"}"#), response(200, "<Item><id>b</id></Item>")]);
    let api = cloud.api();
    assert_eq!(get(&api).await.unwrap().json::<Item>().unwrap(), Item { id: "a".to_owned() });
    assert_eq!(get(&api).await.unwrap().xml::<Item>().unwrap(), Item { id: "b".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn an_invalid_response_is_an_error_with_an_unknown_outcome() {
    for body in [
        &b"{\"id\": \"\xff\"}"[..],
        b"",
        b"<html>",
        b"{\"id\": \"a\"",
        b"[[[[",
        b"<Item><id>b</id>",
        &b"[".repeat(100_000),
    ] {
        let body = Bytes::copy_from_slice(body);
        let cloud = Cloud::responding([Ok(Response::new(body.clone())), Ok(Response::new(body))]);
        let api = cloud.api();
        for error in
            [get(&api).await.unwrap().json::<Item>().unwrap_err(), get(&api).await.unwrap().xml::<Item>().unwrap_err()]
        {
            assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unexpected, true));
            assert!(error.message().starts_with("GET http://cloud.example/v2/servers: invalid response: "), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn xml_entities_are_not_expanded() {
    let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Item><id>&b;</id></Item>"#;
    let cloud = Cloud::responding([response(200, bomb)]);
    assert!(get(&cloud.api()).await.unwrap().xml::<Item>().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_error_contains_call_status_body_and_request_id() {
    let responses =
        [with_header(409, "x-openstack-request-id", "req-7"), response(404, "{\n \"a\":\t1 }"), response(404, "")];
    let cloud = Cloud::responding(responses);
    let api = cloud.api();
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(get(&api).await.unwrap_err().to_string());
    }
    assert_eq!(
        texts,
        [
            "server_get: GET http://cloud.example/v2/servers: HTTP 409: why (request=req-7)",
            "server_get: GET http://cloud.example/v2/servers: HTTP 404: { \"a\": 1 }",
            "server_get: GET http://cloud.example/v2/servers: HTTP 404",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_not_followed_and_its_host_is_named() {
    let cloud = Cloud::responding([
        with_header(302, "location", "https://sailor:s3cret@elsewhere.example/x?token=1"),
        with_header(307, "location", "/x"),
    ]);
    let api = cloud.api();
    for host in ["elsewhere.example", "the same host"] {
        let error = get(&api).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert!(error.message().ends_with(&format!("redirects are not followed; this one leads to {host}")), "{error}");
    }
    assert_eq!(cloud.request_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn url_credentials_are_hidden_and_long_urls_are_truncated() {
    let cloud = Cloud::responding([response(404, "")]);
    let api = cloud.api().base("http://sailor:s3cret@cloud.example");
    let long = "x".repeat(1000);
    let error = api.call("server_get", Method::GET, &[&long]).send().await.unwrap_err();
    assert!(!error.to_string().contains("s3cret") && error.message().len() < 300, "{error}");
}

// ---- retries

#[tokio::test(start_paused = true)]
async fn the_effect_determines_whether_a_call_is_retried() {
    let table = [
        (Method::GET, None, 2),
        (Method::PUT, None, 2),
        (Method::DELETE, None, 2),
        (Method::POST, None, 1),
        (Method::PATCH, None, 1),
        (Method::POST, Some(Effect::Read), 2),
        (Method::PUT, Some(Effect::Write), 1),
    ];
    for (method, effect, attempts) in table {
        for error in [
            response(502, "bad gateway"),
            Err(RequestError::Timeout(Duration::from_secs(5))),
            Err(RequestError::Broken(String::new())),
        ] {
            let cloud = Cloud::responding([error]);
            let api = cloud.api();
            let call = api.call("server_x", method.clone(), &["servers"]);
            let call = match effect {
                Some(effect) => call.effect(effect),
                None => call,
            };
            assert_eq!(
                (call.send().await.is_ok(), cloud.request_count()),
                (attempts == 2, attempts),
                "{method} {effect:?}"
            );
        }
        let cloud =
            Cloud::responding([Err(RequestError::Connect("no".to_owned())), with_header(429, "retry-after", "1")]);
        let api = cloud.api();
        assert!(api.call("server_x", method, &["servers"]).send().await.is_ok(), "neither was executed");
        assert_eq!(cloud.request_count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_or_encoded_is_not_retried() {
    for error in [RequestError::TooLarge(64 << 20), RequestError::Encoded("gzip".to_owned())] {
        let cloud = Cloud::responding([Err(error)]);
        assert_eq!(get(&cloud.api()).await.unwrap_err().kind(), ErrorKind::Unexpected);
        assert_eq!(cloud.request_count(), 1);
    }
}

// ---- credentials and error decoders

/// Current token, and the number of times that it can be renewed.
struct Tokens(AtomicUsize, usize);

#[async_trait]
impl Authorize for Tokens {
    async fn base(&self) -> Result<Option<String>> {
        Ok(Some("http://catalog.example".to_owned()))
    }

    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        request.headers_mut().insert("x-token", self.0.load(SeqCst).into());
        Ok(())
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        assert!(rejection.request.headers().contains_key("x-token"));
        Ok(self.0.fetch_add(1, SeqCst) < self.1)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_401_a_call_is_repeated_once_with_renewed_credentials() {
    for (rejections, renewals, tokens) in [(1, 9, vec!["0", "1"]), (9, 9, vec!["0", "1"]), (9, 0, vec!["0"])] {
        let cloud = Cloud::responding((0..rejections).map(|_| response(401, "")));
        let api = cloud.api().authorize(Tokens(AtomicUsize::new(0), renewals));
        let outcome = api.call("server_create", Method::POST, &["servers"]).send().await;
        assert_eq!(outcome.is_ok(), rejections == 1);
        assert_eq!(cloud.headers("x-token"), tokens);
        assert_eq!(cloud.urls()[0], "http://catalog.example/servers");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_kind_unauthenticated_has_the_same_effect_as_a_401() {
    struct Expired;
    impl ErrorDecoder for Expired {
        fn decode(&self, response: &ErrorResponse<'_>) -> Error {
            let is_expired = response.text().contains("expired");
            if is_expired { response.to_error_of(ErrorKind::Unauthenticated) } else { response.to_error() }
        }
    }
    for (text, tokens) in [("expired", vec!["0", "1"]), ("forbidden", vec!["0"])] {
        let cloud = Cloud::responding([response(403, text)]);
        let api = cloud.api().errors(Expired).authorize(Tokens(AtomicUsize::new(0), 9));
        let outcome = api.call("server_create", Method::POST, &["servers"]).send().await;
        assert_eq!(outcome.is_ok(), text == "expired");
        assert_eq!(cloud.headers("x-token"), tokens);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_has_the_error_and_the_time_of_the_cloud() {
    struct Clock(Mutex<Vec<(Option<u16>, Option<u64>)>>);
    #[async_trait]
    impl Authorize for Arc<Clock> {
        async fn authorize(&self, _: &mut Request<Bytes>) -> Result<()> {
            Ok(())
        }
        async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
            let since = |at: std::time::SystemTime| at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            self.0.lock().unwrap().push((rejection.error.status(), rejection.date.map(since)));
            Ok(false)
        }
    }
    let (clock, old) = (Arc::new(Clock(Mutex::default())), "Sun, 06 Nov 1994 08:49:37 GMT");
    let cloud = Cloud::responding([with_header(401, "date", old), response(401, "")]);
    let api = cloud.api().authorize(clock.clone());
    for _ in 0..2 {
        assert!(get(&api).await.is_err());
    }
    assert_eq!(*clock.0.lock().unwrap(), [(Some(401), Some(784_111_777)), (Some(401), None)]);
}

struct Codes;

impl ErrorDecoder for Codes {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        match response.json::<Value>().and_then(|body| Some(body.get("code")?.as_str()?.to_owned())).as_deref() {
            Some("quota") => response.to_error_of(ErrorKind::QuotaExceeded),
            _ => response.to_error(),
        }
    }

    fn tls_advice(&self) -> &'static str {
        "; see ca-file"
    }
}

#[tokio::test(start_paused = true)]
async fn a_decoder_can_write_the_whole_message() {
    struct Own;
    impl ErrorDecoder for Own {
        fn decode(&self, response: &ErrorResponse<'_>) -> Error {
            let (method, url, status) = (response.method(), response.url(), response.status());
            let id = response.request_id().unwrap_or("none");
            response.to_error_with(ErrorKind::QuotaExceeded, format!("{method} {url}: {status} (request {id:?})"))
        }
    }
    let cloud = Cloud::responding([with_header(422, "x-request-id", "req-7"), response(502, "")]);
    let api = cloud.api().errors(Own);
    let error = get(&api).await.unwrap_err();
    assert_eq!(error.to_string(), "server_get: GET http://cloud.example/v2/servers: 422 (request \"req-7\")");
    assert_eq!(
        (error.kind(), error.status(), error.is_outcome_unknown()),
        (ErrorKind::QuotaExceeded, Some(422), false)
    );
    let error = api.call("server_create", Method::POST, &["servers"]).send().await.unwrap_err();
    assert!(error.message().ends_with("502 (request \"none\")") && error.is_outcome_unknown(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn only_a_decoder_can_mark_the_outcome_of_a_gateway_error_as_known() {
    struct Known(bool);
    impl ErrorDecoder for Known {
        fn decode(&self, response: &ErrorResponse<'_>) -> Error {
            let error = response.to_error_of(ErrorKind::QuotaExceeded);
            if self.0 { error.outcome_known() } else { error }
        }
    }
    for (is_known, status, is_outcome_unknown) in [(false, 502, true), (true, 502, false), (false, 403, false)] {
        let cloud = Cloud::responding([response(status, "full")]);
        let api = cloud.api().errors(Known(is_known));
        let error = api.call("server_create", Method::POST, &["servers"]).send().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::QuotaExceeded, is_outcome_unknown),
            "{status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_decoder_overrides_the_status() {
    let cloud = Cloud::responding([
        response(403, r#"{"code": "quota"}"#),
        response(403, "no"),
        Err(RequestError::Tls(crate::TlsHandshakeError::Expired)),
    ]);
    let api = cloud.api().errors(Codes);
    let mut errors = Vec::new();
    for _ in 0..3 {
        let error = get(&api).await.unwrap_err();
        errors.push((error.kind(), error.status(), error.retry_advice()));
        assert!(errors.len() < 3 || error.message().ends_with("the certificate has expired; see ca-file"), "{error}");
    }
    assert_eq!(
        errors,
        [
            (ErrorKind::QuotaExceeded, Some(403), Retry::Backoff),
            (ErrorKind::PermissionDenied, Some(403), Retry::Backoff),
            (ErrorKind::InvalidConfig, None, Retry::Backoff),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_but_not_in_debug_output() {
    let cloud = Cloud::responding([response(300, "")]);
    let api = cloud.api().authorize(Bearer::new(&"s3cret".into()).unwrap());
    api.call("version_list", Method::GET, &[]).accept(StatusCode::MULTIPLE_CHOICES).send().await.unwrap();
    assert_eq!(
        (cloud.headers("authorization"), cloud.urls()),
        (vec!["Bearer s3cret".to_owned()], vec!["http://cloud.example/v2/".to_owned()])
    );
    assert!(!format!("{:?}", cloud.requests.lock().unwrap()[0].headers()[header::AUTHORIZATION]).contains("s3cret"));
    assert!(!Bearer::new(&"s3\ncret".into()).err().unwrap().to_string().contains("cret"));
}

// ---- paged lists

#[tokio::test(start_paused = true)]
async fn all_pages_are_read_and_an_endless_list_is_an_error() {
    let read = |last: usize, step: usize| async move {
        all_pages("list servers", |token| async move {
            let number: usize = token.map_or(0, |token| token.parse().unwrap());
            let next = (number < last).then(|| (number + step).to_string());
            Ok(Page { items: vec![number], next })
        })
        .await
    };
    assert_eq!(read(3, 1).await.unwrap(), [0, 1, 2, 3]);
    let error = read(3, 0).await.unwrap_err();
    assert_eq!(error.to_string(), "list servers: the list repeats a page token");
    assert_eq!(error.kind(), ErrorKind::Unexpected);
}
