//! Probes of Services and Pods with real sockets, as a client outside the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Number of sequential requests of a probe: enough to reach each of a few Pods.
const REQUESTS: usize = 8;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Number of attempts with UDP: a datagram may be lost while a socket is being opened.
const DATAGRAMS: usize = 4;

/// Maximum size of a response.
const MAX_RESPONSE: u64 = 64 * 1024;

/// A probe of a Service or Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// Sends HTTP requests to this port of the Service's address, each on a new connection.
    Http(String, u16),
    /// Sends datagrams to this port of the Service's address, each from a new socket.
    Udp(String, u16),
    /// Checks the Service's health-check node port on Nodes.
    Health(String),
    /// Sends HTTP requests to this port of the Pod's own address.
    Pod(String, u16),
}

/// Result of a request: the address or Node, and the response or error.
pub type ProbeResult = (String, Result<String, String>);

/// Results by probe; empty for a probe without an address.
pub type ProbeResults = BTreeMap<Probe, Vec<ProbeResult>>;

impl Probe {
    /// Returns the name of the Service or Pod.
    pub fn object(&self) -> &str {
        match self {
            Probe::Http(name, _) | Probe::Udp(name, _) | Probe::Health(name) | Probe::Pod(name, _) => name,
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Http(_, port) | Probe::Pod(_, port) => write!(f, "over HTTP on port {port}"),
            Probe::Udp(_, port) => write!(f, "over UDP on port {port}"),
            Probe::Health(_) => write!(f, "on the health-check node port"),
        }
    }
}

/// Sends the requests of a probe, up to the first failure.
pub(crate) async fn send(probe: &Probe, address: IpAddr) -> Vec<ProbeResult> {
    let mut results = Vec::new();
    for number in 0..REQUESTS {
        let response = match probe {
            Probe::Http(_, port) | Probe::Pod(_, port) => {
                get(SocketAddr::new(address, *port)).await.map(|(_, body)| body)
            }
            Probe::Udp(_, port) => datagram(SocketAddr::new(address, *port), &format!("ahoy {number}")).await,
            Probe::Health(_) => break,
        };
        let failed = response.is_err();
        results.push((address.to_string(), response.map_err(|error| error.to_string())));
        if failed {
            break;
        }
    }
    results
}

/// Checks the health-check node port of these Nodes; the response is the HTTP status.
pub(crate) async fn probe_health(nodes: Vec<(String, IpAddr)>, port: u16) -> Vec<ProbeResult> {
    let mut results = Vec::new();
    for (node, address) in nodes {
        let response = get(SocketAddr::new(address, port)).await;
        results.push((node, response.map(|(status, _)| status).map_err(|error| error.to_string())));
    }
    results
}

/// Sends a GET request and returns status and body.
async fn get(address: SocketAddr) -> io::Result<(String, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.take(MAX_RESPONSE).read_to_string(&mut response).await?;
        parse(&response).ok_or_else(|| io::Error::other(format!("not an HTTP response: {response:?}")))
    };
    timeout(TIMEOUT, exchange).await?
}

fn parse(response: &str) -> Option<(String, String)> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split_whitespace().next()?;
    Some((status.to_owned(), body.trim_end().to_owned()))
}

/// Sends a datagram and returns the reply without the echoed text.
async fn datagram(address: SocketAddr, text: &str) -> io::Result<String> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    for _ in 0..DATAGRAMS {
        socket.send(text.as_bytes()).await?;
        let mut response = vec![0; 2048];
        let Ok(length) = timeout(TIMEOUT / 4, socket.recv(&mut response)).await else { continue };
        response.truncate(length?);
        let response = String::from_utf8_lossy(&response).into_owned();
        let echoed = response.strip_suffix(text).map(|reply| reply.trim_end().to_owned());
        return echoed.ok_or_else(|| io::Error::other(format!("expected an echo of {text:?}, received {response:?}")));
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_and_a_body() {
        let get = parse("HTTP/1.1 503 Service Unavailable\r\nA: b\r\n\r\n{}\n");
        assert_eq!(get, Some(("503".to_owned(), "{}".to_owned())));
        for broken in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0\r\n\r\n", "HTTP/1.1 \r\n\r\n"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported_once() {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let results = send(&Probe::Http("s".to_owned(), free.port()), free.ip()).await;
        assert!(matches!(&results[..], [(_, Err(error))] if error.contains("refused")), "{results:?}");
    }

    #[tokio::test]
    async fn the_reply_must_echo_the_datagram() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = server.local_addr().unwrap();
        let answering = async {
            for response in ["hello\nahoy", "hello\nahoi"] {
                let mut received = [0; 64];
                let (_, client) = server.recv_from(&mut received).await.unwrap();
                server.send_to(response.as_bytes(), client).await.unwrap();
            }
        };
        let requests = async { (datagram(address, "ahoy").await.ok(), datagram(address, "ahoy").await.is_err()) };
        let ((), answers) = tokio::join!(answering, requests);
        assert_eq!(answers, (Some("hello".to_owned()), true));
    }
}
