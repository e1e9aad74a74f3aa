//! Status of a load balancer.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::Transport;

/// Status of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// Listeners in the order of the configuration, one for each address and port.
    pub listeners: Vec<ListenerStatus>,
}

/// Status of a listener: a port at one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Address that the listener is bound to.
    pub address: IpAddr,
    /// TCP or UDP.
    pub transport: Transport,
    /// Port that the listener is bound to.
    pub port: u16,
    /// Reason why the listener is not bound, and how to fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Traffic counters.
    pub counters: Counters,
    /// Targets of the listener.
    pub targets: Vec<TargetStatus>,
}

/// Traffic counters of a listener, since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Accepted connections or flows.
    pub accepted: u64,
    /// Connections or flows that are open now.
    pub open: u64,
    /// Connections or flows denied by the source filter.
    pub denied: u64,
    /// Connections or flows without a target, or without one that answered.
    pub failed: u64,
    /// Connections or flows closed by the idle timeout.
    pub idled: u64,
    /// Connections evicted or rejected at the connection limit.
    #[serde(default)]
    pub displaced: u64,
    /// Bytes from clients to targets.
    pub bytes_in: u64,
    /// Bytes from targets to clients.
    pub bytes_out: u64,
}

/// Status of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Address and port of the target.
    pub address: SocketAddr,
    /// Result of the health check.
    pub health: Health,
    /// The target gets no new connections.
    pub draining: bool,
    /// Connections or flows that are open now, through this port at any address of the load balancer.
    pub open: u64,
    /// Total number of connections or flows through this port, at any address of the load balancer.
    pub total: u64,
}

/// Health of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// There is no health check, or it has no result yet; the target counts as healthy.
    Unknown,
    /// The health check succeeds.
    Healthy,
    /// The health check fails.
    Unhealthy,
}
