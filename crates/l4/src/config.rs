//! What a balancer is to be.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A balancer, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BalancerConfig {
    /// Where it listens: every listener on each of these.
    pub addresses: Vec<IpAddr>,
    /// What it listens on.
    pub listeners: Vec<ListenerConfig>,
    /// Who may connect; empty means everybody. Others are turned away: a TCP connection is reset, a datagram dropped.
    pub allow: Vec<IpNet>,
    /// How long connections of a removed listener or target may go on.
    pub drain: Duration,
}

/// One port and what is behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerConfig {
    /// TCP or UDP.
    pub transport: Transport,
    /// The port; not 0.
    pub port: u16,
    /// Who takes the traffic.
    pub targets: Vec<Target>,
    /// How one is picked.
    pub algorithm: Algorithm,
    /// Connections (or flows) of one client address go to one target, until this long after the last one ended.
    pub affinity: Option<Duration>,
    /// How targets are asked whether they work; without it all are taken to.
    pub health: Option<HealthCheck>,
    /// What is sent to a target before anything else; for TCP.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// After this long without a byte either way a connection (or flow) is closed.
    pub idle_timeout: Duration,
    /// How long connecting to a target may take before another one is tried.
    pub connect_timeout: Duration,
}

/// TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Flows: datagrams between one client's address and port and the listener.
    Udp,
}

/// One that takes traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its share, beside those of the others; 0 gets no new connections.
    pub weight: u16,
    /// It keeps the connections that it has and gets no new ones.
    pub draining: bool,
}

/// How a target is picked among those that are healthy, by their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Algorithm {
    /// In turn.
    #[default]
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
    /// By a hash of the client's address, so that most clients keep their target when others come and go.
    SourceHash,
}

/// How targets are asked whether they work. One that was not asked yet is taken to work, and the first answer counts at
/// once: a node without a pod says so, and must not get traffic until it has said so several times. If none works, nobody
/// gets anything: connections are reset and datagrams dropped.
///
/// Listeners of a balancer that ask the same thing at the same place ask it once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// What is asked.
    pub probe: HealthProbe,
    /// On this port instead of the target's own: the health-check node port.
    pub port: Option<u16>,
    /// The pause between two questions.
    pub interval: Duration,
    /// No answer within this is a failure.
    pub timeout: Duration,
    /// So many answers in a row make a target healthy that was not; not 0.
    pub rise: u32,
    /// So many failures in a row make it unhealthy that was not; not 0.
    pub fall: u32,
}

/// What a health check asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HealthProbe {
    /// Whether a TCP connection can be made.
    Tcp,
    /// Whether `GET path` is answered with a status from 200 to 399.
    Http {
        /// The path.
        path: String,
    },
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// What a data plane may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections at once, of all balancers. Where the process may not have two open files for each, it is as many as it may.
    /// When all are taken, each load balancer and each client address has a fair share.
    pub connections: usize,
    /// When all connections are taken, one that has been silent for this long makes room for another.
    pub yield_after: Duration,
    /// UDP flows at once, per listener; the longest silent one makes room.
    pub flows: usize,
    /// Client addresses whose target is remembered, per listener.
    pub affinity_entries: usize,
    /// How many threads carry traffic beside the runtime's own; 0 carries it on the runtime.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let yield_after = Duration::from_secs(10);
        Limits { connections: 20_000, yield_after, flows: 10_000, affinity_entries: 100_000, threads: 0 }
    }
}

impl ListenerConfig {
    /// A listener with these targets and everything else as it usually is.
    pub fn new(transport: Transport, port: u16, targets: Vec<Target>) -> ListenerConfig {
        let idle = if transport == Transport::Tcp { 3600 } else { 60 };
        ListenerConfig {
            transport,
            port,
            targets,
            algorithm: Algorithm::RoundRobin,
            affinity: None,
            health: None,
            proxy_protocol: None,
            idle_timeout: Duration::from_secs(idle),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

impl Target {
    /// A target with a weight of 1.
    pub fn new(address: SocketAddr) -> Target {
        Target { address, weight: 1, draining: false }
    }
}
