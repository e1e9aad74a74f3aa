//! Targets, clients and configurations for the tests of this folder. All on loopback addresses that no other test uses.

#![allow(dead_code, reason = "every test file uses another part")]

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bowline_l4::{
    BalancerConfig, BalancerStatus, Counters, DataPlane, Limits, ListenerConfig, Target, TargetStatus, Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// Longer than anything here takes; only a test that fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address that nobody else uses.
pub(crate) fn fresh_address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id() % 60_000;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    IpAddr::V4(Ipv4Addr::from(0x7f00_0000 + 0x1_0000 + process * 256 + number))
}

/// A port that is free at a fresh address. Nobody takes it, as nobody else uses the address.
pub(crate) const PORT: u16 = 18_080;

pub(crate) fn plane() -> DataPlane {
    DataPlane::new(Limits::default())
}

/// A balancer at one address, one TCP port and these targets.
pub(crate) fn balancer(address: IpAddr, targets: &[SocketAddr]) -> BalancerConfig {
    BalancerConfig {
        addresses: vec![address],
        listeners: vec![listener(PORT, targets)],
        allow: Vec::new(),
        drain: PATIENCE * 10,
    }
}

pub(crate) fn listener(port: u16, targets: &[SocketAddr]) -> ListenerConfig {
    ListenerConfig::new(Transport::Tcp, port, targets.iter().copied().map(Target::new).collect())
}

/// Waits until this is so.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never came true: {what}");
}

/// Nothing may take for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("took too long: {what}"),
    }
}

/// A target that says its own port in a line, then sends back what it gets, and ends when the client does.
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
    /// The target that answered.
    pub(crate) target: SocketAddr,
}

impl Client {
    pub(crate) async fn connect(address: IpAddr) -> Client {
        Client::try_connect(SocketAddr::new(address, PORT)).await.unwrap()
    }

    pub(crate) async fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let mut stream = soon("connect", TcpStream::connect(address)).await?;
        let mut said = [0; 21];
        soon("greeting", stream.read_exact(&mut said)).await?;
        let target = String::from_utf8_lossy(&said).trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        Ok(Client { stream, target })
    }

    /// Bytes go there and come back.
    pub(crate) async fn talk(&mut self, words: &str) -> std::io::Result<()> {
        soon("send", self.stream.write_all(words.as_bytes())).await?;
        let mut back = vec![0; words.len()];
        soon("receive", self.stream.read_exact(&mut back)).await?;
        if back == words.as_bytes() { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }

    /// Waits until the load balancer has cut the connection, which must not look like a regular end.
    pub(crate) async fn cut(mut self) {
        let mut byte = [0];
        let read = soon("cutting", self.stream.read(&mut byte)).await;
        let is_reset = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(is_reset, "not reset: {read:?}");
    }
}

/// What a client sees that is turned away.
pub(crate) async fn reset(address: SocketAddr) -> bool {
    let Ok(mut stream) = soon("connect", TcpStream::connect(address)).await else { return false };
    let mut byte = [0];
    let read = soon("reset", stream.read(&mut byte)).await;
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

pub(crate) async fn refused(address: IpAddr) -> bool {
    let connected = soon("connect", TcpStream::connect((address, PORT))).await;
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

pub(crate) fn status(plane: &DataPlane) -> BalancerStatus {
    plane.status("a").unwrap()
}

/// The counters of the first listener.
pub(crate) fn counters(plane: &DataPlane) -> Counters {
    status(plane).listeners[0].counters
}

/// The targets of the first listener.
pub(crate) fn targets(plane: &DataPlane) -> Vec<TargetStatus> {
    status(plane).listeners[0].targets.clone()
}

/// A target for datagrams: sends back its own address and what it got.
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
        // Answers from any other address than the balancer's are not received.
        socket.connect((address, PORT)).await.unwrap();
        UdpClient(socket)
    }

    pub(crate) async fn send(&self, words: &str) {
        self.0.send(words.as_bytes()).await.unwrap();
    }

    /// Who answers.
    pub(crate) async fn ask(&self, words: &str) -> SocketAddr {
        self.send(words).await;
        let mut buffer = vec![0; 65_536];
        let length = soon("an answer", self.0.recv(&mut buffer)).await.unwrap();
        let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (target, back) = answer.split_once(' ').unwrap();
        assert_eq!(back, words);
        target.parse().unwrap()
    }
}
