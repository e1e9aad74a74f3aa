//! A TCP and UDP load balancer as a library. It knows sockets, not Kubernetes.
//!
//! ```text
//!  DataPlane ── balancer "a" ── frontend 127.0.5.1:80/TCP ── pool ── target 127.0.1.1:30080  healthy, 3 connections
//!      │                            │ accept, source filter         └─ target 127.0.1.2:30080  draining
//!      │                            └ pick (round robin, least connections, by source) ──► connect ──► copy both ways
//!      └─ set(name, BalancerConfig): what is the same goes on; what is new is opened; what is gone is drained
//! ```
//!
//! * [`DataPlane::set`] is level-triggered: it is told what a balancer is to be, whole, and works out what changes. A
//!   connection that was established stays with its target, whatever is set, until one of its ends closes it, it idles too
//!   long, its target is removed, or the listener is removed and its drain time is up.
//! * If an address cannot be bound, the rest of the balancer works, and [`BalancerStatus`] says which one and why; it is
//!   tried again at the next `set`.
//! * Memory is bounded: connections, UDP flows and affinity entries per balancer have limits ([`Limits`]), and a slow
//!   reader slows the writer down.

mod affinity;
mod balancer;
mod bind;
mod buffers;
mod check;
mod config;
mod connections;
mod filter;
mod flows;
mod frontend;
mod health;
mod pick;
mod plane;
mod pool;
mod probe;
mod proxy;
mod relay;
mod status;
mod tcp;
mod udp;
mod workers;

pub use check::ConfigError;
pub use config::{
    Algorithm, BalancerConfig, HealthCheck, HealthProbe, Limits, ListenerConfig, ProxyProtocol, Target, Transport,
};
pub use plane::DataPlane;
pub use status::{BalancerStatus, Counters, Health, ListenerStatus, TargetStatus};
