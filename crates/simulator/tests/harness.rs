//! Tests of the harness with a toy cloud: faults, views, journal, HTTP server, crashes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use bowline_http::{Client, Options, Proxies, RequestError, Roots, Tls};
use bowline_simulator::{
    Call, Certificate, Detail, Fault, FaultSpec, Fields, Ids, Jobs, Page, Record, Records, Reply, Service, Simulator,
    Views, Work,
};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// A cloud with servers; a new server is `starting` until its job has ended.
#[derive(Default)]
struct Toy {
    ids: Ids,
    records: Records<&'static str>,
    jobs: Jobs<String>,
    work: Option<Work>,
}

impl Toy {
    fn create(&mut self, call: &Call) -> Reply {
        let Some(mut server) = call.object("server") else { return Reply::text(400, "no server") };
        let id = self.ids.uuid();
        server.set("id", id.clone());
        server.set("status", "starting");
        self.records.of_mut("server").insert("", server.clone());
        self.jobs.begin(id, self.work.unwrap_or(Work::Instantly));
        Reply::json(201, server.into())
    }
}

impl Service for Toy {
    fn answer(&mut self, call: &Call) -> Reply {
        let servers = self.records.of("server");
        match (call.method.as_str(), call.segments().as_slice()) {
            ("GET", ["servers"]) => {
                let all = servers.oldest_first().into_iter().map(|row| row.record.clone()).collect();
                match Page::after(all, call.value("after"), Some(2)) {
                    Some(page) => Reply::json(200, json!({"servers": page.records, "more": page.has_more})),
                    None => Reply::text(400, "no such server"),
                }
            }
            ("GET", ["servers", id]) => match servers.get(id) {
                Some(server) => Reply::json(200, server.clone().into()),
                None => Reply::text(404, "no such server"),
            },
            ("POST", ["servers"]) => self.create(call),
            _ => Reply::text(404, "no such path"),
        }
    }

