//! What a simulated container says: its name and the client's address, as a page to those who speak HTTP, else in front of
//! an echo.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::decide::Backend;

/// What the first words of HTTP can be.
const METHODS: [&[u8]; 7] = [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH "];

/// As much of a request is read before it is answered; the rest is read and forgotten.
const LONGEST_HEAD: usize = 8 * 1024;

/// Who says nothing for this long has gone.
const IDLE: Duration = Duration::from_secs(300);

/// How long a client that was answered may take to hang up.
const FAREWELL: Duration = Duration::from_secs(1);

/// What is spoken, as far as its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Http,
    Other,
    /// Too early to say.
    Unclear,
}

/// `hello from web-1 on node-2; you are 127.0.0.1:5000`, and a newline.
pub(super) fn greeting(backend: &Backend, client: SocketAddr) -> String {
    format!("hello from {} on {}; you are {client}\n", backend.pod, backend.node)
}

/// Talks for a container until the client hangs up.
pub(super) async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, greeting: &str) -> io::Result<()> {
    let mut heard = Vec::new();
    loop {
        match language(&heard) {
            Language::Http => return answer_request(stream, heard, &page(200, "text/plain", "", greeting)).await,
            Language::Other => {
                stream.write_all(greeting.as_bytes()).await?;
                stream.write_all(&heard).await?;
                return echo(stream).await;
            }
            Language::Unclear if hear(&mut stream, &mut heard).await? == 0 => return Ok(()),
            Language::Unclear => {}
        }
    }
}

/// Answers what a balancer asks at the health-check node port.
// upstream: kube-proxy answers on every path, and these are its words.
pub(super) async fn report(
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
    answer_request(stream, Vec::new(), &page(status, "application/json", &headers, &body.to_string())).await
}

fn language(heard: &[u8]) -> Language {
    let begins = |method: &&[u8]| heard.iter().zip(*method).all(|(heard, method)| heard == method);
    match METHODS.iter().find(|method| begins(method)) {
        None => Language::Other,
        Some(method) if heard.len() >= method.len() => Language::Http,
        Some(_) => Language::Unclear,
    }
}

fn page(status: u16, kind: &str, headers: &str, body: &str) -> String {
    let reason = if status == 200 { "OK" } else { "Service Unavailable" };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
    )
}

/// Reads the head of a request and answers it with this page, whatever it asks for.
async fn answer_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    mut heard: Vec<u8>,
    page: &str,
) -> io::Result<()> {
    while !heard.windows(4).any(|end| end == b"\r\n\r\n") && heard.len() < LONGEST_HEAD {
        if hear(&mut stream, &mut heard).await? == 0 {
            return Ok(());
        }
    }
    let head = page.find("\r\n\r\n").map_or(page, |end| page.get(..end + 4).unwrap_or(page));
    let answer = if heard.starts_with(b"HEAD ") { head } else { page };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // A socket that is closed with something unread in it resets the connection, and the client may lose the answer.
    let _ = timeout(FAREWELL, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
    Ok(())
}

/// Reads a little more; 0 if there is no more.
async fn hear(stream: &mut (impl AsyncRead + Unpin), heard: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 1024];
    let length = timeout(IDLE, stream.read(&mut piece)).await??;
    heard.extend(piece.iter().take(length));
    Ok(length)
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut heard = Vec::new();
    while hear(&mut stream, &mut heard).await? > 0 {
        stream.write_all(&heard).await?;
        heard.clear();
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What somebody hears who says this and then nothing more.
    async fn talk(said: &str) -> String {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(said.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        converse(server, "hello from p on n; you are c\n").await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        heard
    }

    #[tokio::test]
    async fn a_request_gets_a_page() {
        let long = format!("POST /x HTTP/1.1\r\nContent-Length: 9999\r\n\r\n{}", "x".repeat(9_999));
        for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n", &long] {
            let heard = talk(request).await;
            assert!(heard.starts_with("HTTP/1.1 200 OK\r\n"), "{heard}");
            assert!(heard.contains("\r\nContent-Length: 29\r\n"), "{heard}");
            assert!(heard.ends_with("\r\n\r\nhello from p on n; you are c\n"), "{heard}");
        }
        let heard = talk("HEAD / HTTP/1.1\r\n\r\n").await;
        assert!(heard.ends_with("\r\n\r\n"), "{heard}");
    }

    #[tokio::test]
    async fn anything_else_is_echoed_behind_the_name() {
        for said in ["ahoy\n", "GETTING somewhere", "P0", "\u{0}\u{1}"] {
            assert_eq!(talk(said).await, format!("hello from p on n; you are c\n{said}"));
        }
    }

    #[tokio::test]
    async fn who_hangs_up_early_gets_nothing_and_does_no_harm() {
        for said in ["", "GE", "GET / HTTP/1.1\r\nHos"] {
            assert_eq!(talk(said).await, "", "{said:?}");
        }
    }

    #[tokio::test]
    async fn the_health_check_says_how_many_pods_there_are() {
        for (local, status) in [(0, "HTTP/1.1 503 Service Unavailable"), (2, "HTTP/1.1 200 OK")] {
            let (mut client, server) = tokio::io::duplex(64 * 1024);
            client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
            client.shutdown().await.unwrap();
            report(server, "default", "web", local).await.unwrap();
            let mut heard = String::new();
            client.read_to_string(&mut heard).await.unwrap();
            assert!(heard.starts_with(status), "{heard}");
            assert!(heard.contains(&format!("\r\nX-Load-Balancing-Endpoint-Weight: {local}\r\n")), "{heard}");
            let body: serde_json::Value = serde_json::from_str(heard.split_once("\r\n\r\n").unwrap().1).unwrap();
            let service = json!({"namespace": "default", "name": "web"});
            assert_eq!(body, json!({"service": service, "localEndpoints": local, "serviceProxyHealthy": true}));
        }
    }
}
