//! Kubernetes API client of the manager. No other crate of the manager talks to the API server.
//!
//! ```text
//!  list and watch, restarted after a disconnect or a 410 ──► Store<Node>, Store<Service> ──► Change, to every listener, in order
//!  NodeChange, addresses, labels, taints, deletion, ServiceChange ──► Cluster: targeted patches (W-1 to W-10)
//!  watch of one Secret by name ──► its values, for the provider that references it
//!  EventSource ──► EventSink: deduplicated, aggregated, rate limited (EV-1 to EV-5) ──► core/v1 Events
//! ```
//!
//! Every request except watches and leader election goes through `retry`, which decides what is retried and when.
//!
//! The public API takes and returns values of `bowline-core`; no Kubernetes type leaves this crate.

mod access;
mod accounts;
mod client;
mod clients;
mod cluster;
mod events;
mod expiry;
mod fenced;
mod health;
mod lease;
mod notes;
mod permissions;
mod preflight;
mod request_log;
mod rest;
mod retry;
mod secret;
mod store;
mod watch;
mod wire;

pub use access::Access;
pub use accounts::permissions as account_permissions;
pub use client::{ClientOptions, ConnectError, Probe, connect};
pub use clients::Clients;
pub use cluster::{Cluster, SeenEvent, WriteError};
pub use events::{EventSink, EventSource, EventType, ObjectRef, RecentEvent};
pub use health::{NotReady, wait_until_ready};
pub use lease::{ElectionMetrics, Elector, Held, Identity, LeaseOptions, LeaseOptionsError, Lost};
pub use notes::Notes;
pub use permissions::{Permission, Role, Rule, Scope, roles};
pub use preflight::{ConnectFailure, Preflight, ReadError, SeenLease, SeenNode, SeenService, Server, Writer};
pub use rest::RestMetrics;
pub use secret::{SecretError, SecretValues, secret_permission, watch_secret};
pub use store::{Change, Store, Stored, WatchMetrics, WatchStatus};
pub use watch::{WATCH_NODES, WATCH_SERVICES, watch_nodes, watch_services};

/// Metrics of this crate.
pub const METRICS: &[&[bowline_runtime::Metric]] =
    &[lease::METRICS, rest::METRICS, store::METRICS, cluster::METRICS, events::METRICS];
