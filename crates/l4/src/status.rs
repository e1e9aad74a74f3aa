//! How a balancer is doing.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::Transport;

/// A balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BalancerStatus {
    /// Its listeners, in the order of its configuration, one for each address and port.
    pub listeners: Vec<ListenerStatus>,
}

/// A port at one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The address.
    pub address: IpAddr,
    /// TCP or UDP.
    pub transport: Transport,
    /// The port.
    pub port: u16,
    /// Why it does not listen, with what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went through it.
    pub counters: Counters,
    /// Who takes its traffic.
    pub targets: Vec<TargetStatus>,
}

/// What went through, since it began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Connections or flows that were let in.
    pub accepted: u64,
    /// Those that are open now.
    pub open: u64,
    /// Those that were turned away by the source filter.
    pub denied: u64,
    /// Those for which there was no target, or none that answered.
    pub failed: u64,
    /// Those that were closed because nothing happened on them.
    pub idled: u64,
    /// Those that made room for others, or were not let in, because all connections were taken.
    #[serde(default)]
    pub displaced: u64,
    /// Bytes from clients to targets.
    pub bytes_in: u64,
    /// Bytes from targets to clients.
    pub bytes_out: u64,
}

/// One that takes traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it works.
    pub health: Health,
    /// It gets no new connections.
    pub draining: bool,
    /// Connections or flows that are open now, through this port at any address of the balancer.
    pub open: u64,
    /// All that it ever got through this port, at any address of the balancer.
    pub total: u64,
}

/// Whether a target works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Nobody asks, or nobody has asked yet; it is taken to work.
    Unknown,
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
}
