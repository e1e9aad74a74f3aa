//! Tests with real sockets on loopback addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::filter::SourceFilter;
use crate::frontend::Settings;
use crate::health::HealthState;
use crate::pool::Pool;
use crate::{Algorithm, HealthCheck, HealthProbe, ListenerConfig, Target, Transport};

/// Timeout that only a failing test reaches.
const PATIENCE: Duration = Duration::from_secs(20);

/// A target that replies with its own port and the datagram.
struct Echo {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Echo {
    async fn at(address: impl Into<SocketAddr>) -> Echo {
        let socket = UdpSocket::bind(address.into()).await.unwrap();
        let address = socket.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; MAX_DATAGRAM];
            loop {
                let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
                let reply = [&address.port().to_be_bytes(), &buffer[..length.min(60_000)]].concat();
                socket.send_to(&reply, client).await.unwrap();
            }
        });
        Echo { address, task }
    }

    /// Stops the target and waits until its socket is closed.
    async fn stop(self) -> SocketAddr {
        self.task.abort();
        let _ = self.task.await;
        self.address
    }
}

/// A running listener with its pool.
struct Stage {
    frontend: Arc<Frontend>,
    pool: Arc<Pool>,
    config: ListenerConfig,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Stage {
    async fn new(echoes: &[&Echo]) -> Stage {
        Stage::with(echoes, Ipv4Addr::LOCALHOST.into(), 100, |_| {}).await
    }

    async fn with(echoes: &[&Echo], at: IpAddr, flows: usize, change: impl FnOnce(&mut Stage)) -> Stage {
        let targets = echoes.iter().map(|echo| Target::new(echo.address)).collect();
        let config = ListenerConfig::new(Transport::Udp, 1, targets);
        let socket = UdpSocket::bind((at, 0)).await.unwrap();
        let pool = Arc::new(Pool::new(&config, 100));
        let frontend = Frontend::new(socket.local_addr().unwrap(), 0, settings(&pool, &config, &[]));
        let (frontend, stop) = (Arc::new(frontend), CancellationToken::new());
        let serving = tokio::spawn(serve(socket, frontend.clone(), flows, stop.clone()));
        let mut stage = Stage { frontend, pool, config, stop, serving };
        change(&mut stage);
        stage.set(|_| Arc::default());
        stage
    }

    fn set(&self, state: impl Fn(SocketAddr) -> Arc<HealthState>) {
        self.pool.set(&self.config, Duration::ZERO, state);
        self.frontend.set_settings(settings(&self.pool, &self.config, &[]));
    }

    async fn client(&self) -> Client {
        let any: SocketAddr = if self.frontend.address.is_ipv4() {
            (Ipv4Addr::LOCALHOST, 0).into()
        } else {
            (Ipv6Addr::LOCALHOST, 0).into()
        };
        let socket = UdpSocket::bind(any).await.unwrap();
        // Connected, so that it receives replies from the listener's address only.
        socket.connect(self.frontend.address).await.unwrap();
        Client(socket)
    }

    async fn until(&self, what: &str, holds: impl Fn(&crate::Counters) -> bool) {
        let wait = async {
            while !holds(&self.frontend.counters.read()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let counters = || self.frontend.counters.read();
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never {what}: {:?}", counters()));
    }
}

fn settings(pool: &Arc<Pool>, config: &ListenerConfig, allow: &[IpNet]) -> Settings {
    Settings {
        pool: pool.clone(),
        filter: Arc::new(SourceFilter::new(allow)),
        proxy_protocol: None,
        idle_timeout: config.idle_timeout,
        connect_timeout: config.connect_timeout,
    }
}

struct Client(UdpSocket);

impl Client {
    async fn send(&self, text: &[u8]) {
        self.0.send(text).await.unwrap();
    }

    /// Receives a reply: the port of the target, and the data.
    async fn reply(&self) -> (u16, Vec<u8>) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        let length = timeout(PATIENCE, self.0.recv(&mut buffer)).await.expect("an answer").unwrap();
        (u16::from_be_bytes([buffer[0], buffer[1]]), buffer[2..length].to_vec())
    }

    async fn echo(&self, text: &[u8]) -> u16 {
        self.send(text).await;
        let (who, reply) = self.reply().await;
        assert_eq!(reply, text);
        who
    }

    /// Sends until a target replies: the first datagrams may be lost.
    async fn ping_until_reply(&self) -> u16 {
        let mut buffer = [0; 2];
        let answered = async {
            loop {
                self.send(b"").await;
                if let Ok(Ok(2)) = timeout(Duration::from_millis(20), self.0.recv(&mut buffer)).await {
                    return u16::from_be_bytes(buffer);
                }
            }
        };
        timeout(PATIENCE, answered).await.expect("an answer")
    }
}

fn local() -> (Ipv4Addr, u16) {
    (Ipv4Addr::LOCALHOST, 0)
}

#[tokio::test]
async fn datagrams_reach_a_target_and_replies_come_from_the_listener() {
    let (here, there) = (Echo::at(local()).await, Echo::at(local()).await);
    check_forwarding(&here, &there, Ipv4Addr::LOCALHOST.into()).await;
}

#[tokio::test]
async fn listener_and_targets_may_have_different_families() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await.is_err() {
        eprintln!("SKIPPED: this machine has no IPv6 loopback address");
        return;
    }
    let (v4, v6) = (Echo::at(local()).await, Echo::at((Ipv6Addr::LOCALHOST, 0)).await);
    check_forwarding(&v4, &v6, Ipv4Addr::LOCALHOST.into()).await;
    check_forwarding(&v4, &v6, Ipv6Addr::LOCALHOST.into()).await;
}

async fn check_forwarding(first: &Echo, second: &Echo, at: IpAddr) {
    let stage = Stage::with(&[first, second], at, 100, |_| {}).await;
    let clients = [stage.client().await, stage.client().await];
    assert_eq!(clients[0].echo(b"hello").await, first.address.port());
    assert_eq!(clients[1].echo(b"world!").await, second.address.port());
    assert_eq!(clients[0].echo(b"").await, first.address.port(), "a flow stays with its target");
    let counters = stage.frontend.counters.read();
    assert_eq!((counters.accepted, counters.open, counters.failed), (2, 2, 0));
    assert_eq!((counters.bytes_in, counters.bytes_out), (11, 17));
}

#[tokio::test]
async fn the_longest_datagram_passes() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let client = stage.client().await;
    let longest: Vec<u8> = (0..65_507).map(|n| n as u8).collect();
    client.send(&longest).await;
    assert_eq!(client.reply().await.1, longest[..60_000]);
    assert_eq!(stage.frontend.counters.bytes_in.get(), 65_507);
}

