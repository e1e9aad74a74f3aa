//! Real datagrams between real sockets, on loopback.

use std::net::IpAddr;

use ipnet::IpNet;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::filter::SourceFilter;
use crate::frontend::Rules;
use crate::health::Verdict;
use crate::pool::Pool;
use crate::{Algorithm, HealthCheck, HealthProbe, ListenerConfig, Target, Transport};

/// Long enough to be never reached unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Echoes datagrams with its own port in front.
struct Echo {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Echo {
    async fn at(address: impl Into<SocketAddr>) -> Echo {
        let socket = UdpSocket::bind(address.into()).await.unwrap();
        let address = socket.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; LONGEST];
            loop {
                let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
                let reply = [&address.port().to_be_bytes(), &buffer[..length.min(60_000)]].concat();
                socket.send_to(&reply, client).await.unwrap();
            }
        });
        Echo { address, task }
    }

    /// Returns once nothing listens there any more.
    async fn stop(self) -> SocketAddr {
        self.task.abort();
        let _ = self.task.await;
        self.address
    }
}

/// A listener, and what is behind it.
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
        let frontend = Frontend::new(socket.local_addr().unwrap(), 0, rules(&pool, &config, &[]));
        let (frontend, stop) = (Arc::new(frontend), CancellationToken::new());
        let serving = tokio::spawn(serve(socket, frontend.clone(), flows, stop.clone()));
        let mut stage = Stage { frontend, pool, config, stop, serving };
        change(&mut stage);
        stage.set(|_| Arc::default());
        stage
    }

    fn set(&self, verdict: impl Fn(SocketAddr) -> Arc<Verdict>) {
        self.pool.set(&self.config, Duration::ZERO, verdict);
        self.frontend.set_rules(rules(&self.pool, &self.config, &[]));
    }

    async fn client(&self) -> Client {
        let any: SocketAddr = if self.frontend.address.is_ipv4() {
            (Ipv4Addr::LOCALHOST, 0).into()
        } else {
            (Ipv6Addr::LOCALHOST, 0).into()
        };
        let socket = UdpSocket::bind(any).await.unwrap();
        // Connected, so that answers from any other address than the listener's are not received.
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

fn rules(pool: &Arc<Pool>, config: &ListenerConfig, allow: &[IpNet]) -> Rules {
    Rules {
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

    /// Who answered, and what.
    async fn answer(&self) -> (u16, Vec<u8>) {
        let mut buffer = vec![0; LONGEST];
        let length = timeout(PATIENCE, self.0.recv(&mut buffer)).await.expect("an answer").unwrap();
        (u16::from_be_bytes([buffer[0], buffer[1]]), buffer[2..length].to_vec())
    }

    async fn ask(&self, text: &[u8]) -> u16 {
        self.send(text).await;
        let (who, answer) = self.answer().await;
        assert_eq!(answer, text);
        who
    }

    /// Sends until somebody answers: for when the first ones may be lost.
    async fn insist(&self) -> u16 {
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
async fn datagrams_go_to_a_target_and_answers_come_back_from_the_listener() {
    let (here, there) = (Echo::at(local()).await, Echo::at(local()).await);
    carries_between(&here, &there, Ipv4Addr::LOCALHOST.into()).await;
}

#[tokio::test]
async fn the_families_of_the_listener_and_of_targets_may_differ() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await.is_err() {
        eprintln!("SKIPPED: this machine has no IPv6 loopback address");
        return;
    }
    let (v4, v6) = (Echo::at(local()).await, Echo::at((Ipv6Addr::LOCALHOST, 0)).await);
    carries_between(&v4, &v6, Ipv4Addr::LOCALHOST.into()).await;
    carries_between(&v4, &v6, Ipv6Addr::LOCALHOST.into()).await;
}

async fn carries_between(first: &Echo, second: &Echo, at: IpAddr) {
    let stage = Stage::with(&[first, second], at, 100, |_| {}).await;
    let clients = [stage.client().await, stage.client().await];
    assert_eq!(clients[0].ask(b"hello").await, first.address.port());
    assert_eq!(clients[1].ask(b"world!").await, second.address.port());
    assert_eq!(clients[0].ask(b"").await, first.address.port(), "a flow stays with its target");
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
    assert_eq!(client.answer().await.1, longest[..60_000]);
    assert_eq!(stage.frontend.counters.bytes_in.get(), 65_507);
}

#[tokio::test]
async fn who_may_not_send_is_not_heard() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let allow = ["127.9.0.0/16".parse().unwrap()];
    stage.frontend.set_rules(rules(&stage.pool, &stage.config, &allow));
    stage.client().await.send(b"let me in").await;
    stage.until("denied", |counters| counters.denied == 1).await;
    let counters = stage.frontend.counters.read();
    assert_eq!((counters.accepted, counters.open, counters.failed), (0, 0, 0));
}

#[tokio::test]
async fn without_a_target_there_is_no_flow() {
    let stage = Stage::new(&[]).await;
    stage.client().await.send(b"anybody?").await;
    stage.until("failed", |counters| counters.failed == 1).await;
    assert_eq!(stage.frontend.counters.open.get(), 0);
}

#[tokio::test]
async fn the_longest_silent_flow_makes_room_and_both_sides_break_the_silence() {
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
            assert_eq!(clients[0].answer().await.1, b"unasked");
        }
        reaches(&clients[2], &target).await;
        assert_eq!(reaches(&clients[0], &target).await, first, "not begun anew");
        reaches(&clients[1], &target).await;
        let counters = stage.frontend.counters.read();
        assert_eq!((counters.accepted, counters.open), (4, 2), "the second one was begun anew");
    }
}

