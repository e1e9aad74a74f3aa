//! Responses of a simulated container: a greeting with its name and the client's address, as an HTTP response or followed by an
//! echo.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::decide::Backend;

/// Methods that identify an HTTP request.
const METHODS: [&[u8]; 7] = [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH "];

/// Maximum size of a request head; the rest is read and discarded.
const MAX_HEAD: usize = 8 * 1024;

/// Timeout of a read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Timeout for the client to close the connection after the response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Protocol of a connection, detected from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    Other,
    /// More bytes are needed.
    Undetermined,
}

/// Returns `hello from web-1 on node-2; you are 127.0.0.1:5000` and a newline.
pub(super) fn greeting(backend: &Backend, client: SocketAddr) -> String {
    format!("hello from {} on {}; you are {client}\n", backend.pod, backend.node)
}

/// Serves a client as the container would, until the client closes the connection.
pub(super) async fn serve_client(mut stream: impl AsyncRead + AsyncWrite + Unpin, greeting: &str) -> io::Result<()> {
    let mut received = Vec::new();
    loop {
        match detect(&received) {
            Protocol::Http => {
                return answer_request(stream, received, &response(200, "text/plain", "", greeting)).await;
            }
            Protocol::Other => {
                stream.write_all(greeting.as_bytes()).await?;
                stream.write_all(&received).await?;
                return echo(stream).await;
            }
            Protocol::Undetermined if read_more(&mut stream, &mut received).await? == 0 => return Ok(()),
            Protocol::Undetermined => {}
        }
    }
}

/// Answers a health check of a load balancer on the health-check node port.
// upstream: kube-proxy answers on every path, with this body and these headers.
pub(super) async fn serve_health(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    namespace: &str,
    service: &str,
    local: usize,
) -> io::Result<()> {
    let body = json!({
        "service": {"namespace": namespace, "name": service}, "localEndpoints": local, "serviceProxyHealthy": true,
    });
    let headers = format!("X-Content-Type-Options: nosniff\r\nX-Load-Balancing-Endpoint-Weight: {local}\r\n");
    let status = if local > 0 { 200 } else { 503 };
    answer_request(stream, Vec::new(), &response(status, "application/json", &headers, &body.to_string())).await
}

fn detect(received: &[u8]) -> Protocol {
    let begins = |method: &&[u8]| received.iter().zip(*method).all(|(received, method)| received == method);
    match METHODS.iter().find(|method| begins(method)) {
        None => Protocol::Other,
        Some(method) if received.len() >= method.len() => Protocol::Http,
        Some(_) => Protocol::Undetermined,
    }
}

fn response(status: u16, kind: &str, headers: &str, body: &str) -> String {
    let reason = if status == 200 { "OK" } else { "Service Unavailable" };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
    )
}

/// Reads the head of a request and sends this response, whatever the path.
async fn answer_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    mut received: Vec<u8>,
    response: &str,
) -> io::Result<()> {
    while !received.windows(4).any(|end| end == b"\r\n\r\n") && received.len() < MAX_HEAD {
        if read_more(&mut stream, &mut received).await? == 0 {
            return Ok(());
        }
    }
    let head = response.find("\r\n\r\n").map_or(response, |end| response.get(..end + 4).unwrap_or(response));
    let answer = if received.starts_with(b"HEAD ") { head } else { response };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing a socket with unread data resets the connection, and the client may lose the response.
    let _ = timeout(CLOSE_TIMEOUT, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
    Ok(())
}

/// Reads more bytes; returns 0 at the end.
async fn read_more(stream: &mut (impl AsyncRead + Unpin), received: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 1024];
    let length = timeout(IDLE_TIMEOUT, stream.read(&mut piece)).await??;
    received.extend(piece.iter().take(length));
    Ok(length)
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut received = Vec::new();
    while read_more(&mut stream, &mut received).await? > 0 {
        stream.write_all(&received).await?;
        received.clear();
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the response to a client that sends this and then half-closes.
    async fn response_to(sent: &str) -> String {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(sent.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        serve_client(server, "hello from p on n; you are c\n").await.unwrap();
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        received
    }

    #[tokio::test]
    async fn an_http_request_gets_an_http_response() {
        let long = format!("POST /x HTTP/1.1\r\nContent-Length: 9999\r\n\r\n{}", "x".repeat(9_999));
        for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n", &long] {
            let received = response_to(request).await;
            assert!(received.starts_with("HTTP/1.1 200 OK\r\n"), "{received}");
            assert!(received.contains("\r\nContent-Length: 29\r\n"), "{received}");
            assert!(received.ends_with("\r\n\r\nhello from p on n; you are c\n"), "{received}");
        }
        let received = response_to("HEAD / HTTP/1.1\r\n\r\n").await;
        assert!(received.ends_with("\r\n\r\n"), "{received}");
    }

    #[tokio::test]
    async fn other_data_is_echoed_after_the_greeting() {
        for sent in ["ahoy\n", "GETTING somewhere", "P0", "\u{0}\u{1}"] {
            assert_eq!(response_to(sent).await, format!("hello from p on n; you are c\n{sent}"));
        }
    }

    #[tokio::test]
    async fn an_incomplete_request_gets_no_response() {
        for sent in ["", "GE", "GET / HTTP/1.1\r\nHos"] {
            assert_eq!(response_to(sent).await, "", "{sent:?}");
        }
    }

    #[tokio::test]
    async fn the_health_check_reports_the_number_of_local_pods() {
        for (local, status) in [(0, "HTTP/1.1 503 Service Unavailable"), (2, "HTTP/1.1 200 OK")] {
            let (mut client, server) = tokio::io::duplex(64 * 1024);
            client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
            client.shutdown().await.unwrap();
            serve_health(server, "default", "web", local).await.unwrap();
            let mut received = String::new();
            client.read_to_string(&mut received).await.unwrap();
            assert!(received.starts_with(status), "{received}");
            assert!(received.contains(&format!("\r\nX-Load-Balancing-Endpoint-Weight: {local}\r\n")), "{received}");
            let body: serde_json::Value = serde_json::from_str(received.split_once("\r\n\r\n").unwrap().1).unwrap();
            let service = json!({"namespace": "default", "name": "web"});
            assert_eq!(body, json!({"service": service, "localEndpoints": local, "serviceProxyHealthy": true}));
        }
    }
}
