//! Calls against a cloud in this process.

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
use crate::{Failure, Handler};

/// Answers in turn, and remembers what was asked.
#[derive(Default)]
struct Cloud {
    answers: Mutex<Vec<std::result::Result<Response<Bytes>, Failure>>>,
    asked: Mutex<Vec<Request<Bytes>>>,
}

#[async_trait]
impl Handler for Cloud {
    async fn handle(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, Failure> {
        self.asked.lock().unwrap().push(request);
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() { Ok(Response::new(Bytes::from_static(b"{}"))) } else { answers.remove(0) }
    }
}

impl Cloud {
    fn answering(answers: impl IntoIterator<Item = std::result::Result<Response<Bytes>, Failure>>) -> Arc<Cloud> {
        Arc::new(Cloud { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    fn api(self: &Arc<Cloud>) -> Api {
        let client = Client::in_process(self.clone(), Duration::from_secs(5));
        Api::new(client, &Calls::new(CallPolicy::default()), "compute").base("http://cloud.example/v2/")
    }

    fn urls(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.uri().to_string()).collect()
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn headers(&self, name: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .map(|asked| asked.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned())
            .collect()
    }
}

fn answer(status: u16, body: &str) -> std::result::Result<Response<Bytes>, Failure> {
    Ok(Response::builder().status(status).body(body.to_owned().into()).unwrap())
}

fn with_header(status: u16, name: &str, value: &str) -> std::result::Result<Response<Bytes>, Failure> {
    Ok(Response::builder().status(status).header(name, value).body(Bytes::from_static(b"why")).unwrap())
}

async fn get(api: &Api) -> Result<ApiResponse> {
    api.call("server_get", Method::GET, &["servers"]).send().await
}

// ---- what is sent

#[tokio::test(start_paused = true)]
async fn paths_and_queries_are_escaped() {
    let cloud = Cloud::answering([]);
    let call = cloud.api();
    let call = call.call("server_get", Method::GET, &["servers", "a/b c?ä"]);
    call.query(&[("name", "a&b"), ("x", "1 2")]).query(&[("y", "")]).send().await.unwrap();
    assert_eq!(cloud.urls(), ["http://cloud.example/v2/servers/a%2Fb%20c%3F%C3%A4?name=a%26b&x=1+2&y="]);
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_would_lead_elsewhere_is_not_sent() {
    let cloud = Cloud::answering([]);
    for bad in ["", ".", ".."] {
        let error = cloud.api().call("server_get", Method::GET, &["servers", bad]).send().await.unwrap_err();
        assert_eq!(error.to_string(), format!("server_get: {bad:?} is no ID"));
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!(cloud.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn bodies_say_what_they_are() {
    let cloud = Cloud::answering([]);
    let api = cloud.api();
    let post = || api.call("server_create", Method::POST, &["servers"]);
    post().json(&json!({"a": 1})).send().await.unwrap();
    post().form(&[("Action", "a b")]).send().await.unwrap();
    post().send().await.unwrap();
    let bodies: Vec<_> = cloud.asked.lock().unwrap().iter().map(|asked| asked.body().clone()).collect();
    assert_eq!(bodies, [&b"{\"a\":1}"[..], b"Action=a+b", b""]);
    assert_eq!(cloud.headers("content-type"), ["application/json", "application/x-www-form-urlencoded", ""]);
    assert_eq!(cloud.headers("accept-encoding"), [""; 3], "an answer that is compressed could unpack to any size");
}

// ---- what comes back

#[derive(Debug, PartialEq, Deserialize)]
struct Item {
    id: String,
}

#[tokio::test(start_paused = true)]
async fn answers_are_read_as_json_and_as_xml() {
    let cloud = Cloud::answering([answer(200, r#"{"id": "a"}"#), answer(200, "<Item><id>b</id></Item>")]);
    let api = cloud.api();
    assert_eq!(get(&api).await.unwrap().json::<Item>().unwrap(), Item { id: "a".to_owned() });
    assert_eq!(get(&api).await.unwrap().xml::<Item>().unwrap(), Item { id: "b".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_sense_is_an_error_whose_outcome_is_unknown() {
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
        let cloud = Cloud::answering([Ok(Response::new(body.clone())), Ok(Response::new(body))]);
        let api = cloud.api();
        for error in
            [get(&api).await.unwrap().json::<Item>().unwrap_err(), get(&api).await.unwrap().xml::<Item>().unwrap_err()]
        {
            assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unexpected, true));
            assert!(
                error.message().starts_with("GET http://cloud.example/v2/servers: the answer is not understood: "),
                "{error}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_type_in_xml_is_not_expanded() {
    let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Item><id>&b;</id></Item>"#;
    let cloud = Cloud::answering([answer(200, bomb)]);
    assert!(get(&cloud.api()).await.unwrap().xml::<Item>().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_error_names_call_status_body_and_request() {
    let answers =
        [with_header(409, "x-openstack-request-id", "req-7"), answer(404, "{\n \"a\":\t1 }"), answer(404, "")];
    let cloud = Cloud::answering(answers);
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
    let cloud = Cloud::answering([
        with_header(302, "location", "https://sailor:s3cret@elsewhere.example/x?token=1"),
        with_header(307, "location", "/x"),
    ]);
    let api = cloud.api();
    for host in ["elsewhere.example", "the same host"] {
        let error = get(&api).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert!(error.message().ends_with(&format!("redirects are not followed; this one leads to {host}")), "{error}");
    }
    assert_eq!(cloud.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_user_in_the_base_is_not_shown_and_a_long_url_is_cut() {
    let cloud = Cloud::answering([answer(404, "")]);
    let api = cloud.api().base("http://sailor:s3cret@cloud.example");
    let long = "x".repeat(1000);
    let error = api.call("server_get", Method::GET, &[&long]).send().await.unwrap_err();
    assert!(!error.to_string().contains("s3cret") && error.message().len() < 300, "{error}");
}

// ---- when a call is repeated

#[tokio::test(start_paused = true)]
async fn the_effect_of_the_method_decides_what_is_repeated() {
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
        for failure in [
            answer(502, "bad gateway"),
            Err(Failure::Timeout(Duration::from_secs(5))),
            Err(Failure::Broken(String::new())),
        ] {
            let cloud = Cloud::answering([failure]);
            let api = cloud.api();
            let call = api.call("server_x", method.clone(), &["servers"]);
            let call = match effect {
                Some(effect) => call.effect(effect),
                None => call,
            };
            assert_eq!((call.send().await.is_ok(), cloud.asked()), (attempts == 2, attempts), "{method} {effect:?}");
        }
        let cloud = Cloud::answering([Err(Failure::Connect("no".to_owned())), with_header(429, "retry-after", "1")]);
        let api = cloud.api();
        assert!(api.call("server_x", method, &["servers"]).send().await.is_ok(), "neither was executed");
        assert_eq!(cloud.asked(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_or_encoded_is_not_asked_for_again() {
    for failure in [Failure::TooLarge(64 << 20), Failure::Encoded("gzip".to_owned())] {
        let cloud = Cloud::answering([Err(failure)]);
        assert_eq!(get(&cloud.api()).await.unwrap_err().kind(), ErrorKind::Unexpected);
        assert_eq!(cloud.asked(), 1);
    }
}

// ---- credentials and errors of a cloud

/// A token that can be renewed this many times.
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

    async fn renew(&self, refused: &Request<Bytes>) -> Result<bool> {
        assert!(refused.headers().contains_key("x-token"));
        Ok(self.0.fetch_add(1, SeqCst) < self.1)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_401_a_call_is_made_once_more_with_new_credentials() {
    for (refusals, renewals, tokens) in [(1, 9, vec!["0", "1"]), (9, 9, vec!["0", "1"]), (9, 0, vec!["0"])] {
        let cloud = Cloud::answering((0..refusals).map(|_| answer(401, "")));
        let api = cloud.api().authorize(Tokens(AtomicUsize::new(0), renewals));
        let outcome = api.call("server_create", Method::POST, &["servers"]).send().await;
        assert_eq!(outcome.is_ok(), refusals == 1);
        assert_eq!(cloud.headers("x-token"), tokens);
        assert_eq!(cloud.urls()[0], "http://catalog.example/servers");
    }
}

struct Codes;

impl ErrorDecoder for Codes {
    fn decode(&self, refusal: &ErrorResponse<'_>) -> Error {
        match refusal.json::<Value>().and_then(|body| Some(body.get("code")?.as_str()?.to_owned())).as_deref() {
            Some("quota") => refusal.to_error_of(ErrorKind::QuotaExceeded),
            _ => refusal.to_error(),
        }
    }

    fn tls_advice(&self) -> &'static str {
        "; see ca-file"
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_decoder_that_says_so_gives_a_fault_of_a_gateway_an_outcome() {
    struct Known(bool);
    impl ErrorDecoder for Known {
        fn decode(&self, refusal: &ErrorResponse<'_>) -> Error {
            let error = refusal.to_error_of(ErrorKind::QuotaExceeded);
            if self.0 { error.answered() } else { error }
        }
    }
    for (is_answered, status, is_outcome_unknown) in [(false, 502, true), (true, 502, false), (false, 403, false)] {
        let cloud = Cloud::answering([answer(status, "full")]);
        let api = cloud.api().errors(Known(is_answered));
        let error = api.call("server_create", Method::POST, &["servers"]).send().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::QuotaExceeded, is_outcome_unknown),
            "{status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_decodes_its_own_errors() {
    let cloud = Cloud::answering([
        answer(403, r#"{"code": "quota"}"#),
        answer(403, "no"),
        Err(Failure::Tls(crate::TlsFailure::Expired)),
    ]);
    let api = cloud.api().errors(Codes);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let error = get(&api).await.unwrap_err();
        seen.push((error.kind(), error.status(), error.retry_advice()));
        assert!(seen.len() < 3 || error.message().ends_with("the certificate has expired; see ca-file"), "{error}");
    }
    assert_eq!(
        seen,
        [
            (ErrorKind::QuotaExceeded, Some(403), Retry::Backoff),
            (ErrorKind::PermissionDenied, Some(403), Retry::Backoff),
            (ErrorKind::InvalidConfig, None, Retry::Backoff),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_and_never_printed() {
    let cloud = Cloud::answering([answer(300, "")]);
    let api = cloud.api().authorize(Bearer::new(&"s3cret".into()).unwrap());
    api.call("version_list", Method::GET, &[]).accepting(StatusCode::MULTIPLE_CHOICES).send().await.unwrap();
    assert_eq!(
        (cloud.headers("authorization"), cloud.urls()),
        (vec!["Bearer s3cret".to_owned()], vec!["http://cloud.example/v2/".to_owned()])
    );
    assert!(!format!("{:?}", cloud.asked.lock().unwrap()[0].headers()[header::AUTHORIZATION]).contains("s3cret"));
    assert!(!Bearer::new(&"s3\ncret".into()).err().unwrap().to_string().contains("cret"));
}

// ---- lists

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
    assert_eq!(error.to_string(), "list servers: the list leads back to a page that was read already");
    assert_eq!(error.kind(), ErrorKind::Unexpected);
}
