//! The answers of all clouds together have one limit. In a program of its own, as the limit is the process's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bowline_http::{Client, Failure, Options, Proxies, Tls};
use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A server whose answers have no end; its URL.
async fn endless() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await?;
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                loop {
                    stream.write_all(&[b'1'; 64 << 10]).await?;
                }
                #[allow(unreachable_code, reason = "it names the error")]
                std::io::Result::Ok(())
            });
        }
    });
    url
}

/// Most memory that this process has had so far, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn ten_endless_answers_at_once_take_no_more_than_the_budget_for_all() {
    let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout: Duration::from_secs(60) };
    let (client, url, before) = (Client::new(options).unwrap(), endless().await, peak_memory());
    let get = || client.send(Request::get(&url).body(Bytes::new()).unwrap());
    let failures = join_all((0..10).map(|_| get())).await;
    let crowded = failures.iter().filter(|answer| matches!(answer, Err(Failure::Crowded(_)))).count();
    assert!(crowded >= 9, "{failures:?}");
    // A buffer that grows is there twice for a moment.
    let grown = peak_memory() - before;
    assert!(grown < 260 << 10, "{grown} KiB");
    // What was given up is given back: one alone reaches its own limit.
    assert_eq!(get().await.unwrap_err(), Failure::TooLarge(64 << 20));
}
