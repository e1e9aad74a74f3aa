//! Export to a collector that listens on a port.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bowline_runtime::Shutdown;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

use super::span::{Kind, Span, Value};
use super::*;

/// Collector that records requests.
struct Fake {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    status: Arc<AtomicU16>,
}

struct Received {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Fake {
    async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, status) = (Arc::default(), Arc::new(AtomicU16::new(200)));
        let fake = Fake { address, received, status };
        let (received, status) = (fake.received.clone(), fake.status.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (received, status) = (received.clone(), status.clone());
                let service = service_fn(move |request| receive(request, received.clone(), status.clone()));
                tokio::spawn(async move {
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        fake
    }

    /// Waits for this number of requests.
    async fn wait_for(&self, count: usize) {
        for _ in 0..1_000 {
            if self.received.lock().unwrap().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("fewer than {count} requests");
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn receive(
    request: Request<Incoming>,
    received: Arc<Mutex<Vec<Received>>>,
    status: Arc<AtomicU16>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    received.lock().unwrap().push(Received { path: head.uri.path().to_owned(), headers: head.headers, body });
    let body = Full::new(Bytes::new());
    let status = StatusCode::from_u16(status.load(Ordering::Relaxed)).unwrap();
    Ok(Response::builder().status(status).body(body.boxed()).unwrap())
}

fn traces(fake: &Fake, variables: &[(&str, &str)]) -> Exporter {
    let endpoint = format!("http://{}", fake.address);
    let get = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
        "OTEL_BSP_SCHEDULE_DELAY" => Some("20".to_owned()),
        _ => variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()),
    };
    let (settings, warnings) = Settings::read(get);
    assert!(warnings.is_empty(), "{warnings:?}");
    let (sender, receiver) = mpsc::channel(8);
    sender.try_send(span()).unwrap();
    // The recorder, which owns the sender, is never dropped.
    std::mem::forget(sender);
    Exporter::new(settings.unwrap(), receiver, Arc::default()).unwrap()
}

fn span() -> Span {
    Span {
        trace: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        id: 0x1122_3344_5566_7788,
        parent: Some(0x99),
        name: "cloud",
        kind: Kind::Client,
        start: 1_700_000_000_000_000_000,
        end: 1_700_000_000_250_000_000,
        attributes: vec![
            ("op", Value::Text("create_route".to_owned())),
            ("attempt", Value::Integer(-2)),
            ("is_new", Value::Bool(true)),
            ("share", Value::Number(0.5)),
        ],
        error: Some("busy".to_owned()),
    }
}

/// Decoded fields of the span, the same for both encodings.
fn expected() -> BTreeMap<&'static str, String> {
    let pairs = [
        ("service.name", "bowline"),
        ("scope", "bowline"),
        ("trace", "0102030405060708090a0b0c0d0e0f10"),
        ("id", "1122334455667788"),
        ("parent", "0000000000000099"),
        ("name", "cloud"),
        ("kind", "3"),
        ("start", "1700000000000000000"),
        ("end", "1700000000250000000"),
        ("op", "create_route"),
        ("attempt", "-2"),
        ("is_new", "true"),
        ("share", "0.5"),
        ("error", "busy"),
        ("code", "2"),
    ];
    pairs.into_iter().map(|(name, text)| (name, text.to_owned())).collect()
}

fn from_json(body: &[u8]) -> BTreeMap<&'static str, String> {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    let plain = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let at = |path: &str| plain(body.pointer(path).unwrap_or_else(|| panic!("{path}: {body}")));
    let span = "/resourceSpans/0/scopeSpans/0/spans/0";
    let attribute = |list: &str, name: &str| {
        let list = body.pointer(list).and_then(|list| list.as_array()).unwrap();
        let pair = list.iter().find(|pair| pair["key"] == name).unwrap();
        plain(pair["value"].as_object().unwrap().values().next().unwrap())
    };
    let mut found = BTreeMap::new();
    found.insert("service.name", attribute("/resourceSpans/0/resource/attributes", "service.name"));
    found.insert("scope", at("/resourceSpans/0/scopeSpans/0/scope/name"));
    let fields = [
        ("trace", "traceId"),
        ("id", "spanId"),
        ("parent", "parentSpanId"),
        ("name", "name"),
        ("kind", "kind"),
        ("start", "startTimeUnixNano"),
        ("end", "endTimeUnixNano"),
        ("error", "status/message"),
        ("code", "status/code"),
    ];
    found.extend(fields.map(|(name, field)| (name, at(&format!("{span}/{field}")))));
    let names = ["op", "attempt", "is_new", "share"];
    found.extend(names.map(|name| (name, attribute(&format!("{span}/attributes"), name))));
    found
}

/// A decoded protobuf field.
#[derive(Clone)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Field {
    fn number(&self) -> u64 {
        if let Field::Number(number) = self { *number } else { panic!("no number") }
    }

