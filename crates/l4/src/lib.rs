//! A TCP and UDP load balancer as a library, without dependencies on Kubernetes.
//!
//! ```text
//!  DataPlane ── load balancer "a" ── frontend 127.0.5.1:80/TCP ── pool ── target 127.0.1.1:30080  healthy, 3 connections
//!      │                                 │ accept, source filter         └─ target 127.0.1.2:30080  draining
//!      │                                 └ pick (round robin, least connections, source hash) ──► connect ──► copy both ways
//!      └─ set(name, LoadBalancerConfig): unchanged parts keep running, new ones are opened, removed ones are drained
//! ```
//!
//! * [`DataPlane::set`] is level-triggered: it takes the complete desired configuration and computes the changes. An established
//!   connection stays with its target across changes, until one of its ends closes it, the idle timeout expires, or its target,
//!   listener or load balancer is removed and the drain timeout expires. A target that is added again before that keeps its
//!   connections. New settings apply to new connections.
//! * A removed listener stops accepting connections at once. UDP flows cannot be drained: they end with their listener.
//! * If an address cannot be bound, the rest of the load balancer works, and [`LoadBalancerStatus`] names the address and the
//!   reason. The next `set` retries it.
//! * TCP half-close: a FIN in one direction is forwarded and leaves the other direction open; an RST is forwarded as an RST. If a
//!   target refuses the connection or does not answer before the connect timeout, the next one is tried, each once. If there is no
//!   target, or the source filter denies the client, the client gets an RST.
//! * A TCP connection that the load balancer closes itself (target or listener removed, idle timeout, eviction) is reset on both
//!   sides. Only a connection that both ends have closed ends with FIN, so that an aborted download does not look complete.
//! * Outlier ejection: a target that does not accept a connection gets no new ones for 1 to 30 seconds, if other targets do; then
//!   one connection tries it again. This detects a black hole without a health check.
//! * Memory is bounded: [`Limits`] has limits for TCP connections, and for UDP flows and affinity entries of each listener. At the
//!   connection limit, each load balancer and each client address has a fair share, and within it idle connections are evicted for
//!   new ones; otherwise new ones wait in the accept queue of the kernel. TCP keepalive detects dead peers. A connection holds a
//!   buffer only between reading bytes and having written them, so that idle connections are small and a slow reader slows down the
//!   writer.
//! * A connection has no timer of its own. A sweep four times a second closes all connections whose idle or drain timeout has
//!   expired, so that they may last that much longer than configured.
//! * With [`Limits::threads`], each of these threads accepts from all listeners and handles about the same number of connections; a
//!   connection stays on its thread.

mod affinity;
mod bind;
mod buffers;
mod config;
mod connection_limit;
mod connections;
mod data_plane;
mod filter;
mod flow_table;
mod frontend;
mod health;
mod load_balancer;
mod open_files;
mod pick;
mod pool;
mod probe;
mod proxy_protocol;
mod relay;
mod sockets;
mod status;
mod tcp;
mod udp;
mod validate;
mod workers;

pub use config::{
    Algorithm, HealthCheck, HealthProbe, Limits, ListenerConfig, LoadBalancerConfig, ProxyProtocol, Target, Transport,
};
pub use data_plane::DataPlane;
pub use status::{Counters, Health, ListenerStatus, LoadBalancerStatus, TargetStatus};
pub use validate::ConfigError;