/// Where a datagram of this client comes from when it arrives.
async fn reaches(client: &Client, target: &UdpSocket) -> SocketAddr {
    client.send(b"ping").await;
    let mut buffer = [0; 10];
    timeout(PATIENCE, target.recv_from(&mut buffer)).await.expect("it arrives").unwrap().1
}

#[tokio::test]
async fn a_silent_flow_ends_and_its_target_has_one_less() {
    let echo = Echo::at(local()).await;
    let short = |stage: &mut Stage| stage.config.idle_timeout = Duration::from_millis(1);
    let stage = Stage::with(&[&echo], Ipv4Addr::LOCALHOST.into(), 100, short).await;
    stage.client().await.send(b"once").await;
    stage.until("idled", |counters| counters.idled == 1 && counters.open == 0).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // The target and the listener.
    let alone = async {
        while tasks() > 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, alone).await.expect("nobody waits for answers any more");
    assert_eq!((stage.pool.statuses()[0].open, stage.pool.statuses()[0].total), (0, 1));
}

#[tokio::test]
async fn a_flow_moves_when_nothing_listens_at_its_target_any_more() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    // With affinity, by which the client would have its target for good.
    let affine = |stage: &mut Stage| stage.config.affinity = Some(Duration::from_secs(60));
    let stage = Stage::with(&[&first, &second], Ipv4Addr::LOCALHOST.into(), 100, affine).await;
    let other = second.address.port();
    let client = stage.client().await;
    assert_eq!(client.ask(b"hello").await, first.address.port());
    first.stop().await;
    assert_eq!(client.insist().await, other);
    let counters = stage.frontend.counters.read();
    assert_eq!((counters.accepted, counters.open), (1, 1), "it is the same flow");
    assert!(counters.failed >= 1, "{counters:?}");
    assert_eq!(stage.pool.statuses().iter().map(|target| target.open).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn a_flow_is_noticed_to_lead_nowhere_without_another_datagram() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let client = stage.client().await;
    client.ask(b"hello").await;
    echo.stop().await;
    client.send(b"to nobody").await;
    stage.until("refused", |counters| counters.failed == 1).await;
}

#[tokio::test]
async fn the_only_target_is_found_again_when_it_is_back() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    let client = stage.client().await;
    client.ask(b"hello").await;
    let address = echo.stop().await;
    client.send(b"to nobody").await;
    stage.until("refused", |counters| counters.failed >= 1).await;
    let again = Echo::at(address).await;
    assert_eq!(client.insist().await, again.address.port());
}

#[tokio::test]
async fn a_flow_leaves_a_target_that_became_unhealthy_unless_there_is_no_other() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    let stage = Stage::new(&[&first, &second]).await;
    let client = stage.client().await;
    assert_eq!(client.ask(b"one").await, first.address.port());
    let unhealthy = |those: Vec<SocketAddr>| {
        move |address: SocketAddr| {
            let verdict = Verdict::default();
            let interval = Duration::from_secs(1);
            let probe = HealthProbe::Tcp;
            let check = HealthCheck { probe, port: None, interval, timeout: interval, rise: 1, fall: 1 };
            verdict.note(!those.contains(&address), &check);
            Arc::new(verdict)
        }
    };
    stage.set(unhealthy(vec![first.address]));
    assert_eq!(client.ask(b"two").await, second.address.port());
    stage.set(unhealthy(vec![first.address, second.address]));
    assert_eq!(client.ask(b"three").await, second.address.port());
    stage.set(unhealthy(vec![second.address]));
    assert_eq!(client.ask(b"four").await, first.address.port());
}

