//! Traffic to a Service, as somebody outside the cluster makes it: real sockets, and what comes back.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How often a Service is asked, one after the other: enough that each of a few Pods has its turn.
const TRIES: usize = 8;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A datagram may be lost, even here, while a socket is being opened.
const DATAGRAMS: usize = 4;

/// No answer is longer.
const LONGEST: u64 = 64 * 1024;

/// Something to try out on a Service or a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// Asks for a page at this port of its address, several times, with a new connection each.
    Http(String, u16),
    /// Sends datagrams to this port of its address, several times, from a new socket each.
    Udp(String, u16),
    /// Asks Nodes at its health-check node port.
    Health(String),
    /// Asks a Pod for a page at this port of its own address, several times.
    Pod(String, u16),
}

/// What came of it: who was asked, and the answer or why there is none.
pub type Finding = (String, Result<String, String>);

/// All that was tried. What could not be tried, because there is no address yet, has no findings.
pub type Findings = BTreeMap<Probe, Vec<Finding>>;

impl Probe {
    /// The Service, or the Pod.
    pub fn whom(&self) -> &str {
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

/// Asks until it has been answered often enough, or once is not.
pub(crate) async fn ask(probe: &Probe, address: IpAddr) -> Vec<Finding> {
    let mut findings = Vec::new();
    for number in 0..TRIES {
        let answer = match probe {
            Probe::Http(_, port) | Probe::Pod(_, port) => {
                page(SocketAddr::new(address, *port)).await.map(|(_, body)| body)
            }
            Probe::Udp(_, port) => datagram(SocketAddr::new(address, *port), &format!("ahoy {number}")).await,
            Probe::Health(_) => break,
        };
        let failed = answer.is_err();
        findings.push((address.to_string(), answer.map_err(|error| error.to_string())));
        if failed {
            break;
        }
    }
    findings
}

/// Asks each of these Nodes whether it wants traffic; the answer is the status.
pub(crate) async fn ask_health(nodes: Vec<(String, IpAddr)>, port: u16) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (node, address) in nodes {
        let answer = page(SocketAddr::new(address, port)).await;
        findings.push((node, answer.map(|(status, _)| status).map_err(|error| error.to_string())));
    }
    findings
}

/// The status and the body.
async fn page(address: SocketAddr) -> io::Result<(String, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.take(LONGEST).read_to_string(&mut answer).await?;
        parse(&answer).ok_or_else(|| io::Error::other(format!("the answer is no page: {answer:?}")))
    };
    timeout(PATIENCE, asked).await?
}

fn parse(answer: &str) -> Option<(String, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split_whitespace().next()?;
    Some((status.to_owned(), body.trim_end().to_owned()))
}

/// What came back before the words that were sent.
async fn datagram(address: SocketAddr, words: &str) -> io::Result<String> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    for _ in 0..DATAGRAMS {
        socket.send(words.as_bytes()).await?;
        let mut answer = vec![0; 2048];
        let Ok(length) = timeout(PATIENCE / 4, socket.recv(&mut answer)).await else { continue };
        answer.truncate(length?);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let echoed = answer.strip_suffix(words).map(|said| said.trim_end().to_owned());
        return echoed.ok_or_else(|| io::Error::other(format!("{words:?} came back as {answer:?}")));
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_status_and_a_body() {
        let page = parse("HTTP/1.1 503 Service Unavailable\r\nA: b\r\n\r\n{}\n");
        assert_eq!(page, Some(("503".to_owned(), "{}".to_owned())));
        for broken in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0\r\n\r\n", "HTTP/1.1 \r\n\r\n"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn where_nobody_listens_there_is_one_finding_that_says_so() {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let findings = ask(&Probe::Http("s".to_owned(), free.port()), free.ip()).await;
        assert!(matches!(&findings[..], [(_, Err(error))] if error.contains("refused")), "{findings:?}");
    }

    #[tokio::test]
    async fn an_echo_must_be_of_what_was_said() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = server.local_addr().unwrap();
        let answering = async {
            for answer in ["hello\nahoy", "hello\nahoi"] {
                let mut heard = [0; 64];
                let (_, client) = server.recv_from(&mut heard).await.unwrap();
                server.send_to(answer.as_bytes(), client).await.unwrap();
            }
        };
        let asking = async { (datagram(address, "ahoy").await.ok(), datagram(address, "ahoy").await.is_err()) };
        let ((), answers) = tokio::join!(answering, asking);
        assert_eq!(answers, (Some("hello".to_owned()), true));
    }
}
