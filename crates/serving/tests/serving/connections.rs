//! Clients that mean no good, or do not know better.

use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{Running, Wanted};

async fn open() -> Running {
    let mut wanted = Wanted::alone();
    wanted.authorization.always_allow_paths = vec!["*".to_owned()];
    wanted.start().await
}

#[tokio::test]
async fn plain_http_is_told_what_is_spoken_here() {
    let running = open().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[tokio::test]
async fn rubbish_and_silence_harm_nobody() {
    let running = open().await;
    let mut silent = Vec::new();
    for garbage in [&b"\x16\x03\x01\xff\xff"[..], b"\x00\x00\x00", b""] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        silent.push(stream);
    }
    // Half a request, over TLS.
    let mut half = running.visitor().speaking(b"http/1.1").connects().await.unwrap();
    half.write_all(b"GET /heal").await.unwrap();
    assert_eq!(running.visitor().gets("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let running = open().await;
    let large = "x".repeat(1 << 20);
    let visitor = running.visitor();
    let first = visitor.clone().speaking(b"http/1.1").tries(Method::GET, "/healthz", &[("x-large", &large)], "").await;
    assert!(first.as_ref().map_or(true, |told| told.status == 431), "{first:?}");
    let second = visitor.clone().speaking(b"h2").tries(Method::GET, "/healthz", &[("x-large", &large)], "").await;
    assert!(second.as_ref().map_or(true, |told| told.status == 431), "{second:?}");
    assert_eq!(visitor.gets("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let running = open().await;
    let visitor = running.visitor().speaking(b"http/1.1");
    let fits = visitor.asks(Method::POST, "/body", &[], &"x".repeat(3 << 20)).await;
    assert_eq!((fits.status, fits.body), (200, (3 << 20).to_string()));
    let large = visitor.tries(Method::POST, "/body", &[], &"x".repeat(9 << 20)).await;
    // The client may see the connection end before it has sent everything.
    assert!(large.as_ref().map_or(true, |told| told.status == 413), "{large:?}");
}

#[tokio::test]
async fn head_has_no_body_and_a_panic_is_an_answer() {
    let running = open().await;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let visitor = running.visitor().speaking(protocol);
        let told = visitor.asks(Method::HEAD, "/healthz", &[], "").await;
        assert_eq!(
            (told.status, told.body.as_str(), &told.headers["content-length"]),
            (200, "", &"2".parse().unwrap())
        );
        assert_eq!(visitor.asks(Method::POST, "/healthz", &[], "").await.body, "ok");
        assert_eq!(visitor.asks(Method::POST, "/who", &[], "").await.status, 405);
        assert_eq!(visitor.gets("/panic").await.status, 500);
        assert_eq!(visitor.gets("/panic?well").await.body, "well");
    }
}

#[tokio::test]
async fn a_request_in_flight_ends_when_the_server_does_and_no_new_one_begins() {
    let mut running = open().await;
    let visitor = running.visitor();
    let slow = tokio::spawn({
        let visitor = visitor.clone();
        async move { visitor.gets("/slow").await.body }
    });
    // It is on its way once its handler sleeps.
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.shutdown.request();
    assert_eq!(slow.await.unwrap(), "at last");
    tokio::time::timeout(Duration::from_secs(10), &mut running.task).await.unwrap().unwrap();
    assert!(visitor.connects().await.is_err());
}
