//! Configuration of a load balancer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Complete configuration of a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerConfig {
    /// Addresses to listen on: every listener on each of them.
    pub addresses: Vec<IpAddr>,
    /// Ports to listen on.
    pub listeners: Vec<ListenerConfig>,
    /// Allowed client networks; empty allows all. A connection from any other address is reset, a datagram dropped.
    pub allow: Vec<IpNet>,
    /// Drain timeout: how long connections of a removed listener or target may last.
    pub drain: Duration,
}

/// One port and its targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerConfig {
    /// TCP or UDP.
    pub transport: Transport,
    /// Port; not 0.
    pub port: u16,
    /// Targets of the traffic.
    pub targets: Vec<Target>,
    /// Load balancing algorithm.
    pub algorithm: Algorithm,
    /// Session affinity by client address: connections (or flows) of one address go to the same target, until this timeout after
    /// the last one has ended.
    pub affinity: Option<Duration>,
    /// Health check of the targets; without it, all count as healthy.
    pub health: Option<HealthCheck>,
    /// Version of the PROXY protocol header to send to targets; TCP only.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Closes a connection (or flow) after this time without a byte in either direction.
    pub idle_timeout: Duration,
    /// Timeout for connecting to a target; then another one is tried.
    pub connect_timeout: Duration,
}

/// TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// TCP connections.
    Tcp,
    /// UDP flows: the datagrams between the address and port of a client and the listener.
    Udp,
}

/// A backend that receives traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Address and port of the target.
    pub address: SocketAddr,
    /// Weight relative to the other targets; with 0 it gets no new connections.
    pub weight: u16,
    /// The target keeps its connections and gets no new ones.
    pub draining: bool,
}

/// Load balancing algorithm, applied to the healthy targets by weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Algorithm {
    /// Weighted round robin.
    #[default]
    RoundRobin,
    /// Fewest connections relative to the weight.
    LeastConnections,
    /// Hash of the client address: most clients keep their target when other targets are added or removed.
    SourceHash,
}

/// Health check of targets.
///
/// A target that has not been checked yet counts as healthy. The first result takes effect at once: a node without a pod fails its
/// check, and must not get traffic until it has failed `fall` times. If no target is healthy, connections are reset and datagrams
/// dropped.
///
/// Listeners of a load balancer with the same check of the same address share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Protocol of the check.
    pub probe: HealthProbe,
    /// Port to check instead of the target's own: the health-check node port.
    pub port: Option<u16>,
    /// Interval between two checks.
    pub interval: Duration,
    /// Timeout of one check.
    pub timeout: Duration,
    /// Number of consecutive successes that make an unhealthy target healthy; not 0.
    pub rise: u32,
    /// Number of consecutive failures that make a healthy target unhealthy; not 0.
    pub fall: u32,
}

/// Protocol of a health check.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HealthProbe {
    /// Succeeds if a TCP connection can be established.
    Tcp,
    /// Succeeds if the response to `GET path` has a status from 200 to 399.
    Http {
        /// Path of the request.
        path: String,
    },
}

/// Version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// Text header.
    V1,
    /// Binary header.
    V2,
}

/// Resource limits of a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent TCP connections of all load balancers. It is lowered if the process may not have two open files
    /// for each. At the limit, each load balancer and each client address has a fair share.
    pub connections: usize,
    /// At the connection limit, a connection that has been idle for this long is evicted for a new one.
    pub evict_idle_after: Duration,
    /// Maximum number of UDP flows per listener; at the limit, the flow that has been idle longest is evicted.
    pub flows: usize,
    /// Maximum number of session affinity entries per listener.
    pub affinity_entries: usize,
    /// Number of dedicated threads for traffic; 0 handles it on the caller's runtime.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let evict_idle_after = Duration::from_secs(10);
        Limits { connections: 20_000, evict_idle_after, flows: 10_000, affinity_entries: 100_000, threads: 0 }
    }
}

impl ListenerConfig {
    /// Creates a listener with these targets and default settings.
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
    /// Creates a target with weight 1.
    pub fn new(address: SocketAddr) -> Target {
        Target { address, weight: 1, draining: false }
    }
}
