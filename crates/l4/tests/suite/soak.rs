//! A load balancer that changes at random under traffic. A model predicts which connections a change may reset and which targets
//! may get new ones; everything else has to keep working, and at the end nothing may be left.
//!
//! A seed makes failures reproducible; the output of a failed test has it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{
    Algorithm, DataPlane, HealthCheck, HealthProbe, Limits, ListenerConfig, LoadBalancerConfig, Target, Transport,
};

const SEEDS: [u64; 4] = [1, 2, 3, 4];
const CHANGES: usize = 40;
const PORTS: [u16; 3] = [PORT, PORT + 1, PORT + 2];
/// Drain timeout that no connection reaches.
const LONG: Duration = Duration::from_secs(10_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reset_no_unaffected_connection_and_nothing_is_left_at_the_end() {
    for (seed, threads) in SEEDS.into_iter().zip([0, 1].into_iter().cycle()) {
        eprintln!("seed {seed}");
        let before = tasks();
        let plane = DataPlane::new(Limits { threads, ..Limits::default() });
        let mut soak = Soak::new(plane.clone(), seed).await;
        for _ in 0..CHANGES {
            soak.change().await;
            soak.arrive().await;
            soak.leave();
        }
        soak.end().await;
        drop(plane);
        eventually("no task is left", || tasks() <= before).await;
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

struct Soak {
    plane: DataPlane,
    random: fastrand::Rng,
    addresses: [IpAddr; 2],
    echoes: Vec<Echo>,
    datagrams: UdpEcho,
    config: LoadBalancerConfig,
    open: Vec<Open>,
}

/// A connection that must keep working.
struct Open {
    client: Client,
    spot: SocketAddr,
    /// Whether its listener still exists; otherwise it drains with a long timeout.
    listens: bool,
    /// Whether its port has existed all the time; otherwise changes of its target no longer affect it.
    follows: bool,
    /// Whether its target is still configured; otherwise it drains with a long timeout.
    named: bool,
}

impl Open {
    /// Updates the model and returns whether the connection survives this configuration.
    fn outlives(&mut self, config: &LoadBalancerConfig) -> bool {
        let listener = config.listeners.iter().find(|it| it.transport == Transport::Tcp && it.port == self.spot.port());
        let listens = self.listens && listener.is_some() && config.addresses.contains(&self.spot.ip());
        let follows = self.follows && listener.is_some();
        let names = |listener: &ListenerConfig| listener.targets.iter().any(|it| it.address == self.client.target);
        let named = if follows { listener.is_some_and(names) } else { self.named };
        let loses = (self.listens && !listens) || (self.named && !named);
        (self.listens, self.follows, self.named) = (listens, follows, named);
        !loses || config.drain == LONG
    }
}

impl Soak {
    async fn new(plane: DataPlane, seed: u64) -> Soak {
        let mut echoes = Vec::new();
        for _ in 0..5 {
            echoes.push(Echo::start().await);
        }
        let (addresses, datagrams) = ([fresh_address(), fresh_address()], UdpEcho::start().await);
        let (random, config) = (fastrand::Rng::with_seed(seed), load_balancer(addresses[0], &[]));
        Soak { plane, random, addresses, echoes, datagrams, config, open: Vec::new() }
    }

    /// Applies a random configuration. Meanwhile all unaffected connections send data; the others must be reset.
    async fn change(&mut self) {
        self.config = self.any_config();
        let open = std::mem::take(&mut self.open).into_iter();
        let (mut kept, reset): (Vec<_>, Vec<_>) =
            open.map(|mut it| (it.outlives(&self.config), it)).partition(|(outlives, _)| *outlives);
        let words = "words ".repeat(self.random.usize(1..2000));
        let talking = async {
            for (_, open) in &mut kept {
                let (target, spot) = (open.client.target, open.spot);
                open.client.echo(&words).await.unwrap_or_else(|error| panic!("{spot} to {target}: {error}"));
            }
        };
        let (status, ()) = tokio::join!(self.plane.set("a", self.config.clone()), talking);
        assert!(status.unwrap().listeners.iter().all(|listener| listener.error.is_none()));
        for (_, open) in reset {
            open.client.expect_reset().await;
        }
        self.open = kept.into_iter().map(|(_, open)| open).collect();
    }

    /// Connects some clients, and checks that they reach an eligible target or are rejected, as configured.
    async fn arrive(&mut self) {
        let allowed =
            self.config.allow.is_empty() || self.config.allow.iter().any(|net| net.contains(&self.addresses[0]));
        for _ in 0..self.random.usize(0..8) {
            let address = self.addresses[self.random.usize(..2)];
            let spot = SocketAddr::new(address, PORTS[self.random.usize(..3)]);
            let listens = self.config.addresses.contains(&address);
            let listener =
                self.config.listeners.iter().find(|it| it.transport == Transport::Tcp && it.port == spot.port());
            let eligible: Vec<_> = listener.filter(|_| listens && allowed).into_iter().flat_map(eligible).collect();
            match Client::try_connect(spot).await {
                Ok(client) => {
                    assert!(eligible.contains(&client.target), "{} got a connection of {spot}", client.target);
                    self.open.push(Open { client, spot, listens: true, follows: true, named: true });
                }
                Err(error) => assert!(eligible.is_empty(), "{spot}: {error}"),
            }
        }
        let client = UdpClient::connect(self.addresses[0]).await;
        let carried = self.config.listeners.iter().any(|listener| listener.transport == Transport::Udp);
        if carried && allowed && self.config.addresses.contains(&self.addresses[0]) {
            assert_eq!(client.echo("hello").await, self.datagrams.address);
        } else {
            client.send("dropped").await;
        }
    }

    /// Closes some connections.
    fn leave(&mut self) {
        for _ in 0..self.random.usize(0..=self.open.len() / 4) {
            self.open.swap_remove(self.random.usize(..self.open.len()));
        }
    }

    /// Closes all connections, and checks that nothing is left.
    async fn end(mut self) {
        assert!(!self.open.is_empty(), "there was traffic");
        self.open.clear();
        let tcp = || status(&self.plane).listeners.into_iter().filter(|listener| listener.transport == Transport::Tcp);
        eventually("no connection is open", || tcp().all(|listener| listener.counters.open == 0)).await;
        let none_open = || tcp().flat_map(|listener| listener.targets).all(|target| target.open == 0);
        eventually("no target has a connection", none_open).await;
        within_timeout("shutdown", self.plane.shutdown(LONG)).await;
        for spot in self.addresses.into_iter().flat_map(|address| PORTS.map(|port| SocketAddr::new(address, port))) {
            tokio::net::TcpListener::bind(spot).await.unwrap();
            tokio::net::UdpSocket::bind(spot).await.unwrap();
        }
    }

    fn any_config(&mut self) -> LoadBalancerConfig {
        let ports: Vec<_> = PORTS.into_iter().filter(|_| self.random.u8(..5) > 0).collect();
        let mut listeners: Vec<_> = ports.into_iter().map(|port| self.any_listener(port)).collect();
        if self.random.bool() {
            listeners.push(ListenerConfig::new(Transport::Udp, PORT, vec![Target::new(self.datagrams.address)]));
        }
        let allow: &[&str] =
            [&[] as &[_], &[], &["127.0.0.0/8", "192.0.2.0/24"], &["192.0.2.0/24"]][self.random.usize(..4)];
        let addresses = match self.random.u8(..5) {
            0 => self.addresses[..1].to_vec(),
            1 => self.addresses[1..].to_vec(),
            _ => self.addresses.to_vec(),
        };
        LoadBalancerConfig {
            addresses,
            listeners,
            allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
            drain: if self.random.bool() { LONG } else { Duration::ZERO },
        }
    }

    fn any_listener(&mut self, port: u16) -> ListenerConfig {
        let mut addresses: Vec<_> = self.echoes.iter().map(|echo| echo.address).collect();
        self.random.shuffle(&mut addresses);
        let targets = addresses.into_iter().filter(|_| self.random.u8(..4) > 0).collect::<Vec<_>>();
        let target = |address| {
            let (weight, draining) = (self.random.u16(..4), self.random.u8(..5) == 0);
            Target { address, weight, draining }
        };
        let targets = targets.into_iter().map(target).collect();
        let algorithms = [Algorithm::RoundRobin, Algorithm::LeastConnections, Algorithm::SourceHash];
        ListenerConfig {
            algorithm: algorithms[self.random.usize(..3)],
            affinity: self.random.bool().then_some(LONG),
            health: self.random.bool().then(check),
            ..ListenerConfig::new(Transport::Tcp, port, targets)
        }
    }
}

/// All targets are healthy; only the check is switched on and off.
fn check() -> HealthCheck {
    let interval = Duration::from_millis(5);
    HealthCheck { probe: HealthProbe::Tcp, port: None, interval, timeout: TIMEOUT, rise: 1, fall: 1 }
}

/// Returns the targets that may get new connections.
fn eligible(listener: &ListenerConfig) -> impl Iterator<Item = SocketAddr> {
    let taking = listener.targets.iter().filter(|target| target.weight > 0 && !target.draining);
    taking.map(|target| target.address)
}