#[tokio::test]
async fn datagrams_of_a_denied_client_are_dropped() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let allow = ["127.9.0.0/16".parse().unwrap()];
    stage.frontend.set_settings(settings(&stage.pool, &stage.config, &allow));
    stage.client().await.send(b"let me in").await;
    stage.until("denied", |counters| counters.denied == 1).await;
    let counters = stage.frontend.counters.read();
    assert_eq!((counters.accepted, counters.open, counters.failed), (0, 0, 0));
}

#[tokio::test]
async fn without_a_target_no_flow_is_created() {
    let stage = Stage::new(&[]).await;
    stage.client().await.send(b"hello").await;
    stage.until("failed", |counters| counters.failed == 1).await;
    assert_eq!(stage.frontend.counters.open.get(), 0);
}

#[tokio::test]
async fn the_longest_idle_flow_is_evicted_and_both_directions_count_as_activity() {
    for client_speaks in [true, false] {
        let target = UdpSocket::bind(local()).await.unwrap();
        let one = |stage: &mut Stage| stage.config.targets = vec![Target::new(target.local_addr().unwrap())];
        let stage = Stage::with(&[], Ipv4Addr::LOCALHOST.into(), 2, one).await;
        let clients = [stage.client().await, stage.client().await, stage.client().await];
        let (first, second) = (reaches(&clients[0], &target).await, reaches(&clients[1], &target).await);
        assert_ne!(first, second, "each flow has a socket of its own");
        if client_speaks {
            assert_eq!(reaches(&clients[0], &target).await, first);
        } else {
            target.send_to(b"..unasked", first).await.unwrap();
            assert_eq!(clients[0].reply().await.1, b"unasked");
        }
        reaches(&clients[2], &target).await;
        assert_eq!(reaches(&clients[0], &target).await, first, "the same flow");
        reaches(&clients[1], &target).await;
        let counters = stage.frontend.counters.read();
        assert_eq!((counters.accepted, counters.open), (4, 2), "the second client has a new flow");
    }
}

