//! A process that was paused beyond its lease writes nothing to a socket, whichever task holds the request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_core::NodeName;
use bowline_kube::{Access, ClientOptions, Clients, Cluster};
use bowline_runtime::Fence;
use bowline_runtime::testing::block_thread_during;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Term of the lease.
const TERM: Duration = Duration::from_millis(150);
/// Pause of the process.
const PAUSE: Duration = Duration::from_millis(250);

/// Times at which write requests arrived.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// API server in its own threads, so that it runs while the runtime of the client is blocked.
fn server() -> Result<(u16, Arrivals), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (port, arrivals) = (listener.local_addr()?.port(), Arrivals::default());
    let shared = arrivals.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let arrivals = shared.clone();
            std::thread::spawn(move || serve(stream, &arrivals));
        }
    });
    Ok((port, arrivals))
}

fn serve(stream: TcpStream, arrivals: &Arrivals) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.starts_with("PATCH") {
            arrivals.lock().map(|mut arrivals| arrivals.push(Instant::now())).unwrap_or_default();
        }
        let length = headers(&mut reader)?;
        reader.read_exact(&mut vec![0; length])?;
        let body = r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"1"}}"#;
        write!(
            writer,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// Reads the headers and returns the length of the body.
fn headers(reader: &mut impl BufRead) -> std::io::Result<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            return Ok(length);
        }
        if let Some(("content-length", value)) = line.to_ascii_lowercase().trim().split_once(": ") {
            length = value.parse().unwrap_or_default();
        }
    }
}

/// A request is not sent after the pause, whether its caller or another task holds it.
#[tokio::test]
async fn a_request_held_by_any_task_is_not_sent_after_the_lease_expires() -> Result<(), Failure> {
    let (port, arrivals) = server()?;
    let options = ClientOptions { master: Some(format!("http://127.0.0.1:{port}")), ..ClientOptions::default() };
    let mut sent = 0;
    for hops in 0..8 {
        let fence = Fence::open();
        let clients = Clients::new(Access::open(&options).await?, false).fenced(fence.clone());
        let term = fence.term_until("main", tokio::time::Instant::now() + Duration::from_secs(60));
        let cluster = Cluster::new(clients.controller("node-controller"));
        // Opens the connection that the next request uses.
        cluster.set_labels(&NodeName::from("n"), &BTreeMap::new()).await?;
        arrivals.lock().map_err(|_| "poisoned")?.clear();
        term.extend(tokio::time::Instant::now() + TERM);
        let name = NodeName::from("n");
        let labels = BTreeMap::new();
        let stopped = block_thread_during(cluster.set_labels(&name, &labels), hops, PAUSE).await;
        // Time for the server to read data in flight.
        std::thread::sleep(TERM / 5);
        let arrived = std::mem::take(&mut *arrivals.lock().map_err(|_| "poisoned")?);
        assert!(arrived.iter().all(|arrival| *arrival < stopped + TERM), "sent too late, after {hops} hops");
        sent += arrived.len();
        drop(term);
    }
    assert!(sent > 0, "no request was sent in time either: too few hops");
    Ok(())
}
