//! The memory budget for all responses. In a test binary of its own, because the budget belongs to the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bowline_http::{Client, Options, Proxies, RequestError, Tls};
use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Starts a server with endless responses, and returns its URL.
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

/// Peak memory of this process in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn ten_endless_responses_stay_within_the_budget() {
    let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout: Duration::from_secs(60) };
    let (client, url, before) = (Client::new(options).unwrap(), endless().await, peak_memory());
    let get = || client.send(Request::get(&url).body(Bytes::new()).unwrap());
    let results = join_all((0..10).map(|_| get())).await;
    let over_budget = results.iter().filter(|result| matches!(result, Err(RequestError::OverBudget(_)))).count();
    assert!(over_budget >= 9, "{results:?}");
    // A growing buffer exists twice for a moment.
    let grown = peak_memory() - before;
    assert!(grown < 260 << 10, "{grown} KiB");
    // The budget was released: a single response reaches its own limit.
    assert_eq!(get().await.unwrap_err(), RequestError::TooLarge(64 << 20));
}