    fn bytes(&self) -> &[u8] {
        if let Field::Bytes(bytes) = self { bytes } else { panic!("no bytes") }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the fields with this number in the nested message.
    fn all(&self, number: u64) -> Vec<Field> {
        fields(self.bytes()).into_iter().filter(|(known, _)| *known == number).map(|(_, field)| field).collect()
    }

    fn at(&self, path: &[u64]) -> Field {
        path.iter().fold(self.clone(), |field, number| field.all(*number).remove(0))
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(bytes.split_off(..8).unwrap().try_into().unwrap())),
            2 => {
                let length = varint(&mut bytes) as usize;
                Field::Bytes(bytes.split_off(..length).unwrap().to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = *bytes.split_off_first().unwrap();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn from_protobuf(body: &[u8]) -> BTreeMap<&'static str, String> {
    let request = Field::Bytes(body.to_vec());
    let span = request.at(&[1, 2, 2]);
    let named = |list: Vec<Field>, name: &str| {
        let pair = list.into_iter().find(|pair| pair.at(&[1]).text() == name).unwrap();
        fields(pair.at(&[2]).bytes()).remove(0)
    };
    let attribute = |name: &'static str| {
        let text = match named(span.all(9), name) {
            (1, field) => field.text(),
            (2, field) => (field.number() == 1).to_string(),
            (3, field) => (field.number() as i64).to_string(),
            (4, field) => f64::from_bits(field.number()).to_string(),
            (other, _) => panic!("value {other}"),
        };
        (name, text)
    };
    let mut found = BTreeMap::from(["op", "attempt", "is_new", "share"].map(attribute));
    found.insert("service.name", named(request.at(&[1, 1]).all(1), "service.name").1.text());
    found.insert("scope", request.at(&[1, 2, 1, 1]).text());
    found.extend([("trace", span.at(&[1]).hex()), ("id", span.at(&[2]).hex()), ("parent", span.at(&[4]).hex())]);
    found.extend([("name", span.at(&[5]).text()), ("kind", span.at(&[6]).number().to_string())]);
    found.extend([("start", span.at(&[7]).number().to_string()), ("end", span.at(&[8]).number().to_string())]);
    found.extend([("error", span.at(&[15, 2]).text()), ("code", span.at(&[15, 3]).number().to_string())]);
    found
}

#[tokio::test]
async fn every_protocol_exports_the_same_span() {
    let gzip = ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");
    let table =
        [("http/protobuf", "/v1/traces", "application/x-protobuf"), ("http/json", "/v1/traces", "application/json")];
    for (protocol, path, kind) in table {
        let fake = Fake::start().await;
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=ports");
        let shutdown = Shutdown::new();
        let exporter = traces(&fake, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), headers, gzip]);
        let task = tokio::spawn(exporter.run(shutdown.clone()));
        fake.wait_for(1).await;
        shutdown.request();
        task.await.unwrap();
        let received = fake.received.lock().unwrap().remove(0);
        assert_eq!((received.path.as_str(), &received.headers["content-type"]), (path, &kind.parse().unwrap()));
        assert_eq!(received.headers["x-team"], "ports");
        let found = match protocol {
            "http/json" => from_json(&unzipped(&received)),
            _ => from_protobuf(&unzipped(&received)),
        };
        assert_eq!(found, expected(), "{protocol}");
    }
}

fn unzipped(received: &Received) -> Vec<u8> {
    assert_eq!(received.headers["content-encoding"], "gzip");
    let mut body = Vec::new();
    std::io::Read::read_to_end(&mut GzDecoder::new(&*received.body), &mut body).unwrap();
    body
}

#[tokio::test]
async fn a_busy_collector_gets_a_retry_and_one_that_rejects_does_not() {
    for (status, again) in [(503, true), (400, false)] {
        let fake = Fake::start().await;
        fake.status.store(status, Ordering::Relaxed);
        let exporter = traces(&fake, &[]);
        let (dropped, shutdown) = (exporter.dropped(), Shutdown::new());
        let task = tokio::spawn(exporter.run(shutdown.clone()));
        fake.wait_for(if again { 2 } else { 1 }).await;
        fake.status.store(200, Ordering::Relaxed);
        let so_far = fake.received.lock().unwrap().len();
        if again {
            fake.wait_for(so_far + 1).await;
        }
        shutdown.request();
        task.await.unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), u64::from(!again), "{status}");
        let received = fake.received.lock().unwrap();
        assert!(received.iter().all(|one| one.body == received[0].body), "{status}");
    }
}

#[tokio::test]
async fn remaining_spans_are_exported_at_shutdown() {
    let fake = Fake::start().await;
    let shutdown = Shutdown::new();
    shutdown.request();
    traces(&fake, &[]).run(shutdown).await;
    assert_eq!(fake.received.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_unavailable_collector_does_not_delay_shutdown() {
    let fake = Fake::start().await;
    let exporter = traces(&fake, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")]);
    let shutdown = Shutdown::new();
    shutdown.request();
    tokio::time::timeout(Duration::from_secs(20), exporter.run(shutdown)).await.unwrap();
}