#[tokio::test]
async fn a_draining_target_keeps_its_flows_and_gets_no_new_ones() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    let mut stage = Stage::new(&[&first, &second]).await;
    let old = stage.client().await;
    assert_eq!(old.ask(b"hello").await, first.address.port());
    stage.config.targets[0].draining = true;
    stage.set(|_| Arc::default());
    assert_eq!(old.ask(b"still me").await, first.address.port());
    for _ in 0..3 {
        assert_eq!(stage.client().await.ask(b"new").await, second.address.port());
    }
}

#[tokio::test]
async fn the_flows_of_a_removed_target_end_and_begin_anew_elsewhere() {
    let (first, second) = (Echo::at(local()).await, Echo::at(local()).await);
    let mut stage = Stage::new(&[&first, &second]).await;
    let client = stage.client().await;
    assert_eq!(client.ask(b"hello").await, first.address.port());
    stage.config.targets.remove(0);
    stage.set(|_| Arc::default());
    stage.until("closed", |counters| counters.open == 0).await;
    assert_eq!(client.ask(b"hello").await, second.address.port());
    assert_eq!(stage.frontend.counters.read().accepted, 2);
}

#[tokio::test]
async fn with_affinity_the_flows_of_one_address_go_to_one_target() {
    let echoes = [Echo::at(local()).await, Echo::at(local()).await, Echo::at(local()).await];
    let affine = |stage: &mut Stage| stage.config.affinity = Some(Duration::from_secs(60));
    let stage = Stage::with(&echoes.each_ref(), Ipv4Addr::LOCALHOST.into(), 100, affine).await;
    let first = stage.client().await.ask(b"1").await;
    for _ in 0..5 {
        assert_eq!(stage.client().await.ask(b"n").await, first);
    }
}

#[tokio::test]
async fn flows_are_spread_as_the_algorithm_says() {
    let echoes = [Echo::at(local()).await, Echo::at(local()).await];
    let least = |stage: &mut Stage| stage.config.algorithm = Algorithm::LeastConnections;
    let stage = Stage::with(&echoes.each_ref(), Ipv4Addr::LOCALHOST.into(), 100, least).await;
    for _ in 0..6 {
        stage.client().await.ask(b"n").await;
    }
    assert_eq!(stage.pool.statuses().iter().map(|target| target.open).collect::<Vec<_>>(), [3, 3]);
}

#[tokio::test]
async fn when_it_has_stopped_the_address_is_free_and_nothing_is_open() {
    let echo = Echo::at(local()).await;
    let stage = Stage::new(&[&echo]).await;
    for _ in 0..10 {
        stage.client().await.ask(b"n").await;
    }
    stage.stop.cancel();
    timeout(PATIENCE, stage.serving).await.expect("it stops").unwrap();
    UdpSocket::bind(stage.frontend.address).await.expect("the address is free");
    assert_eq!(stage.frontend.counters.open.get(), 0);
    assert_eq!(stage.pool.statuses()[0].open, 0);
}

/// Tokio takes a new socket for unwritable, like one whose buffer is full.
#[tokio::test]
async fn the_listener_waits_for_no_flow() {
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let config = ListenerConfig::new(Transport::Udp, 1, vec![Target::new(target.local_addr().unwrap())]);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, pool) = (socket.local_addr().unwrap(), Arc::new(Pool::new(&config, 100)));
    pool.set(&config, Duration::ZERO, |_| Arc::default());
    let frontend = Arc::new(Frontend::new(address, 0, rules(&pool, &config, &[])));
    let mut listener = Listener::new(socket, frontend, 10);
    for _ in 0..3 {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().send_to(b"hello", address).await.unwrap();
    }
    timeout(PATIENCE, listener.socket.readable()).await.unwrap().unwrap();
    {
        let mut taking = std::pin::pin!(listener.take());
        let taken = taking.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(taken.is_ready(), "it waits for a flow");
    }
    assert_eq!(listener.flows.len(), 3);
    for _ in 0..3 {
        timeout(PATIENCE, target.recv(&mut [0; 16])).await.unwrap().unwrap();
    }
}
