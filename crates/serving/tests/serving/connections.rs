//! Malicious and broken clients, limits and shutdown.

use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{Running, ServerSpec};

async fn open() -> Running {
    let mut spec = ServerSpec::without_reviews();
    spec.authorization.always_allow_paths = vec!["*".to_owned()];
    spec.start().await
}

#[tokio::test]
async fn plain_http_gets_a_400_that_explains_it() {
    let running = open().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[tokio::test]
async fn garbage_and_silent_connections_do_not_affect_other_clients() {
    let running = open().await;
    let mut silent = Vec::new();
    for garbage in [&b"\x16\x03\x01\xff\xff"[..], b"\x00\x00\x00", b""] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        silent.push(stream);
    }
    // Half a request, over TLS.
    let mut half = running.client().with_alpn(b"http/1.1").connect().await.unwrap();
    half.write_all(b"GET /heal").await.unwrap();
    assert_eq!(running.client().get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_request_head_that_is_too_large_is_rejected() {
    let running = open().await;
    let large = "x".repeat(1 << 20);
    let client = running.client();
    let first =
        client.clone().with_alpn(b"http/1.1").try_request(Method::GET, "/healthz", &[("x-large", &large)], "").await;
    assert!(first.as_ref().map_or(true, |response| response.status == 431), "{first:?}");
    let second = client.clone().with_alpn(b"h2").try_request(Method::GET, "/healthz", &[("x-large", &large)], "").await;
    assert!(second.as_ref().map_or(true, |response| response.status == 431), "{second:?}");
    assert_eq!(client.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_request_body_that_is_too_large_is_rejected() {
    let running = open().await;
    let client = running.client().with_alpn(b"http/1.1");
    let fits = client.request(Method::POST, "/body", &[], &"x".repeat(3 << 20)).await;
    assert_eq!((fits.status, fits.body), (200, (3 << 20).to_string()));
    let large = client.try_request(Method::POST, "/body", &[], &"x".repeat(9 << 20)).await;
    // The client may see the connection end before it has sent everything.
    assert!(large.as_ref().map_or(true, |response| response.status == 413), "{large:?}");
}

#[tokio::test]
async fn head_has_no_body_and_a_panic_results_in_a_500() {
    let running = open().await;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let client = running.client().with_alpn(protocol);
        let response = client.request(Method::HEAD, "/healthz", &[], "").await;
        assert_eq!(
            (response.status, response.body.as_str(), &response.headers["content-length"]),
            (200, "", &"2".parse().unwrap())
        );
        assert_eq!(client.request(Method::POST, "/healthz", &[], "").await.body, "ok");
        assert_eq!(client.request(Method::POST, "/who", &[], "").await.status, 405);
        assert_eq!(client.get("/panic").await.status, 500);
        assert_eq!(client.get("/panic?well").await.body, "well");
    }
}

#[tokio::test]
async fn shutdown_waits_for_requests_in_flight_and_accepts_no_new_ones() {
    let mut running = open().await;
    let client = running.client();
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.get("/slow").await.body }
    });
    // The request is in flight once its handler sleeps.
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.shutdown.request();
    assert_eq!(slow.await.unwrap(), "at last");
    tokio::time::timeout(Duration::from_secs(10), &mut running.task).await.unwrap().unwrap();
    assert!(client.connect().await.is_err());
}