/// Sends a datagram and returns the source address that the target sees.
async fn reaches(client: &Client, target: &UdpSocket) -> SocketAddr {
    client.send(b"ping").await;
    let mut buffer = [0; 10];
    timeout(PATIENCE, target.recv_from(&mut buffer)).await.expect("the datagram arrives").unwrap().1
}

#[tokio::test]
async fn an_idle_flow_ends_and_is_not_open_at_its_target() {
    let echo = Echo::at(local()).await;
    let short = |stage: &mut Stage| stage.config.idle_timeout = Duration::from_millis(1);
    let stage = Stage::with(&[&echo], Ipv4Addr::LOCALHOST.into(), 100, short).await;
    stage.client().await.send(b"once").await;
    stage.until("idled", |counters| counters.idled == 1 && counters.open == 0).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // The tasks of the target and the listener.
    let alone = async {
        while tasks() > 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, alone).await.expect("the reply task ends");
    assert_eq!((stage.pool.statuses()[0].open, stage.pool.statuses()[0].total), (0, 1));
}

#[tokio::test]
async fn a_flow_moves_when_its_target_is_unreachable() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    // With affinity, which would keep the client at its target.
    let affine = |stage: &mut Stage| stage.config.affinity = Some(Duration::from_secs(60));
    let stage = Stage::with(&[&first, &second], Ipv4Addr::LOCALHOST.into(), 100, affine).await;
    let other = second.address.port();
    let client = stage.client().await;
    assert_eq!(client.echo(b"hello").await, first.address.port());
    first.stop().await;
    assert_eq!(client.ping_until_reply().await, other);
    let counters = stage.frontend.counters.read();
    assert_eq!((counters.accepted, counters.open), (1, 1), "the flow is kept");
    assert!(counters.failed >= 1, "{counters:?}");
    assert_eq!(stage.pool.statuses().iter().map(|target| target.open).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn an_unreachable_target_is_detected_without_another_datagram() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let client = stage.client().await;
    client.echo(b"hello").await;
    echo.stop().await;
    client.send(b"to a stopped target").await;
    stage.until("refused", |counters| counters.failed == 1).await;
}

#[tokio::test]
async fn the_only_target_is_used_again_when_it_is_back() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let client = stage.client().await;
    client.echo(b"hello").await;
    let address = echo.stop().await;
    client.send(b"to a stopped target").await;
    stage.until("refused", |counters| counters.failed >= 1).await;
    let again = Echo::at(address).await;
    assert_eq!(client.ping_until_reply().await, again.address.port());
}

#[tokio::test]
async fn a_flow_leaves_an_unhealthy_target_if_there_is_another() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    let stage = Stage::new(&[&first, &second]).await;
    let client = stage.client().await;
    assert_eq!(client.echo(b"one").await, first.address.port());
    let unhealthy = |those: Vec<SocketAddr>| {
        move |address: SocketAddr| {
            let state = HealthState::default();
            let interval = Duration::from_secs(1);
            let probe = HealthProbe::Tcp;
            let check = HealthCheck { probe, port: None, interval, timeout: interval, rise: 1, fall: 1 };
            state.record(!those.contains(&address), &check);
            Arc::new(state)
        }
    };
    stage.set(unhealthy(vec![first.address]));
    assert_eq!(client.echo(b"two").await, second.address.port());
    stage.set(unhealthy(vec![first.address, second.address]));
    assert_eq!(client.echo(b"three").await, second.address.port());
    stage.set(unhealthy(vec![second.address]));
    assert_eq!(client.echo(b"four").await, first.address.port());
}

