//! HTTP API: responses to valid and invalid requests.
use std::net::SocketAddr;
use std::time::Duration;

use bowline_cloud::{CloudProvider, ErrorKind, Instances};
use bowline_core::testing::desired;
use bowline_core::{DesiredLoadBalancer, InstanceRef};
use bowline_local::{
    CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, ManagementClient, NewBalancer, NewMachine,
    Server, serve, serve_for,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Token of the owner.
const TOKEN: &str = "0wner";

async fn started(page_size: usize) -> (LocalCloud, Server) {
    let cloud = LocalCloud::open(CloudOptions { page_size, ..CloudOptions::default() }).unwrap();
    let server = serve_for(cloud.clone(), "127.0.0.1:0".parse().unwrap(), TOKEN.to_owned()).await.unwrap();
    (cloud, server)
}

fn machine(name: &str) -> NewMachine {
    NewMachine { name: name.to_owned(), ..NewMachine::default() }
}

fn named(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

/// Sends bytes and reads the whole response.
async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may respond before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a request and returns the status, head and body of the response.
async fn send(address: SocketAddr, method: &str, target: &str, body: &str) -> (u16, String, Value) {
    let head = format!("Host: {address}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json");
    send_with(address, method, target, &head, body).await
}

/// As [`send`], with these headers.
async fn send_with(address: SocketAddr, method: &str, target: &str, head: &str, body: &str) -> (u16, String, Value) {
    let head = format!("{method} {target} HTTP/1.1\r\n{head}\r\nConnection: close\r\nContent-Length: {}", body.len());
    let answer = raw(address, format!("{head}\r\n\r\n{body}").as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_reason() {
    let (cloud, server) = started(3).await;
    cloud.add(machine("a")).unwrap();
    let key = r#"{"key":{"cluster":"c","namespace":"n","service":"s","uid":"u"}}"#;
    let four = format!(r#"{{"asking":[{key},{key},{key},{key}]}}"#);
    let change_request = |change: &str| format!(r#"{{"asking":{key},"change":{change}}}"#);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let table = [
        ("GET", "/", "", 404, "no_such_path"),
        ("GET", "/v1", "", 404, "no_such_path"),
        ("GET", "/v2/instances", "", 404, "no_such_path"),
        ("GET", "/v1/instances/", "", 404, "no_such_machine"),
        ("GET", "/v1/instances/i-0001/", "", 404, "no_such_path"),
        ("GET", "/v1/instances/i-0001/reboot", "", 404, "no_such_path"),
        ("GET", "/v1/instances/%00%ff", "", 404, "no_such_machine"),
        ("GET", "/v1/instances/i-9999", "", 404, "no_such_machine"),
        ("DELETE", "/v1/instances/i-9999", "", 404, "no_such_machine"),
        ("POST", "/v1/instances/i-9999/stop", "", 404, "no_such_machine"),
        ("PUT", "/v1/instances/i-9999", r#"{"name":"a"}"#, 404, "no_such_machine"),
        ("PATCH", "/v1/instances/i-9999", "{}", 404, "no_such_machine"),
        ("DELETE", "/v1/faults/9", "", 404, "no_such_fault"),
        ("DELETE", "/v1/faults/x", "", 404, "no_such_fault"),
        ("DELETE", "/v1/instances", "", 405, "wrong_method"),
        ("GET", "/v1/instances/find", "", 405, "wrong_method"),
        ("POST", "/v1/instances/i-0001", "", 405, "wrong_method"),
        ("GET", "/v1/instances/i-0001/stop", "", 405, "wrong_method"),
        ("BREW", "/v1/calls", "", 405, "wrong_method"),
        ("GET", "/v1/instances?limit=0", "", 400, "invalid"),
        ("GET", "/v1/instances?limit=-1", "", 400, "invalid"),
        ("GET", "/v1/instances?limit=99999999999999999999999", "", 400, "invalid"),
        ("GET", "/v1/instances?page=%2F..%2F", "", 400, "invalid"),
        ("GET", "/v1/instances?as=user", "", 400, "invalid"),
        ("GET", "/v1/instances?pages=1", "", 400, "invalid"),
        ("GET", "/v1/calls?limit=1", "", 400, "invalid"),
        ("POST", "/v1/instances", "", 400, "invalid"),
        ("POST", "/v1/instances", "{", 400, "invalid"),
        ("POST", "/v1/instances", "[]", 400, "invalid"),
        ("POST", "/v1/instances", &deep, 400, "invalid"),
        ("POST", "/v1/instances", "{}", 400, "invalid"),
        ("POST", "/v1/instances", r#"{"name":"a","size":"xl"}"#, 400, "invalid"),
        ("POST", "/v1/instances", r#"{"name":"a","id":"../b"}"#, 400, "invalid"),
        ("POST", "/v1/instances", r#"{"name":"a","id":"i-0001"}"#, 409, "exists"),
        ("POST", "/v1/instances", r#"{"name":"a","addresses":[{"type":"Home","address":"x"}]}"#, 400, "invalid"),
        ("POST", "/v1/instances/find", r#"{"ids":"i-0001"}"#, 400, "invalid"),
        ("POST", "/v1/instances/find", r#"{"uuids":[]}"#, 400, "invalid"),
        ("POST", "/v1/instances/find", r#"{"ids":["a","b"],"names":["c","d"]}"#, 400, "too_many_keys"),
        ("PUT", "/v1/instances/i-0001", r#"{"name":"a","id":"i-0002"}"#, 400, "invalid"),
        ("PATCH", "/v1/instances/i-0001", r#"{"state":"stopped"}"#, 400, "invalid"),
        ("PATCH", "/v1/instances/i-0001", r#"{"name":null}"#, 400, "invalid"),
        ("PATCH", "/v1/instances/i-0001", "[1]", 400, "invalid"),
        ("POST", "/v1/faults", r#"{"fault":"boring"}"#, 400, "invalid"),
        ("POST", "/v1/faults", r#"{"fault":{"failing":200}}"#, 400, "invalid"),
        ("POST", "/v1/faults", r#"{"fault":{"slow":-1}}"#, 400, "invalid"),
        ("POST", "/v1/faults", r#"{"fault":"empty","probability":2}"#, 400, "invalid"),
        ("POST", "/v1/faults", r#"{"fault":"empty","call":"add"}"#, 400, "invalid"),
        ("GET", "/v1/balancers/lb-9", "", 404, "no_such_balancer"),
        ("DELETE", "/v1/balancers/lb-9", "", 404, "no_such_balancer"),
        ("GET", "/v1/balancers/lb-9/targets", "", 404, "no_such_path"),
        ("PUT", "/v1/balancers/lb-9", "", 405, "wrong_method"),
        ("GET", "/v1/balancers/change", "", 405, "wrong_method"),
        ("POST", "/v1/addresses", "", 405, "wrong_method"),
        ("POST", "/v1/balancers", "{}", 400, "invalid"),
        ("POST", "/v1/balancers", r#"{"name":"b","ip":"10.1.1.1"}"#, 400, "invalid"),
        ("POST", "/v1/balancers", r#"{"name":"b","settings":{"healthCheck":{"intervalMillis":0}}}"#, 400, "invalid"),
        ("POST", "/v1/balancers", r#"{"name":"b","settings":{"idleTimeout":1}}"#, 400, "invalid"),
        ("POST", "/v1/balancers/find", r#"{"asking":7}"#, 400, "invalid"),
        ("POST", "/v1/balancers/find", &four, 400, "too_many_keys"),
        ("POST", "/v1/balancers/owners", "{}", 400, "invalid"),
        ("POST", "/v1/balancers/change", &change_request(r#"{"call":"explode"}"#), 400, "invalid"),
        ("POST", "/v1/balancers/change", &change_request(r#"{"call":"delete-balancer"}"#), 400, "invalid"),
        (
            "POST",
            "/v1/balancers/change",
            &change_request(r#"{"call":"delete-balancer","id":"lb-9"}"#),
            404,
            "no_such_balancer",
        ),
        (
            "POST",
            "/v1/balancers/change",
            &change_request(r#"{"call":"delete-address","id":"ip-9"}"#),
            404,
            "no_such_address",
        ),
        ("POST", "/v1/faults", r#"{"fault":"empty","after":-1}"#, 400, "invalid"),
        ("GET", "/v1/routes/list", "", 405, "wrong_method"),
        ("GET", "/v1/routes/rt-9", "", 405, "wrong_method"),
        ("PUT", "/v1/routes", "", 405, "wrong_method"),
        ("GET", "/v1/pod-ranges/assign", "", 405, "wrong_method"),
        ("GET", "/v1/pod-ranges", "", 404, "no_such_path"),
        ("GET", "/v1/routes/rt-9/x", "", 404, "no_such_path"),
        ("GET", "/v1/routes?owner=c", "", 400, "invalid"),
        ("POST", "/v1/routes", r#"{"machine":"i-0001","destination":"10.1.0.0/24"}"#, 400, "invalid"),
        ("POST", "/v1/routes?cluster=", r#"{"machine":"i-0001","destination":"10.1.0.0/24"}"#, 400, "invalid"),
        ("POST", "/v1/routes?cluster=c", r#"{"machine":"i-0001","destination":"10.1.0.0/33"}"#, 400, "invalid"),
        ("POST", "/v1/routes?cluster=c", r#"{"machine":"i-0001","destination":"10.1.0.0"}"#, 400, "invalid"),
        ("POST", "/v1/routes?cluster=c", r#"{"machine":"i-9","destination":"10.1.0.0/24"}"#, 404, "no_such_machine"),
        ("DELETE", "/v1/routes/rt-9", "", 400, "invalid"),
        ("DELETE", "/v1/routes/rt-9?cluster=c", "", 404, "no_such_route"),
        ("POST", "/v1/routes/list", "{}", 400, "invalid"),
        ("POST", "/v1/routes/delete", r#"{"cluster":"c","id":"rt-9"}"#, 404, "no_such_route"),
        (
            "POST",
            "/v1/routes/create",
            r#"{"cluster":"c","machine":"i-0001","destination":"10.1.0.0/24"}"#,
            400,
            "invalid",
        ),
        ("POST", "/v1/pod-ranges/assign", r#"{"machine":{"id":"i-9"},"range":"10.1.0.0/24"}"#, 404, "no_such_machine"),
        ("POST", "/v1/pod-ranges/assign", r#"{"machine":{"id":"i-0001"},"range":"x"}"#, 400, "invalid"),
        ("POST", "/v1/instances", r#"{"name":"b","podRanges":["10.0.0.0/8","10.1.0.0/16"]}"#, 400, "invalid"),
        ("PUT", "/v1/latency", r#"{"millis":"slow"}"#, 400, "invalid"),
        ("PUT", "/v1/latency", r#"{"millis":18446744073709551616}"#, 400, "invalid"),
    ];
    for (method, target, body, status, code) in table {
        let (got, head, answer) = send(server.address(), method, target, body).await;
        let error = &answer["error"];
        assert_eq!((got, error["code"].as_str()), (status, Some(code)), "{method} {target}: {answer}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{method} {target}: {answer}");
        assert_eq!(status == 405, head.contains("\nallow: "), "{method} {target}: {head}");
    }
    assert_eq!((cloud.machines().len(), cloud.addresses().len()), (1, 0));
    assert!(cloud.faults().is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn invalid_bytes_do_no_harm() {
    let (cloud, server) = started(3).await;
    let address = server.address();
    let large = format!(
        "POST /v1/instances HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        2 << 20,
        "x".repeat(2 << 20)
    );
    assert!(raw(address, b"\x16\x03\x01 hello\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let chunked =
        b"POST /v1/instances HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n";
    assert!(!raw(address, chunked).await.contains(" 201 "));
    let (status, _, answer) = {
        let body = "x".repeat((16 << 20) + 1);
        send(address, "POST", "/v1/instances", &body).await
    };
    assert!(status == 413 || status == 0, "{status} {answer}");
    drop(TcpStream::connect(address).await.unwrap());
    let mut cut = TcpStream::connect(address).await.unwrap();
    cut.write_all(&large.as_bytes()[..100]).await.unwrap();
    drop(cut);
    // The server still works.
    assert_eq!(send(address, "POST", "/v1/instances", r#"{"name":"a"}"#).await.0, 201);
    assert_eq!(cloud.machines().len(), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn every_requested_key_has_an_answer() {
    let (cloud, server) = started(9).await;
    for name in ["a", "twin", "twin"] {
        cloud.add(machine(name)).unwrap();
    }
    let request = json!({"ids": ["i-0001", "i-9", "i-0001"], "names": ["a", "b", "twin"]}).to_string();
    let (status, _, answer) = send(server.address(), "POST", "/v1/instances/find", &request).await;
    assert_eq!(status, 200);
    let brief = |answer: &Value| {
        let key = answer["id"].as_str().or(answer["name"].as_str()).unwrap().to_owned();
        (key, answer["result"].as_str().unwrap().to_owned(), answer["instances"].as_array().map_or(0, Vec::len))
    };
    let brief: Vec<_> = answer["answers"].as_array().unwrap().iter().map(brief).collect();
    let expected =
        [("i-0001", "found", 1), ("i-9", "missing", 0), ("a", "found", 1), ("b", "missing", 0), ("twin", "found", 2)];
    assert_eq!(brief, expected.map(|(key, result, count)| (key.to_owned(), result.to_owned(), count)));
    server.shutdown().await;
}

#[tokio::test]
async fn machines_can_be_replaced_and_patched() {
    let (cloud, server) = started(3).await;
    let address = server.address();
    cloud
        .add(NewMachine { zone: "z1".to_owned(), labels: [("k".to_owned(), "v".to_owned())].into(), ..machine("a") })
        .unwrap();
    cloud.stop("i-0001").unwrap();
    let (_, _, merged) =
        send(address, "PATCH", "/v1/instances/i-0001", r#"{"labels":{"k":null,"l":"w"},"region":"r"}"#).await;
    assert_eq!(
        (&merged["labels"], &merged["zone"], &merged["region"]),
        (&json!({"l": "w"}), &json!("z1"), &json!("r"))
    );
    let (_, _, replaced) = send(address, "PUT", "/v1/instances/i-0001", r#"{"name":"b"}"#).await;
    assert_eq!((&replaced["labels"], &replaced["zone"], &replaced["name"]), (&json!({}), &json!(""), &json!("b")));
    assert_eq!((&replaced["id"], &replaced["state"]), (&json!("i-0001"), &json!("stopped")));
    server.shutdown().await;
}

#[tokio::test]
async fn throttling_has_a_retry_after() {
    let (cloud, server) = started(3).await;
    cloud.inject(FaultSpec::always(Fault::Throttled(Some(Duration::from_millis(1500)))));
    let (status, head, answer) = send(server.address(), "GET", "/v1/instances", "").await;
    assert_eq!((status, &answer["error"]["retryAfterMillis"]), (429, &json!(1500)));
    assert!(head.contains("retry-after: 2"), "{head}");
    server.shutdown().await;
}

#[tokio::test]
async fn only_user_calls_are_counted() {
    let (_cloud, server) = started(3).await;
    let address = server.address();
    send(address, "POST", "/v1/instances", r#"{"name":"a"}"#).await;
    send(address, "GET", "/v1/instances", "").await;
    send(address, "GET", "/v1/instances?as=owner", "").await;
    send(address, "GET", "/v1/instances/i-0001", "").await;
    send(address, "GET", "/v1/instances/i-0001?as=owner", "").await;
    send(address, "POST", "/v1/instances/find", "{}").await;
    assert_eq!(send(address, "GET", "/v1/calls", "").await.2, json!({"find": 1, "get": 1, "list": 1}));
    assert_eq!(send(address, "DELETE", "/v1/calls", "").await.0, 200);
    assert_eq!(send(address, "GET", "/v1/calls", "").await.2, json!({}));
    server.shutdown().await;
}

#[tokio::test]
async fn users_and_owner_have_different_tokens() {
    let path = std::env::temp_dir().join(format!("bowline-tokens-{}", std::process::id()));
    std::fs::write(&path, "first\nsecond\n").unwrap();
    let options = CloudOptions { token_file: Some(path.clone()), ..CloudOptions::default() };
    let cloud = LocalCloud::open(options).unwrap();
    let server = serve(cloud, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let endpoint = format!("http://{}", server.address());
    let owner = |token: &str| ManagementClient::new(&endpoint).unwrap().with_token(&token.into()).unwrap();
    owner(server.owner_token()).add(&machine("a")).await.unwrap();
    let error = owner("first").add(&machine("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let user = |token: Option<&str>| {
        let config = Config { endpoint: endpoint.clone(), token: token.map(Into::into), ..Config::default() };
        LocalProvider::over_http(&config).unwrap()
    };
    for token in [None, Some("third"), Some("")] {
        let error = user(token).check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{token:?}: {error}");
        assert!(!error.to_string().contains("third"), "{error}");
    }
    let (first, second) = (user(Some("first")), user(Some("second")));
    assert!(first.check().await.is_ok() && second.check().await.is_ok());
    std::fs::write(&path, "second\n").unwrap();
    assert_eq!(first.check().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert!(second.find(&[named("a")]).await.remove(0).is_ok());
    server.shutdown().await;
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_hanging_call_does_not_delay_the_shutdown() {
    let (cloud, server) = started(3).await;
    cloud.inject(FaultSpec::always(Fault::Hanging));
    let config = Config { endpoint: format!("http://{}", server.address()), ..Config::default() };
    let provider = LocalProvider::over_http(&config).unwrap();
    let hanging = tokio::spawn(async move { provider.find(&[named("a")]).await.remove(0) });
    while cloud.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    server.shutdown().await;
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_stopped_cloud_is_unavailable_until_it_restarts() {
    let (cloud, server) = started(3).await;
    cloud.add(machine("a")).unwrap();
    let address = server.address();
    let config = Config { endpoint: format!("http://{address}"), ..Config::default() };
    let provider = LocalProvider::over_http(&config).unwrap();
    assert!(provider.find(&[named("a")]).await.remove(0).is_ok());
    server.shutdown().await;
    let error = provider.find(&[named("a")]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let server = serve(cloud, address).await.unwrap();
    assert!(provider.find(&[named("a")]).await.remove(0).is_ok());
    server.shutdown().await;
}

#[tokio::test]
async fn another_server_at_the_endpoint_is_an_error() {
    let table = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", ErrorKind::Unexpected),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"answers\":[]}", ErrorKind::Unavailable),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n<html", ErrorKind::InvalidConfig),
        ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", ErrorKind::Unavailable),
        ("SSH-2.0-OpenSSH\r\n", ErrorKind::Unavailable),
    ];
    for (answer, kind) in table {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config { endpoint: format!("http://{}", listener.local_addr().unwrap()), ..Config::default() };
        let other = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        });
        let provider = LocalProvider::over_http(&config).unwrap();
        let error = provider.check().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{answer:?}: {error}");
        other.await.unwrap();
    }
}

#[test]
fn an_invalid_endpoint_is_rejected() {
    for endpoint in
        ["", "127.0.0.1:7480", "https://127.0.0.1", "http://", "http://a/path", "http://a?b=c", "http://u:p@host", "::"]
    {
        let error = ManagementClient::new(endpoint).err();
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::InvalidConfig), "{endpoint:?}");
    }
    assert!(ManagementClient::new("http://[::1]:7480/").is_ok());
}

#[tokio::test]
async fn concurrent_creations_have_unique_ids() {
    let (cloud, server) = started(100).await;
    let owner = ManagementClient::new(&format!("http://{}", server.address())).unwrap();
    let owner = std::sync::Arc::new(owner.with_token(&TOKEN.into()).unwrap());
    let adding: Vec<_> = (0..100)
        .map(|index| {
            let owner = owner.clone();
            tokio::spawn(async move { owner.add(&machine(&format!("n{index}"))).await.unwrap().spec.id })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for added in adding {
        ids.insert(added.await.unwrap());
    }
    assert_eq!(ids.len(), 100);
    assert_eq!(cloud.machines().len(), 100);
    server.shutdown().await;
}

/// Service with targets whose long names make each about 300 bytes.
fn large_service(service: &str, targets: usize) -> DesiredLoadBalancer {
    let names: Vec<String> = (0..targets).map(|number| format!("{:0>200}", number)).collect();
    desired(service, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

#[tokio::test]
async fn load_balancers_with_15000_targets_are_observed_in_responses_of_bounded_size() {
    let (cloud, server) = started(100).await;
    let config = Config { endpoint: format!("http://{}", server.address()), ..Config::default() };
    let provider = LocalProvider::over_http(&config).unwrap();
    let desired = ["a/a", "a/b", "a/c", "a/d", "a/e"].map(|service| large_service(service, 15_000));
    let balancers = provider.load_balancers().unwrap();
    for step in balancers.plan(&desired[0], None).unwrap().steps {
        balancers.apply(&desired[0].key, &step, None).await.unwrap();
    }
    let created = cloud.balancers().remove(0);
    assert_eq!(created.targets.len(), 15_000);
    for service in &desired[1..] {
        let (name, owner) = (service.key.service.clone(), Some(service.key.clone()));
        let (settings, targets) = (created.settings.clone(), created.targets.to_vec());
        cloud.add_balancer(NewBalancer { name, owner, settings, targets, ..NewBalancer::default() }).unwrap();
    }
    cloud.reset_calls();
    let states = balancers.observe(&desired).await;
    for (service, state) in desired.iter().zip(states) {
        let plan = balancers.plan(service, state.unwrap().as_ref()).unwrap();
        assert!(plan.is_empty(), "{plan}");
    }
    assert_eq!(cloud.calls()["observe-balancers"], 3, "two of them fit into one response");
    server.shutdown().await;
}

/// Write calls of the management API.
const MANAGEMENT_WRITES: [(&str, &str, &str); 17] = [
    ("POST", "/v1/instances", r#"{"name":"b"}"#),
    ("PUT", "/v1/instances/i-0001", r#"{"name":"b"}"#),
    ("PATCH", "/v1/instances/i-0001", r#"{"name":"b"}"#),
    ("DELETE", "/v1/instances/i-0001", ""),
    ("POST", "/v1/instances/i-0001/stop", ""),
    ("POST", "/v1/instances/i-0001/start", ""),
    ("POST", "/v1/balancers", r#"{"name":"b"}"#),
    ("DELETE", "/v1/balancers/lb-0001", ""),
    ("POST", "/v1/routes?cluster=c", r#"{"destination":"10.0.0.0/24","machine":"i-0001"}"#),
    ("DELETE", "/v1/routes/rt-0001?cluster=c", ""),
    ("POST", "/v1/faults", r#"{"fault":"empty"}"#),
    ("DELETE", "/v1/faults", ""),
    ("DELETE", "/v1/faults/1", ""),
    ("DELETE", "/v1/calls", ""),
    ("PUT", "/v1/latency", r#"{"millis":9}"#),
    ("POST", "/v1/latency", ""),
    ("BREW", "/v1/calls", ""),
];

#[tokio::test]
async fn management_writes_require_the_owner_token() {
    let (cloud, server) = started(3).await;
    cloud.add(machine("a")).unwrap();
    let before = cloud.machines();
    for (method, target, body) in MANAGEMENT_WRITES {
        for header in ["X: y", "Authorization: Bearer", "Authorization: Bearer ", "Authorization: Bearer 0wneR"] {
            let head = format!("Host: localhost\r\nContent-Type: application/json\r\n{header}");
            let (status, _, answer) = send_with(server.address(), method, target, &head, body).await;
            assert_eq!(
                (status, &answer["error"]["code"]),
                (401, &json!("unauthenticated")),
                "{method} {target} {header}"
            );
        }
    }
    assert_eq!(cloud.machines(), before);
    for target in ["/v1/instances?as=owner", "/v1/balancers", "/v1/routes", "/v1/faults", "/v1/calls"] {
        assert_eq!(send_with(server.address(), "GET", target, "Host: localhost", "").await.0, 200, "{target}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn no_web_page_can_call_the_cloud() {
    let (cloud, server) = started(3).await;
    let address = server.address();
    let json = "Content-Type: application/json";
    let table = [
        (format!("Host: evil.example:{}\r\n{json}", address.port()), 403, "foreign_host"),
        (format!("Host: \r\n{json}"), 403, "foreign_host"),
        (format!("Host: {address}\r\nOrigin: http://evil.example\r\n{json}"), 403, "foreign_origin"),
        (format!("Host: {address}\r\nOrigin: null\r\n{json}"), 403, "foreign_origin"),
        (format!("Host: {address}\r\nContent-Type: text/plain"), 415, "not_json"),
        (format!("Host: {address}\r\nContent-Type: application/x-www-form-urlencoded"), 415, "not_json"),
        (format!("Host: {address}"), 415, "not_json"),
    ];
    for (head, status, code) in table {
        for (target, body) in [("/v1/instances", r#"{"name":"b"}"#), ("/v1/instances/find", r#"{"names":["a"]}"#)] {
            // Even with the token.
            let head = format!("{head}\r\nAuthorization: Bearer {TOKEN}");
            let (found, _, answer) = send_with(address, "POST", target, &head, body).await;
            assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{head}");
        }
    }
    assert_eq!((cloud.machines().len(), cloud.calls().len()), (0, 0));
    let own = format!(
        "Host: {address}\r\nOrigin: http://{address}\r\n{json}; charset=utf-8\r\nAuthorization: Bearer {TOKEN}"
    );
    assert_eq!(send_with(address, "POST", "/v1/instances", &own, r#"{"name":"b"}"#).await.0, 201);
    server.shutdown().await;
}
