//! A wire simulator of the OpenStack services that a cloud controller manager calls.
//!
//! It knows nothing of the provider that is tested with it: it reads and writes JSON as Keystone, Nova, Neutron, Octavia and
//! Barbican do, and its answers are compared with recordings of the real services. Time is tokio's, so that a test may
//! pause it.
//!
//! ```text
//!  Request<Bytes> ──► Simulator::answer ──► faults, delay, token ──► service: identity, compute, network, load-balancer,
//!      ▲                                                              key-manager ──► State ──► Response<Bytes>
//!      └─ in this process, or over HTTP with Simulator::serve
//! ```