    fn settle(&mut self) {
        for job in self.jobs.due() {
            let status = if job.fails { "failed" } else { "running" };
            if let Some(server) = self.records.get_mut("server", &job.change) {
                server.set("status", status);
            }
        }
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

async fn send(client: &Client, method: Method, path: &str, body: Value) -> Result<(u16, Value), RequestError> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let uri = if path.starts_with("http") { path.to_owned() } else { format!("http://toy/{path}") };
    let answer = client.send(Request::builder().method(method).uri(uri).body(body).unwrap()).await?;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    Ok((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

async fn create(client: &Client, name: &str) -> Result<(u16, Value), RequestError> {
    send(client, Method::POST, "servers", json!({"server": {"name": name}})).await
}

async fn list(client: &Client) -> Value {
    send(client, Method::GET, "servers", Value::Null).await.unwrap().1
}

fn cloud() -> (Simulator<Toy>, Client) {
    let cloud = Simulator::new(Toy::default());
    let client = cloud.client(60 * SECOND);
    (cloud, client)
}

#[tokio::test(start_paused = true)]
async fn a_fault_applies_to_its_kind_of_call_after_some_calls_and_some_times() {
    let (cloud, client) = cloud();
    let refused = FaultSpec::always(Fault::Answer(503, String::new())).on(Method::GET, "servers/{id}");
    cloud.inject(refused.after(1).times(1));
    let id = create(&client, "a").await.unwrap().1["id"].as_str().unwrap().to_owned();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(send(&client, Method::GET, &format!("servers/{id}"), Value::Null).await.unwrap().0);
    }
    assert_eq!(statuses, [200, 503, 200]);
    assert_eq!(list(&client).await["servers"][0]["name"], "a");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_fault_is_seen_by_the_client() {
    let (cloud, client) = cloud();
    let once = |fault| cloud.inject(FaultSpec::always(fault).times(1));
    once(Fault::Throttled(Some(7 * SECOND)));
    assert_eq!(create(&client, "a").await.unwrap().0, 429);
    once(Fault::Lost);
    assert!(create(&client, "a").await.is_err());
    assert_eq!(cloud.service().records.of("server").len(), 0, "neither took effect");
    once(Fault::AnswerLost);
    assert!(create(&client, "a").await.is_err());
    once(Fault::Garbled);
    assert_eq!(create(&client, "b").await.unwrap().1, "{\"serv");
    assert_eq!(cloud.service().records.of("server").len(), 2, "both took effect");
    once(Fault::Empty);
    assert_eq!(list(&client).await["servers"], json!([]));
    once(Fault::Hanging);
    assert!(matches!(create(&client, "c").await, Err(RequestError::Timeout(_))));
    let start = tokio::time::Instant::now();
    once(Fault::Slow(3 * SECOND));
    cloud.set_latency(SECOND);
    list(&client).await;
    assert_eq!(start.elapsed(), 4 * SECOND, "delays add up");
    assert_eq!(cloud.calls(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_view_shows_the_past_to_readers_and_loses_no_write() {
    let (cloud, client) = cloud();
    create(&client, "a").await.unwrap();
    cloud.freeze_view(true);
    create(&client, "b").await.unwrap();
    assert_eq!(list(&client).await["servers"].as_array().unwrap().len(), 1);
    cloud.freeze_view(false);
    assert_eq!(list(&client).await["servers"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_ends_at_once_or_later_or_fails() {
    let (cloud, client) = cloud();
    let statuses = async || {
        let servers = list(&client).await["servers"].clone();
        servers.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    cloud.service().work = Some(Work::Taking(5 * SECOND));
    create(&client, "a").await.unwrap();
    assert_eq!(statuses().await, ["starting"]);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(statuses().await, ["running"]);
    cloud.service().jobs.fail_next(1);
    cloud.service().work = None;
    create(&client, "b").await.unwrap();
    assert_eq!(statuses().await, ["running", "failed"]);
}

#[tokio::test]
async fn a_page_starts_after_its_marker() {
    let record = |id: &str| Record::from_iter([("id".to_owned(), json!(id))]);
    let all: Vec<Record> = ["1", "2", "3"].map(record).into();
    let page = Page::after(all.clone(), None, Some(2)).unwrap();
    assert_eq!((page.last().unwrap().as_str(), page.is_full, page.has_more), ("2", true, true));
    let page = Page::after(all.clone(), Some("2"), Some(2)).unwrap();
    assert_eq!((page.first().unwrap().as_str(), page.is_full, page.has_more), ("3", false, false));
    assert_eq!(Page::after(all, Some("4"), None), None);
}

fn network_client(tls: Tls) -> Client {
    Client::new(Options { tls, proxies: Proxies::default(), timeout: 60 * SECOND }).unwrap()
}

#[tokio::test]
async fn a_cloud_is_served_over_tls() {
    let (cloud, _) = cloud();
    let certificate = Certificate::for_loopback().unwrap();
    let server = cloud.serve_tls("127.0.0.1:0".parse().unwrap(), &certificate).await.unwrap();
    let url = format!("{}/servers", server.url());
    let trusting = network_client(Tls { roots: Roots::Pem(certificate.pem().to_owned()), ..Tls::default() });
    assert_eq!(send(&trusting, Method::GET, &url, Value::Null).await.unwrap().0, 200);
    let other = Certificate::for_loopback().unwrap();
    let wary = network_client(Tls { roots: Roots::Pem(other.pem().to_owned()), ..Tls::default() });
    assert!(send(&wary, Method::GET, &url, Value::Null).await.is_err());
    assert_eq!(cloud.calls(), 1);
}

#[tokio::test]
async fn a_cloud_is_served_over_http() {
    let (cloud, _) = cloud();
    cloud.close_connections(true);
    let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let client = network_client(Tls::default());
    let url = format!("{}/servers?after=missing", server.url());
    assert_eq!(send(&client, Method::GET, &url, Value::Null).await.unwrap(), (400, json!("no such server")));
    assert_eq!(cloud.journal()[0].query, [("after".to_owned(), "missing".to_owned())]);
    cloud.inject(FaultSpec::always(Fault::Lost));
    assert!(send(&client, Method::POST, &url, json!({})).await.is_err());
}

#[tokio::test]
async fn a_client_crashes_at_every_call() {
    for calls in 1..10 {
        let (cloud, client) = cloud();
        let work = async {
            for name in ["a", "b", "c"] {
                create(&client, name).await?;
            }
            Ok::<_, RequestError>(())
        };
        let (outcome, crashed) = cloud.crashing(calls, work).await;
        assert_eq!(outcome.is_err(), crashed);
        let made = cloud.service().records.of("server").len() as u64;
        assert_eq!(made, calls.min(3), "the last call takes effect, and nothing after it");
        if !crashed {
            assert_eq!(calls, 4);
            return;
        }
    }
    panic!("the client always crashes");
}

/// Temporary file of this process.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Creates these servers, and compares the journal with the file.
async fn golden(file: PathBuf, names: &[&str], reads: usize) {
    let (cloud, client) = cloud();
    let _golden = cloud.golden(file, Detail::Exact);
    for name in names {
        create(&client, name).await.unwrap();
    }
    cloud.forget_calls();
    for _ in 0..reads {
        list(&client).await;
    }
}

#[tokio::test]
async fn a_golden_journal_has_writes_in_order_and_counts_of_reads() {
    let file = scratch("equal.txt");
    let test = std::thread::current().name().unwrap().to_owned();
    let line = |name| format!("POST servers {{\"server\":{{\"name\":\"{name}\"}}}}");
    std::fs::write(
        &file,
        format!("== {test} 1\n{}\n{}\n2 GET servers\n== {test} 2\n1 GET servers\n", line("a"), line("b")),
    )
    .unwrap();
    golden(file.clone(), &["a", "b"], 2).await;
    golden(file, &[], 1).await;
}

#[tokio::test]
#[should_panic(expected = "after 1 equal lines\n- 2 GET servers\n+ 1 GET servers")]
async fn a_different_journal_fails_with_a_diff() {
    let file = scratch("differs.txt");
    let test = std::thread::current().name().unwrap().to_owned();
    std::fs::write(&file, format!("== {test} 1\nPOST servers {{\"server\":{{\"name\":\"a\"}}}}\n2 GET servers\n"))
        .unwrap();
    golden(file, &["a"], 1).await;
}

/// Creates these servers, and compares the kinds of writes with the file.
async fn golden_kinds(file: &str, names: &[&str]) {
    let (file, test) = (scratch(file), std::thread::current().name().unwrap().to_owned());
    std::fs::write(&file, format!("== {test} 1\nPOST servers server: name\n")).unwrap();
    let (cloud, client) = cloud();
    let _golden = cloud.golden(file, Detail::Kinds);
    for name in names {
        create(&client, name).await.unwrap();
    }
}

#[tokio::test]
async fn a_golden_journal_of_kinds_does_not_depend_on_numbers_and_contents() {
    golden_kinds("kinds.txt", &["b", "a", "c"]).await;
}

#[tokio::test]
#[should_panic(expected = "- POST servers server: name")]
async fn a_missing_kind_of_write_fails() {
    golden_kinds("missing-kind.txt", &[]).await;
}

#[tokio::test]
#[should_panic(expected = "has no section")]
async fn a_journal_without_a_section_fails() {
    golden(scratch("missing.txt"), &[], 0).await;
}
