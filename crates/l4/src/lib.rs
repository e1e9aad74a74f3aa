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
//!   long, or its target, listener or balancer is removed and the drain time is up. A target that is named again before
//!   that keeps its connections. What is set holds for connections that begin after it.
//! * A listener that is removed lets nobody in from then on. UDP has no connections that could be drained: the flows of a
//!   removed listener end with it.
//! * If an address cannot be bound, the rest of the balancer works, and [`BalancerStatus`] says which one and why; it is
//!   tried again at the next `set`.
//! * TCP: the end of one way is passed on and leaves the other way open; a reset is passed on as a reset. A target that
//!   refuses or does not answer in time is passed over for the next one, each tried once. A client for which there is no
//!   target, or who may not connect, is reset.
//! * TCP: a connection that the load balancer cuts (its target or listener is removed, it idles, it has to make room) is reset on
//!   both sides. Only what both ends have ended is closed with FIN: a download that was cut does not look complete.
//! * A target that does not accept a connection gets no new ones for 1 to 30 seconds, if others do; then one connection tries it
//!   again. So a black hole is found without a health check.
//! * Memory is bounded: TCP connections, and UDP flows and affinity entries per listener, have limits ([`Limits`]). When all TCP
//!   connections are taken, each load balancer and each client address has a fair share, and within it connections that have been
//!   silent for long make room for new ones; else new ones wait in the queue of the kernel. TCP keepalive finds peers that are gone. A connection holds a buffer only between reading bytes and
//!   having written them, so that idle ones are small, and a slow reader slows the writer down.
//! * A connection has no timer of its own. Four times a second all are looked at, and those that have idled or drained long
//!   enough are closed; they may go on for that much longer than was asked for.
//! * With [`Limits::threads`], each of these threads accepts from all listeners and carries about as many connections as
//!   the others; a connection stays on its thread.

mod affinity;
mod balancer;
mod bind;
mod buffers;
mod check;
mod config;
mod connections;
mod crowd;
mod filter;
mod flows;
mod frontend;
mod health;
mod open_files;
mod pick;
mod plane;
mod pool;
mod probe;
mod proxy;
mod relay;
mod sockets;
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