#[tokio::test]
async fn a_draining_target_keeps_its_flows_and_gets_no_new_ones() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    let mut stage = Stage::new(&[&first, &second]).await;
    let old = stage.client().await;
    assert_eq!(old.echo(b"hello").await, first.address.port());
    stage.config.targets[0].draining = true;
    stage.set(|_| Arc::default());
    assert_eq!(old.echo(b"still me").await, first.address.port());
    for _ in 0..3 {
        assert_eq!(stage.client().await.echo(b"new").await, second.address.port());
    }
}

#[tokio::test]
async fn flows_of_a_removed_target_end_and_new_ones_use_another_target() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    let mut stage = Stage::new(&[&first, &second]).await;
    let client = stage.client().await;
    assert_eq!(client.echo(b"hello").await, first.address.port());
    stage.config.targets.remove(0);
    stage.set(|_| Arc::default());
    stage.until("closed", |counters| counters.open == 0).await;
    assert_eq!(client.echo(b"hello").await, second.address.port());
    assert_eq!(stage.frontend.counters.read().accepted, 2);
}

#[tokio::test]
async fn with_affinity_flows_of_one_address_use_one_target() {
    let echoes = [Echo::at(local()).await, Echo::at(local()).await, Echo::at(local()).await];
    let affine = |stage: &mut Stage| stage.config.affinity = Some(Duration::from_secs(60));
    let stage = Stage::with(&echoes.each_ref(), Ipv4Addr::LOCALHOST.into(), 100, affine).await;
    let first = stage.client().await.echo(b"1").await;
    for _ in 0..5 {
        assert_eq!(stage.client().await.echo(b"n").await, first);
    }
}

#[tokio::test]
async fn flows_are_distributed_by_the_algorithm() {
    let echoes = [Echo::at(local()).await, Echo::at(local()).await];
    let least = |stage: &mut Stage| stage.config.algorithm = Algorithm::LeastConnections;
    let stage = Stage::with(&echoes.each_ref(), Ipv4Addr::LOCALHOST.into(), 100, least).await;
    for _ in 0..6 {
        stage.client().await.echo(b"n").await;
    }
    assert_eq!(stage.pool.statuses().iter().map(|target| target.open).collect::<Vec<_>>(), [3, 3]);
}

#[tokio::test]
async fn after_stopping_the_address_is_free_and_no_flow_is_open() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    for _ in 0..10 {
        stage.client().await.echo(b"n").await;
    }
    stage.stop.cancel();
    timeout(PATIENCE, stage.serving).await.expect("the listener stops").unwrap();
    UdpSocket::bind(stage.frontend.address).await.expect("the address is free");
    assert_eq!(stage.frontend.counters.open.get(), 0);
    assert_eq!(stage.pool.statuses()[0].open, 0);
}

/// Tokio considers a new socket not writable, like one whose buffer is full.
#[tokio::test]
async fn the_listener_does_not_wait_for_a_flow() {
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let config = ListenerConfig::new(Transport::Udp, 1, vec![Target::new(target.local_addr().unwrap())]);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, pool) = (socket.local_addr().unwrap(), Arc::new(Pool::new(&config, 100)));
    pool.set(&config, Duration::ZERO, |_| Arc::default());
    let frontend = Arc::new(Frontend::new(address, 0, settings(&pool, &config, &[])));
    let mut listener = Listener::new(socket, frontend, 10);
    for _ in 0..3 {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().send_to(b"hello", address).await.unwrap();
    }
    timeout(PATIENCE, listener.socket.readable()).await.unwrap().unwrap();
    {
        let mut taking = std::pin::pin!(listener.receive());
        let taken = taking.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(taken.is_ready(), "the listener waits for a flow");
    }
    assert_eq!(listener.flows.len(), 3);
    for _ in 0..3 {
        timeout(PATIENCE, target.recv(&mut [0; 16])).await.unwrap().unwrap();
    }
}
