//! Targets, clients and configurations for tests, on loopback addresses that no other test uses.

#![allow(dead_code, reason = "each test file uses a part of this module")]

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bowline_l4::{
    Counters, DataPlane, Limits, ListenerConfig, LoadBalancerConfig, LoadBalancerStatus, Target, TargetStatus,
    Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// Timeout that only a failing test reaches.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a loopback address that no other test uses.
pub(crate) fn fresh_address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id() % 60_000;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    IpAddr::V4(Ipv4Addr::from(0x7f00_0000 + 0x1_0000 + process * 256 + number))
}

/// Port of listeners. It is free, because no other test uses a fresh address.
pub(crate) const PORT: u16 = 18_080;

pub(crate) fn plane() -> DataPlane {
    DataPlane::new(Limits::default())
}

/// Returns a load balancer with one address, one TCP port and these targets.
pub(crate) fn load_balancer(address: IpAddr, targets: &[SocketAddr]) -> LoadBalancerConfig {
    LoadBalancerConfig {
        addresses: vec![address],
        listeners: vec![listener(PORT, targets)],
        allow: Vec::new(),
        drain: TIMEOUT * 10,
    }
}

pub(crate) fn listener(port: u16, targets: &[SocketAddr]) -> ListenerConfig {
    ListenerConfig::new(Transport::Tcp, port, targets.iter().copied().map(Target::new).collect())
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "timeout while waiting for: {what}");
}

/// Fails the test if the future takes longer than [`TIMEOUT`].
pub(crate) async fn within_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("timeout: {what}"),
    }
}

/// A target that sends its own address, then echoes, and half-closes when the client does.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Echo {
    pub(crate) async fn start() -> Echo {
        Echo::start_at(SocketAddr::new(fresh_address(), 0)).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Echo {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream, address));
            }
        });
        Echo { address, task }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(mut stream: TcpStream, address: SocketAddr) -> std::io::Result<()> {
    stream.write_all(format!("{:>21}", address.to_string()).as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

/// A client of an [`Echo`].
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Target that answered.
    pub(crate) target: SocketAddr,
}

impl Client {
    pub(crate) async fn connect(address: IpAddr) -> Client {
        Client::try_connect(SocketAddr::new(address, PORT)).await.unwrap()
    }

    pub(crate) async fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let mut stream = within_timeout("connect", TcpStream::connect(address)).await?;
        let mut greeting = [0; 21];
        within_timeout("greeting", stream.read_exact(&mut greeting)).await?;
        let target = String::from_utf8_lossy(&greeting).trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        Ok(Client { stream, target })
    }

    /// Sends bytes and expects their echo.
    pub(crate) async fn echo(&mut self, text: &str) -> std::io::Result<()> {
        within_timeout("send", self.stream.write_all(text.as_bytes())).await?;
        let mut back = vec![0; text.len()];
        within_timeout("receive", self.stream.read_exact(&mut back)).await?;
        if back == text.as_bytes() { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }

    /// Waits until the load balancer closes the connection, and checks that it does so with RST.
    pub(crate) async fn expect_reset(mut self) {
        let mut byte = [0];
        let read = within_timeout("reset", self.stream.read(&mut byte)).await;
        let is_reset = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(is_reset, "not reset: {read:?}");
    }
}

/// Returns whether a client gets an RST.
pub(crate) async fn reset(address: SocketAddr) -> bool {
    let Ok(mut stream) = within_timeout("connect", TcpStream::connect(address)).await else { return false };
    let mut byte = [0];
    let read = within_timeout("reset", stream.read(&mut byte)).await;
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

pub(crate) async fn refused(address: IpAddr) -> bool {
    let connected = within_timeout("connect", TcpStream::connect((address, PORT))).await;
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

pub(crate) fn status(plane: &DataPlane) -> LoadBalancerStatus {
    plane.status("a").unwrap()
}

/// Returns the counters of the first listener.
pub(crate) fn counters(plane: &DataPlane) -> Counters {
    status(plane).listeners[0].counters
}

/// Returns the targets of the first listener.
pub(crate) fn targets(plane: &DataPlane) -> Vec<TargetStatus> {
    status(plane).listeners[0].targets.clone()
}

/// A UDP target that replies with its own address and the datagram.
pub(crate) struct UdpEcho {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl UdpEcho {
    pub(crate) async fn start() -> UdpEcho {
        let socket = UdpSocket::bind((fresh_address(), 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
                let reply = [format!("{address} ").as_bytes(), &buffer[..length]].concat();
                let _ = socket.send_to(&reply, client).await;
            }
        });
        UdpEcho { address, task }
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A client of a [`UdpEcho`].
pub(crate) struct UdpClient(UdpSocket);

impl UdpClient {
    pub(crate) async fn connect(address: IpAddr) -> UdpClient {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // Connected, so that it receives replies from the load balancer's address only.
        socket.connect((address, PORT)).await.unwrap();
        UdpClient(socket)
    }

    pub(crate) async fn send(&self, text: &str) {
        self.0.send(text.as_bytes()).await.unwrap();
    }

    /// Sends a datagram and returns the target that replies.
    pub(crate) async fn echo(&self, text: &str) -> SocketAddr {
        self.send(text).await;
        let mut buffer = vec![0; 65_536];
        let length = within_timeout("a reply", self.0.recv(&mut buffer)).await.unwrap();
        let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (target, back) = answer.split_once(' ').unwrap();
        assert_eq!(back, text);
        target.parse().unwrap()
    }
}
