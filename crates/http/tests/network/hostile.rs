//! Responses that are huge, endless, slow, truncated, encoded or redirects: bounded memory and time, and a clear error.

use std::time::{Duration, Instant};

use bowline_cloud::{Calls, ErrorKind};
use bowline_http::{Api, Options, Proxies, RequestError, Tls};
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Body that a server sends after the head of its response.
#[derive(Clone)]
enum Body {
    Whole(Vec<u8>),
    /// Endless bytes.
    Endless,
    /// Endless single bytes with pauses.
    Slow,
}

/// Starts a server that sends this response on each connection, and returns its URL.
async fn server(head: &'static str, body: Body) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let body = body.clone();
            tokio::spawn(async move { respond(stream, head, body).await });
        }
    });
    url
}

async fn respond(mut stream: TcpStream, head: &str, body: Body) -> std::io::Result<()> {
    let _ = stream.read(&mut [0; 4096]).await?;
    stream.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await?;
    match body {
        Body::Whole(bytes) => stream.write_all(&bytes).await,
        Body::Endless => loop {
            stream.write_all(&[b'1'; 64 << 10]).await?;
        },
        Body::Slow => loop {
            stream.write_all(b"1").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        },
    }
}

fn client_with(timeout: Duration) -> Client {
    Client::new(Options { tls: Tls::default(), proxies: Proxies::default(), timeout }).unwrap()
}

fn api(url: &str, timeout: Duration) -> Api {
    Api::new(client_with(timeout), &Calls::default(), "compute").base(url)
}

async fn json(url: &str) -> bowline_cloud::Error {
    let api = api(url, TIMEOUT);
    match api.call("server_list", Method::GET, &["servers"]).send().await {
        Ok(response) => response.json::<serde_json::Value>().unwrap_err(),
        Err(error) => error,
    }
}

/// Peak memory of this process in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_endless_response_fails_at_the_limit() {
    let before = peak_memory();
    for head in ["200 OK", "200 OK\r\nContent-Length: 99999999999", "500 Internal Server Error"] {
        let error = get(&plain(), &server(head, Body::Endless).await).await.unwrap_err();
        assert_eq!(error.to_string(), "the response is larger than 67108864 bytes");
    }
    let grown = (peak_memory() - before) >> 10;
    assert!(grown < 400, "{grown} MiB more for responses of at most 64 MiB");
}

#[tokio::test]
async fn a_slow_response_times_out() {
    let (url, begun) = (server("200 OK", Body::Slow).await, Instant::now());
    let error = api(&url, Duration::from_millis(300)).call("server_list", Method::GET, &[]).send().await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, true));
    assert!(error.message().ends_with("no response within 300ms"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn an_unrequested_content_encoding_is_an_error() {
    let url = server("200 OK\r\nContent-Encoding: gzip", Body::Endless).await;
    assert_eq!(get(&plain(), &url).await.unwrap_err(), RequestError::Encoded("gzip".to_owned()));
    let url = server("200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2", Body::Whole(b"{}".to_vec())).await;
    assert!(get(&plain(), &url).await.is_ok());
}

#[tokio::test]
async fn a_truncated_or_binary_response_is_an_error() {
    let cut = server("200 OK\r\nContent-Length: 100", Body::Whole(b"{\"servers\": [".to_vec())).await;
    let error = json(&cut).await;
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, true), "{error}");
    let no_length = server("200 OK\r\nConnection: close", Body::Whole(b"{\"servers\": [".to_vec())).await;
    assert_eq!(json(&no_length).await.kind(), ErrorKind::Unexpected);
    let no_text = server("200 OK\r\nContent-Length: 9", Body::Whole(b"{\"a\":\"\xff\"}".to_vec())).await;
    let error = json(&no_text).await;
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.message().contains("invalid response"), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(Behaviour::KeepAlive).await;
    let location: &'static str = format!("302 Found\r\nLocation: {}\r\nContent-Length: 0", elsewhere.url("/")).leak();
    let error = json(&server(location, Body::Whole(Vec::new())).await).await;
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.message().ends_with("redirects are not followed; this one leads to 127.0.0.1"), "{error}");
    assert_eq!(elsewhere.requests(), [""; 0]);
}

#[tokio::test]
async fn an_endless_head_is_an_error() {
    let long: &'static str = format!("200 OK\r\nX: {}", "x".repeat(1 << 20)).leak();
    let error = get(&plain(), &server(long, Body::Endless).await).await.unwrap_err();
    assert!(matches!(error, RequestError::Broken(_)), "{error:?}");
}
