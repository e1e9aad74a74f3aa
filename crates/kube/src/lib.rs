//! The only crate of the manager that speaks to the API server.
//!
//! ```text
//!  watch (list, watch, again after a cut or a 410) ──► Store<Node>, Store<Service> ──► Change, to every listener, in order
//!  NodeChange, addresses, labels, taints, deletion, ServiceChange ──► Cluster: targeted patches (W-1 to W-10)
//!  watch of one Secret by its name ──► its values, for a provider that names it
//!  EventSource ──► EventSink: deduplicated, combined, filtered (EV-1 to EV-5) ──► core/v1 Events
//! ```
//!
//! All that is asked of the API server but watches goes through `exchange`, which knows what to ask again and when.
//!
//! What the crate hands out and takes are values of `bowline-core`; nothing above it sees a Kubernetes type.

mod access;
mod accounts;
mod client;
mod clients;
mod cluster;
mod events;
mod exchange;
mod expiry;
mod fenced;
mod health;
mod lease;
mod notes;
mod permissions;
mod preflight;
mod rest;
mod secret;
mod store;
mod told;
mod watch;
mod wire;

pub use access::Access;
pub use accounts::permissions as account_rights;
pub use client::{ClientOptions, ConnectError, Probe, connect};
pub use clients::Clients;
pub use cluster::{Cluster, SeenEvent, WriteError};
pub use events::{EventSink, EventSource, EventType, ObjectRef};
pub use health::{NotReady, wait_until_ready};
pub use lease::{ElectionMetrics, Elector, Held, Identity, LeaseOptions, LeaseOptionsError, Lost};
pub use notes::Notes;
pub use permissions::{Permission, Role, Rule, Scope, roles};
pub use preflight::{ConnectFailure, Preflight, ReadError, SeenLease, SeenNode, SeenService, Server, Writer};
pub use rest::RestMetrics;
pub use secret::{SecretValues, Unreadable, secret_permission, watch_secret};
pub use store::{Change, Store, Stored, WatchMetrics};
pub use watch::{WATCH_NODES, WATCH_SERVICES, watch_nodes, watch_services};

/// What this crate counts.
pub const METRICS: &[&[bowline_runtime::Metric]] =
    &[lease::METRICS, rest::METRICS, store::METRICS, cluster::METRICS, events::METRICS];
