//! A single health probe of a target.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::HealthProbe;

/// Probes targets; a trait so that tests can fake it.
pub(crate) trait Prober: Clone + Send + 'static {
    fn probe(&self, at: SocketAddr, probe: &HealthProbe) -> impl Future<Output = Result<(), ProbeError>> + Send;
}

/// Probes over the network. The caller applies the timeout.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SocketProber;

/// A failed probe.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("{0}")]
    Connection(#[from] io::Error),
    #[error("connection refused: nothing listens on this port, and the connection reached its own socket")]
    SelfConnection,
    #[error("timeout")]
    Timeout,
    #[error("HTTP status {0}, expected 200 to 399")]
    Status(u16),
    #[error("the response is not HTTP/1")]
    NotHttp,
}

impl Prober for SocketProber {
    async fn probe(&self, at: SocketAddr, probe: &HealthProbe) -> Result<(), ProbeError> {
        let mut stream = TcpStream::connect(at).await?;
        if is_self_connection(&stream)? {
            return Err(ProbeError::SelfConnection);
        }
        match probe {
            HealthProbe::Tcp => Ok(()),
            HealthProbe::Http { path } => get(&mut stream, at, path).await,
        }
    }
}

/// Returns whether the connection is a TCP self-connect: on loopback, a connection to a port without a listener occasionally gets
/// that port as its own source port, and succeeds.
fn is_self_connection(stream: &TcpStream) -> io::Result<bool> {
    Ok(stream.local_addr()? == stream.peer_addr()?)
}

/// Sends the request and reads only the start of the status line: the rest does not matter for health, and may be long.
async fn get(stream: &mut TcpStream, at: SocketAddr, path: &str) -> Result<(), ProbeError> {
    stream.write_all(request(at, path).as_bytes()).await?;
    let mut line = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut line).await?;
    match status(&line).ok_or(ProbeError::NotHttp)? {
        200..=399 => Ok(()),
        other => Err(ProbeError::Status(other)),
    }
}

fn request(at: SocketAddr, path: &str) -> String {
    let path = escape(path);
    format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nUser-Agent: bowline-l4\r\nAccept: */*\r\nConnection: close\r\n\r\n")
}

/// Percent-encodes a path, so that a configured path cannot inject another header line.
fn escape(path: &str) -> String {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let bytes = path.bytes().map(|byte| match byte {
        b'!'..=b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    slash.chars().map(String::from).chain(bytes).collect()
}

fn status(line: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    let (minor, status) = line.split_once(' ')?;
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(minor, 1) && digits(status, 3) { status.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    fn http() -> HealthProbe {
        HealthProbe::Http { path: "/healthz".into() }
    }

    /// Starts a server for one request; its task returns the lines of the request.
    async fn serve_once(host: &str, answer: &'static str) -> (SocketAddr, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut lines = Vec::new();
            while lines.last().is_none_or(|last: &String| !last.trim_end().is_empty()) {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap() == 0 {
                    break;
                }
                lines.push(line);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            lines
        });
        (at, server)
    }

    #[tokio::test]
    async fn the_http_status_decides() {
        let cases = [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.0 204 No Content\r\n\r\n", true),
            ("HTTP/1.1 399\r\n\r\n", true),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", false),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n{\"localEndpoints\": 0}", false),
            ("HTTP/1.1 100 Continue\r\n\r\n", false),
            ("HTTP/2 200 OK\r\n\r\n", false),
            ("SSH-2.0-OpenSSH_9.6\r\n", false),
            ("HTTP/1.1 20", false),
            ("", false),
        ];
        for (answer, healthy) in cases {
            let (at, server) = serve_once("127.0.0.1", answer).await;
            assert_eq!(SocketProber.probe(at, &http()).await.is_ok(), healthy, "{answer:?}");
            server.await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_probe_is_a_valid_http_request() {
        for host in ["127.0.0.1", "::1"] {
            if TcpListener::bind((host, 0)).await.is_err() {
                eprintln!("SKIPPED: this machine has no address {host}");
                continue;
            }
            let (at, server) = serve_once(host, "HTTP/1.1 200 OK\r\n\r\n").await;
            SocketProber.probe(at, &http()).await.unwrap();
            let lines = server.await.unwrap();
            assert_eq!(lines[0], "GET /healthz HTTP/1.1\r\n");
            assert!(lines.contains(&format!("Host: {at}\r\n")), "{lines:?}");
            assert!(lines.contains(&"Connection: close\r\n".to_owned()), "{lines:?}");
        }
    }

    #[test]
    fn a_path_cannot_inject_a_line() {
        let cases =
            [("/healthz?a=b", "/healthz?a=b"), ("live", "/live"), ("", "/"), ("/a b\r\nX: y", "/a%20b%0D%0AX:%20y")];
        for (path, expected) in cases {
            assert_eq!(escape(path), expected);
        }
    }

    #[tokio::test]
    async fn a_tcp_probe_succeeds_if_the_connection_is_established() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        SocketProber.probe(at, &HealthProbe::Tcp).await.unwrap();
        drop(listener);
        assert!(matches!(
            SocketProber.probe(at, &HealthProbe::Tcp).await,
            Err(ProbeError::Connection(_) | ProbeError::SelfConnection)
        ));
    }

    #[tokio::test]
    async fn a_self_connection_is_detected() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = socket.local_addr().unwrap();
        let itself = socket.connect(at).await.unwrap();
        assert!(is_self_connection(&itself).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!is_self_connection(&stream).unwrap());
    }
}
