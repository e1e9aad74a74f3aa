//! Tests of a group, without sockets and with paused time; then with TLS and with a Unix socket.

use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_cloud::{BuildInputs, CallPolicy, Calls, Error, ErrorKind, Result as CloudResult};
use bowline_config::table::{Format, Section, Table, UnknownKeys};
use bowline_config::{ConfigFile, Environment};
use bowline_http::{Api, TlsHandshakeError};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::*;
use crate::agents::Agents;
use crate::client::{query, write};
use crate::config::{AGENT_DOC, AgentConfig, AgentKeys};
use crate::errors::AgentErrors;
use crate::messages::{API_HEADER, API_VERSION};
use crate::testing::{Answer, Folder, Pki, Server, serve_unix};

/// Behaviour of an agent.
#[derive(Clone)]
enum Mode {
    Active,
    Standby(Option<&'static str>),
    NotReady,
    Down,
    Hangs,
    /// Executes the request, and breaks the connection.
    Breaks,
    WrongCertificate,
    /// Response with this status, version of the API and body.
    Raw(u16, Option<&'static str>, Value),
}

/// A group of agents in this process.
struct Group {
    modes: Arc<Mutex<Vec<Mode>>>,
    calls: Arc<Vec<AtomicUsize>>,
    api: Api,
}

fn response(status: u16, version: Option<&'static str>, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if let Some(version) = version {
        response.headers_mut().insert(API_HEADER, version.parse().unwrap());
    }
    response
}

fn error(status: u16, code: &str, message: &str, active: Option<&str>) -> Response<Bytes> {
    response(status, Some(API_VERSION), &json!({"error": {"code": code, "message": message, "active": active}}))
}

async fn act(mode: Mode, name: usize) -> Result<Response<Bytes>, RequestError> {
    match mode {
        Mode::Active => Ok(response(200, Some(API_VERSION), &json!({ "agent": name }))),
        Mode::Standby(active) => Ok(error(421, "notActive", "standby", active)),
        Mode::NotReady => Ok(error(503, "notReady", "it has just started", None)),
        Mode::Down => Err(RequestError::Connect("connection refused".to_owned())),
        Mode::Hangs => std::future::pending().await,
        Mode::Breaks => Err(RequestError::Broken("connection closed".to_owned())),
        Mode::WrongCertificate => Err(RequestError::Tls(TlsHandshakeError::UnknownIssuer)),
        Mode::Raw(status, version, body) => Ok(response(status, version, &body)),
    }
}

impl Group {
    fn new(modes: &[Mode]) -> Group {
        Group::with(modes, &Calls::default())
    }

    fn with(modes: &[Mode], layer: &Calls) -> Group {
        let shared = Arc::new(Mutex::new(modes.to_vec()));
        let calls: Arc<Vec<AtomicUsize>> = Arc::new(modes.iter().map(|_| AtomicUsize::default()).collect());
        let agent = |index: usize| {
            let (modes, calls) = (shared.clone(), calls.clone());
            let handler = move |request: Request<Bytes>| {
                assert_eq!(request.headers()[API_HEADER], API_VERSION);
                assert_eq!(request.uri().to_string(), format!("https://lb-{index}:9470/v1/x"));
                calls[index].fetch_add(1, Ordering::SeqCst);
                act(modes.lock().unwrap()[index].clone(), index)
            };
            let endpoint = Endpoint::Https(format!("https://lb-{index}:9470"));
            Agent { endpoint, client: Client::in_process(Arc::new(handler), LIMIT) }
        };
        let client = Endpoints::new((0..modes.len()).map(agent).collect()).client();
        let api = Api::new(client, layer, "agents").base("https://agent-group").errors(AgentErrors);
        Group { modes: shared, calls, api }
    }

    fn set(&self, index: usize, mode: Mode) {
        self.modes.lock().unwrap()[index] = mode;
    }

    async fn read(&self) -> CloudResult<u64> {
        query(&self.api, "read", &["v1", "x"], &json!({})).await.map(|body: Value| body["agent"].as_u64().unwrap())
    }

