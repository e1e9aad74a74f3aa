//! Tests over real sockets and TLS on this machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fence;
mod fingerprint;
mod hostile;
mod proxies;
mod server;
mod tls;

use std::time::Duration;

use bowline_http::{Client, Options, Proxies, RequestError, Tls};
use bytes::Bytes;
use http::{Method, Request, StatusCode};

use server::{Behaviour, Server};

/// Timeout that is long enough for a loaded machine. Tests that wait for a timeout set their own.
const TIMEOUT: Duration = Duration::from_secs(20);

fn client(tls: Tls, proxies: Proxies) -> Client {
    Client::new(Options { tls, proxies, timeout: TIMEOUT }).unwrap()
}

fn plain() -> Client {
    client(Tls::default(), Proxies::default())
}

fn request(method: Method, url: &str) -> Request<Bytes> {
    Request::builder().method(method).uri(url).body(Bytes::from_static(b"body")).unwrap()
}

async fn get(client: &Client, url: &str) -> Result<(StatusCode, String), RequestError> {
    let response = client.send(Request::get(url).body(Bytes::new()).unwrap()).await?;
    Ok((response.status(), String::from_utf8(response.body().to_vec()).unwrap()))
}

#[tokio::test]
async fn reads_share_a_connection() {
    let server = Server::start(Behaviour::KeepAlive).await;
    let client = plain();
    for _ in 0..3 {
        let (status, body) = get(&client, &server.url("/v3")).await.unwrap();
        assert_eq!((status, body.as_str()), (StatusCode::OK, "GET /v3 HTTP/1.1"));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn writes_use_new_connections() {
    let server = Server::start(Behaviour::KeepAlive).await;
    let client = plain();
    get(&client, &server.url("/")).await.unwrap();
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let response = client.send(request(method, &server.url("/"))).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(server.connections(), 4);
}

/// As uwsgi does, without announcing it.
#[tokio::test]
async fn a_server_may_close_the_connection_after_each_response() {
    let server = Server::start(Behaviour::ClosesAfterEach).await;
    let client = plain();
    for round in 0..100 {
        let method = [Method::GET, Method::POST][round % 2].clone();
        let response = client.send(request(method, &server.url("/"))).await;
        assert!(response.is_ok(), "round {round}: {response:?}");
    }
    assert_eq!(server.requests().len(), 100, "no request was sent twice");
}

/// The server closes a pooled connection just when it is reused.
#[tokio::test]
async fn a_read_on_a_closed_pooled_connection_is_repeated_once() {
    let server = Server::start(Behaviour::ClosesOnSecond).await;
    let client = plain();
    get(&client, &server.url("/1")).await.unwrap();
    let (_, body) = get(&client, &server.url("/2")).await.unwrap();
    assert_eq!(body, "GET /2 HTTP/1.1");
    assert_eq!(server.requests(), ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /2 HTTP/1.1"]);
}

#[tokio::test]
async fn a_write_with_a_lost_response_is_not_retried() {
    let server = Server::start(Behaviour::ClosesWithoutResponse).await;
    let error = plain().send(request(Method::POST, &server.url("/"))).await.unwrap_err();
    assert!(matches!(error, RequestError::Broken(_)), "{error:?}");
    assert_eq!(server.requests(), ["POST / HTTP/1.1"]);
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    let server = Server::start(Behaviour::Truncates).await;
    let error = get(&plain(), &server.url("/")).await.unwrap_err();
    assert!(matches!(error, RequestError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn a_response_that_is_not_http_is_an_error() {
    let server = Server::start(Behaviour::NotHttp).await;
    let error = get(&plain(), &server.url("/")).await.unwrap_err();
    assert!(matches!(error, RequestError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn a_missing_response_times_out() {
    let server = Server::start(Behaviour::NoResponse).await;
    let timeout = Duration::from_millis(200);
    let client = Client::new(Options { tls: Tls::default(), proxies: Proxies::default(), timeout }).unwrap();
    let error = get(&client, &server.url("/")).await.unwrap_err();
    assert_eq!(error, RequestError::Timeout(timeout));
    assert_eq!(error.to_string(), "no response within 200ms");
}

#[tokio::test]
async fn a_closed_port_is_a_connection_error() {
    let url = Server::closed_port().await;
    let error = get(&plain(), &url).await.unwrap_err();
    assert!(matches!(error, RequestError::Connect(_)), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn a_url_that_is_not_http_is_rejected() {
    for url in ["/v3", "ftp://127.0.0.1/v3"] {
        let error = get(&plain(), url).await.unwrap_err();
        assert!(matches!(error, RequestError::Request(_)), "{error:?}");
    }
}
