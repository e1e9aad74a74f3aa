//! Test vectors of AWS and botocore, and cases that they do not cover.

use serde_json::Value;

use super::*;

const VECTORS: &str = include_str!("../testdata/sigv4.jsonl");

/// A vector with everything that a signer needs.
struct Case {
    request: Request<Bytes>,
    credentials: Credentials,
    path: PathRule,
    at: Timestamp,
    vector: Value,
}

impl Case {
    fn parse(line: &str) -> Case {
        let vector: Value = serde_json::from_str(line).unwrap();
        // A URL cannot hold a space. Encoded, the path is canonical as it is sent.
        let url = text(&vector, "url", "");
        let as_sent = url.contains(' ') || text(&vector, "path", "") == "as-sent";
        Case {
            request: request(&vector, &url.replace(' ', "%20")),
            credentials: credentials(vector.get("token").and_then(Value::as_str)),
            path: if as_sent { PathRule::AsSent } else { PathRule::Standard },
            at: instant(text(&vector, "time", "20150830T123600Z")),
            vector,
        }
    }

    fn scope(&self) -> Scope<'_> {
        let region = text(&self.vector, "region", "us-east-1");
        Scope { region, service: text(&self.vector, "service", "service"), path: self.path }
    }

    fn name(&self) -> &str {
        text(&self.vector, "name", "")
    }
}

fn text<'a>(vector: &'a Value, field: &str, default: &'a str) -> &'a str {
    vector.get(field).and_then(Value::as_str).unwrap_or(default)
}

fn request(vector: &Value, url: &str) -> Request<Bytes> {
    let mut request = Request::builder().method(text(vector, "method", "")).uri(url);
    for header in vector.get("headers").and_then(Value::as_array).into_iter().flatten() {
        request = request.header(header[0].as_str().unwrap(), header[1].as_str().unwrap());
    }
    request.body(text(vector, "body", "").to_owned().into()).unwrap()
}

fn credentials(token: Option<&str>) -> Credentials {
    Credentials {
        access_key_id: "AKIDEXAMPLE".into(),
        secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
        session_token: token.map(Secret::from),
    }
}

fn instant(text: &str) -> Timestamp {
    jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", text)
        .unwrap()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .unwrap()
        .timestamp()
}

fn cases() -> Vec<Case> {
    VECTORS.lines().filter(|line| !line.starts_with('#')).map(Case::parse).collect()
}

#[test]
fn header_signatures_match_all_vectors() {
    let cases = cases();
    assert_eq!(cases.len(), 50);
    for mut case in cases {
        if case.vector.get("body_digest_header").is_some() {
            let digest = canonical::hex(canonical::sha256(case.request.body()));
            case.request.headers_mut().insert("x-amz-content-sha256", digest.parse().unwrap());
        }
        let added = headers(&case.request, &case.credentials, &case.scope(), case.at).unwrap();
        let scope = case.scope();
        let time = text(&case.vector, "time", "20150830T123600Z");
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{}/{}/{}/aws4_request, SignedHeaders={}, Signature={}",
            &time[..8],
            scope.region,
            scope.service,
            text(&case.vector, "signed_headers", ""),
            text(&case.vector, "signature", "")
        );
        assert_eq!(added[AUTHORIZATION], expected, "{}", case.name());
        assert_eq!(added[DATE], time, "{}", case.name());
        assert_eq!(added.contains_key(TOKEN), case.credentials.session_token.is_some(), "{}", case.name());
    }
}

#[test]
fn query_signatures_match_all_vectors() {
    let cases: Vec<_> = cases().into_iter().filter(|case| case.vector.get("query_signature").is_some()).collect();
    assert_eq!(cases.len(), 38);
    for case in cases {
        let valid = Duration::from_secs(3600);
        let query = presigned_query(&case.request, &case.credentials, &case.scope(), case.at, valid).unwrap();
        let expected = format!("&X-Amz-Signature={}", text(&case.vector, "query_signature", ""));
        assert!(query.ends_with(&expected), "{}: {query}", case.name());
    }
}

#[test]
fn an_encoded_path_is_encoded_again_unless_it_is_signed_as_sent() {
    for (path, standard) in [
        ("/", "/"),
        ("/a%2Fb/c", "/a%252Fb/c"),
        ("/a//b/../c/./d", "/a/c/d"),
        ("/../..", "/"),
        ("/a/..//", "/"),
        ("/a/b/", "/a/b/"),
    ] {
        assert_eq!(canonical_path(path, PathRule::Standard), standard);
        assert_eq!(canonical_path(path, PathRule::AsSent), path);
    }
}

/// Signature over a GET of `url` with these headers.
fn signature_of(url: &str, headers_sent: &[(&str, &str)]) -> String {
    let mut request = Request::get(url);
    for (name, value) in headers_sent {
        request = request.header(*name, *value);
    }
    let request = request.body(Bytes::new()).unwrap();
    let scope = Scope { region: "us-east-1", service: "service", path: PathRule::Standard };
    let added = headers(&request, &credentials(None), &scope, instant("20150830T123600Z")).unwrap();
    added[AUTHORIZATION].to_str().unwrap().to_owned()
}

#[test]
fn headers_that_change_in_transit_are_not_signed() {
    let vanilla = signature_of("https://example.amazonaws.com/", &[]);
    for same in [
        signature_of("https://example.amazonaws.com:443/", &[]),
        signature_of("https://proxy.example/", &[("host", "example.amazonaws.com")]),
        signature_of("https://example.amazonaws.com/", &[("user-agent", "bowline"), ("x-amzn-trace-id", "1")]),
        // A request that is signed again has the headers of its first signature.
        signature_of(
            "https://example.amazonaws.com/",
            &[("authorization", &vanilla), ("x-amz-date", "20150830T000000Z")],
        ),
    ] {
        assert_eq!(same, vanilla);
    }
    assert_ne!(signature_of("https://example.amazonaws.com:8443/", &[]), vanilla);
}

#[test]
fn an_unsignable_request_is_an_error_with_the_reason() {
    let scope = Scope { region: "us-east-1", service: "service", path: PathRule::Standard };
    let sign = |request: &Request<Bytes>, credentials: &Credentials| {
        headers(request, credentials, &scope, Timestamp::UNIX_EPOCH).unwrap_err().to_string()
    };
    let relative = Request::get("/a").body(Bytes::new()).unwrap();
    assert_eq!(sign(&relative, &credentials(None)), "the URL of the request has no host");
    let odd = HeaderValue::from_bytes(b"\xe9").unwrap();
    let binary = Request::get("https://a.example/").header("x-odd", odd).body(Bytes::new()).unwrap();
    assert_eq!(sign(&binary, &credentials(None)), "header x-odd cannot be signed: its value is not ASCII text");
    let request = Request::get("https://a.example/").body(Bytes::new()).unwrap();
    let message = sign(&request, &credentials(Some("two\nlines")));
    assert!(message.starts_with("header x-amz-security-token cannot be added"), "{message}");
}

#[test]
fn debug_output_shows_no_secret() {
    let scope = Scope { region: "us-east-1", service: "service", path: PathRule::Standard };
    let request = Request::get("https://a.example/").body(Bytes::new()).unwrap();
    let added = headers(&request, &credentials(Some("token-text")), &scope, Timestamp::UNIX_EPOCH).unwrap();
    let shown = format!("{added:?} {:?}", credentials(Some("token-text")));
    assert!(!shown.contains("token-text") && !shown.contains("Signature=") && !shown.contains("wJalr"), "{shown}");
}
