//! Over real sockets and with real TLS, on this machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fence;
mod hostile;
mod proxies;
mod server;
mod tls;

use std::time::Duration;

use bowline_http::{Client, Failure, Options, Proxies, Tls};
use bytes::Bytes;
use http::{Method, Request, StatusCode};

use server::{Behaviour, Server};

/// Long enough for a loaded machine; where a test waits for it to pass, it brings its own.
const PATIENCE: Duration = Duration::from_secs(20);

fn client(tls: Tls, proxies: Proxies) -> Client {
    Client::new(Options { tls, proxies, timeout: PATIENCE }).unwrap()
}

fn plain() -> Client {
    client(Tls::default(), Proxies::default())
}

fn request(method: Method, url: &str) -> Request<Bytes> {
    Request::builder().method(method).uri(url).body(Bytes::from_static(b"body")).unwrap()
}

async fn get(client: &Client, url: &str) -> Result<(StatusCode, String), Failure> {
    let answer = client.send(Request::get(url).body(Bytes::new()).unwrap()).await?;
    Ok((answer.status(), String::from_utf8(answer.body().to_vec()).unwrap()))
}

#[tokio::test]
async fn an_answer_comes_whole_and_reading_shares_a_connection() {
    let server = Server::start(Behaviour::Keeps).await;
    let client = plain();
    for _ in 0..3 {
        let (status, body) = get(&client, &server.url("/v3")).await.unwrap();
        assert_eq!((status, body.as_str()), (StatusCode::OK, "GET /v3 HTTP/1.1"));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn what_changes_something_goes_over_a_connection_of_its_own() {
    let server = Server::start(Behaviour::Keeps).await;
    let client = plain();
    get(&client, &server.url("/")).await.unwrap();
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let answer = client.send(request(method, &server.url("/"))).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(server.connections(), 4);
}

/// As uwsgi does it, without saying so before.
#[tokio::test]
async fn a_server_that_closes_after_each_answer_fails_nobody() {
    let server = Server::start(Behaviour::ClosesAfterEach).await;
    let client = plain();
    for round in 0..100 {
        let method = [Method::GET, Method::POST][round % 2].clone();
        let answer = client.send(request(method, &server.url("/"))).await;
        assert!(answer.is_ok(), "round {round}: {answer:?}");
    }
    assert_eq!(server.requests().len(), 100, "nothing was done twice");
}

/// A connection that was kept, and is closed in the moment in which it is used again.
#[tokio::test]
async fn a_question_on_a_connection_that_ends_just_then_is_asked_again_once() {
    let server = Server::start(Behaviour::ClosesOnTheSecond).await;
    let client = plain();
    get(&client, &server.url("/1")).await.unwrap();
    let (_, body) = get(&client, &server.url("/2")).await.unwrap();
    assert_eq!(body, "GET /2 HTTP/1.1");
    assert_eq!(server.requests(), ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /2 HTTP/1.1"]);
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_not_tried_again() {
    let server = Server::start(Behaviour::Hangs).await;
    let failure = plain().send(request(Method::POST, &server.url("/"))).await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
    assert_eq!(server.requests(), ["POST / HTTP/1.1"]);
}

#[tokio::test]
async fn an_answer_that_ends_early_is_broken() {
    let server = Server::start(Behaviour::EndsEarly).await;
    let failure = get(&plain(), &server.url("/")).await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
}

#[tokio::test]
async fn what_is_no_http_is_broken() {
    let server = Server::start(Behaviour::SpeaksNonsense).await;
    let failure = get(&plain(), &server.url("/")).await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_waited_for_no_longer_than_allowed() {
    let server = Server::start(Behaviour::IsSilent).await;
    let timeout = Duration::from_millis(200);
    let client = Client::new(Options { tls: Tls::default(), proxies: Proxies::default(), timeout }).unwrap();
    let failure = get(&client, &server.url("/")).await.unwrap_err();
    assert_eq!(failure, Failure::Timeout(timeout));
    assert_eq!(failure.to_string(), "no answer within 200ms");
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_connection() {
    let url = Server::nobody().await;
    let failure = get(&plain(), &url).await.unwrap_err();
    assert!(matches!(failure, Failure::Connect(_)), "{failure:?}");
    assert!(failure.to_string().contains("127.0.0.1:"), "{failure}");
}

#[tokio::test]
async fn what_is_no_url_of_http_is_not_sent() {
    for url in ["/v3", "ftp://127.0.0.1/v3"] {
        let failure = get(&plain(), url).await.unwrap_err();
        assert!(matches!(failure, Failure::Request(_)), "{failure:?}");
    }
}