    async fn write(&self) -> CloudResult<u64> {
        write(&self.api, "write", &["v1", "x"], &json!({})).await.map(|body: Value| body["agent"].as_u64().unwrap())
    }

    /// Number of requests to each agent since the last call.
    fn calls(&self) -> Vec<usize> {
        self.calls.iter().map(|calls| calls.swap(0, Ordering::SeqCst)).collect()
    }
}

fn failed(result: CloudResult<u64>) -> (ErrorKind, bool, String) {
    let error: Error = result.unwrap_err();
    (error.kind(), error.is_outcome_unknown(), error.message().to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_active_agent_is_found_and_remembered() {
    let group = Group::new(&[Mode::Standby(None), Mode::Standby(None), Mode::Active]);
    assert_eq!(group.write().await.unwrap(), 2);
    assert_eq!(group.calls(), [1, 1, 1]);
    assert_eq!((group.write().await.unwrap(), group.read().await.unwrap()), (2, 2));
    assert_eq!(group.calls(), [0, 0, 2]);
    group.set(2, Mode::Down);
    group.set(0, Mode::Active);
    assert_eq!(group.write().await.unwrap(), 0);
    assert_eq!(group.calls(), [1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_to_the_active_agent_if_it_is_a_configured_one() {
    let group = Group::new(&[Mode::Standby(Some("https://lb-2:9470/")), Mode::Hangs, Mode::Active]);
    assert_eq!(group.write().await.unwrap(), 2);
    assert_eq!(group.calls(), [1, 0, 1]);
    let group = Group::new(&[Mode::Standby(Some("https://elsewhere:9470")), Mode::Active]);
    assert_eq!(group.write().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_reached_is_tried_last_for_a_while() {
    for bad in [Mode::Down, Mode::WrongCertificate, Mode::NotReady] {
        let group = Group::new(&[bad, Mode::Active]);
        assert_eq!(group.write().await.unwrap(), 1);
    }
    let group = Group::new(&[Mode::Down, Mode::Standby(None), Mode::Standby(None)]);
    assert!(group.write().await.is_err());
    assert_eq!(group.calls(), [1, 1, 1]);
    group.set(1, Mode::Active);
    assert_eq!(group.write().await.unwrap(), 1);
    assert_eq!(group.calls(), [0, 1, 0], "the paused agent is the last one");
    group.set(1, Mode::Standby(None));
    group.set(0, Mode::Active);
    assert_eq!(group.write().await.unwrap(), 0, "a paused agent is tried if no other one is active");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_does_not_take_up_the_time_of_a_read() {
    let (group, begun) = (Group::new(&[Mode::Hangs, Mode::Active]), Instant::now());
    assert_eq!(group.read().await.unwrap(), 1);
    assert_eq!(begun.elapsed(), LIMIT);
    assert_eq!(group.read().await.unwrap(), 1);
    assert_eq!(begun.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_response_is_not_sent_to_another_agent_in_the_same_attempt() {
    for (mode, cause) in [(Mode::Hangs, "no response within 5s"), (Mode::Breaks, "connection closed")] {
        let group = Group::new(&[mode, Mode::Active]);
        let (kind, is_unknown, message) = failed(group.write().await);
        assert_eq!((kind, is_unknown, group.calls()), (ErrorKind::Unavailable, true, vec![1, 0]));
        assert!(message.ends_with(&format!("https://lb-0:9470: {cause}")), "{message}");
        // The call layer repeats it: at another agent, which has the change or executes it.
        assert_eq!((group.write().await.unwrap(), group.calls()), (1, vec![0, 1]));
    }
    let group = Group::new(&[Mode::Breaks, Mode::Active]);
    assert_eq!(group.read().await.unwrap(), 1, "a read goes on");
}

#[tokio::test(start_paused = true)]
async fn the_call_layer_repeats_an_idempotent_write() {
    let group = Group::with(&[Mode::Breaks, Mode::Active], &Calls::new(CallPolicy::default()));
    assert_eq!((group.write().await.unwrap(), group.calls()), (1, vec![1, 1]));
}

#[tokio::test(start_paused = true)]
async fn an_error_names_each_agent_and_its_reason() {
    let group = Group::new(&[Mode::Down, Mode::Standby(None), Mode::NotReady]);
    let (kind, is_unknown, message) = failed(group.write().await);
    assert_eq!((kind, is_unknown), (ErrorKind::Unavailable, false));
    let expected = "no active agent is reachable: https://lb-0:9470: cannot connect: connection refused; https://lb-1:9470: standby; \
        https://lb-2:9470: it has just started";
    assert_eq!(message, expected);
    let group = Group::new(&[Mode::Down, Mode::WrongCertificate]);
    let (kind, is_unknown, message) = failed(group.write().await);
    assert_eq!((kind, is_unknown), (ErrorKind::Unavailable, false));
    assert!(
        message.contains("no agent is reachable: https://lb-0:9470: cannot connect: connection refused; https"),
        "{message}"
    );
    let group = Group::new(&[Mode::WrongCertificate, Mode::WrongCertificate]);
    let (kind, _, message) = failed(group.write().await);
    assert_eq!(kind, ErrorKind::InvalidConfig);
    assert!(message.ends_with("see caFile, certificateFile and keyFile of the agents"), "{message}");
    let (kind, _, message) = failed(Group::new(&[Mode::Down]).write().await);
    assert_eq!(kind, ErrorKind::Unavailable);
    let expected =
        "/v1/x: cannot connect: connection refused; fix: start the agents, and check their endpoints and the firewalls";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test(start_paused = true)]
async fn another_version_of_the_api_is_an_error_that_names_the_side_to_upgrade() {
    let rejected = json!({"error": {"code": "invalid", "message": "?"}});
    for (version, fix) in
        [("2", "fix: upgrade the manager"), ("0", "fix: upgrade the agent"), ("x", "fix: upgrade the agent")]
    {
        for (status, body) in [(200, json!({"agent": 0})), (400, rejected.clone())] {
            let (kind, _, message) = failed(Group::new(&[Mode::Raw(status, Some(version), body)]).write().await);
            assert_eq!(kind, ErrorKind::InvalidConfig, "{message}");
            assert!(
                message.starts_with("https://lb-0:9470: the agent has version") && message.ends_with(fix),
                "{message}"
            );
        }
    }
    let body = json!({"error": {"code": "apiVersion", "message": "fix: upgrade the manager"}});
    let old = Mode::Raw(400, Some(API_VERSION), body);
    assert!(failed(Group::new(std::slice::from_ref(&old)).write().await).2.ends_with("fix: upgrade the manager"));
    // While the agents of a group are upgraded one after the other, those that understand the manager serve it.
    assert_eq!(Group::new(&[old, Mode::Raw(400, Some("2"), rejected), Mode::Active]).write().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_response_of_another_server_is_no_answer() {
    let (kind, _, message) = failed(Group::new(&[Mode::Raw(200, None, json!({"agent": 0}))]).write().await);
    assert_eq!(kind, ErrorKind::Unexpected);
    assert!(message.contains("no agent of Bowline"), "{message}");
    let missing = json!({"error": {"code": "no_such_balancer", "message": "gone"}});
    let (kind, ..) = failed(Group::new(&[Mode::Raw(404, None, missing.clone())]).write().await);
    assert_eq!(kind, ErrorKind::InvalidConfig);
    let (kind, ..) = failed(Group::new(&[Mode::Raw(404, Some(API_VERSION), missing)]).write().await);
    assert_eq!(kind, ErrorKind::NotFound);
}

// ---- sockets

fn agents_of(section: &str) -> Agents {
    let sections = vec![Section::of::<AgentKeys>("agent", AGENT_DOC)];
    let table = Table { format: Format::Yaml, unknown: UnknownKeys::Reject, sections };
    let file = ConfigFile::from_text("cloud.yaml", section);
    let (settings, errors) = table.check(Some(&file), &Environment::default()).unwrap();
    let config = AgentConfig::read(settings.view("agent"), errors).unwrap();
    Agents::new(&config, &BuildInputs::default().context(None, &"c".into())).unwrap()
}

fn section(endpoints: &str, [ca, certificate, key]: &[String; 3]) -> String {
    format!("agent:\n  endpoints: [{endpoints}]\n  caFile: {ca}\n  certificateFile: {certificate}\n  keyFile: {key}\n")
}

/// Answers as an active agent without load balancers.
fn active() -> Answer {
    Arc::new(|request| {
        assert_eq!(request.headers()["user-agent"], concat!("bowline/", env!("CARGO_PKG_VERSION")));
        let body = match request.uri().path() {
            "/v1/status" => json!({"name": "lb-1", "version": "9", "role": "active"}),
            "/v1/balancers/owners" => json!({"owners": [], "more": false}),
            "/v1/routes/list" => json!({"routes": []}),
            path => return Some(error(404, "no_such_path", path, None)),
        };
        Some(response(200, Some(API_VERSION), &body))
    })
}

#[tokio::test]
async fn agents_are_reached_over_tls_with_a_client_certificate() {
    let (folder, pki) = (Folder::new(), Pki::new());
    let standby = Server::start(&pki, Arc::new(|_| Some(error(421, "notActive", "standby", None)))).await;
    let server = Server::start(&pki, active()).await;
    let endpoints = format!("{}, {}", standby.endpoint(), server.endpoint());
    let agents = agents_of(&section(&endpoints, &pki.write_client(&folder, "bowline")));
    agents.check(&"c".into()).await.unwrap();
    assert_eq!(agents.files().len(), 3);
    let routes = bowline_cloud::OneRoutePerCall::list_routes(agents.routes(), &"c".into()).await.unwrap();
    assert_eq!(routes, []);
    let results = agents.diagnose(&[]).await;
    let [first, second, one, pool] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!(first.subject, format!("agent {}", standby.endpoint()));
    assert!(first.outcome.is_err() && pool.outcome.is_err());
    assert!(second.outcome.as_ref().unwrap().starts_with("lb-1, version 9, active"), "{second:?}");
    assert_eq!(one.outcome.as_ref().unwrap(), "lb-1 holds the addresses");
    drop(server);
    assert_eq!(agents.check(&"c".into()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn certificates_of_another_ca_are_rejected_by_either_side() {
    let (folder, pki, other) = (Folder::new(), Pki::new(), Pki::new());
    let server = Server::start(&pki, active()).await;
    let [_, certificate, key] = other.write_client(&folder, "stranger");
    let [ca, own_certificate, own_key] = pki.write_client(&folder, "bowline");
    let untrusted = agents_of(&section(&server.endpoint(), &[ca, certificate, key]));
    let error = untrusted.check(&"c".into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.message().contains("rejects the client certificate"), "{error}");
    let ca = folder.0.join("other.crt");
    std::fs::write(&ca, &other.ca).unwrap();
    let untrusting = agents_of(&section(&server.endpoint(), &[ca.display().to_string(), own_certificate, own_key]));
    let error = untrusting.check(&"c".into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.message().contains("not signed by a trusted CA"), "{error}");
}

#[tokio::test]
async fn an_agent_on_a_unix_socket_needs_no_certificates() {
    let folder = Folder::new();
    let path = folder.0.join("agent.sock");
    let agents = agents_of(&format!("agent: {{endpoints: [\"unix:{}\"]}}\n", path.display()));
    let error = agents.check(&"c".into()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, false));
    let expected = format!("unix:{}: No such file or directory (os error 2); fix: start the agent", path.display());
    assert!(error.message().contains(&expected), "{error}");
    serve_unix(UnixListener::bind(&path).unwrap(), active());
    agents.check(&"c".into()).await.unwrap();
    assert!(agents.files().is_empty());
    assert_eq!(agents.diagnose(&[]).await[0].subject, format!("agent unix:{}", path.display()));
}
