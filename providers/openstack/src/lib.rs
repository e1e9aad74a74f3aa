//! OpenStack provider, a replacement for `openstack-cloud-controller-manager`: it uses the same `cloud.conf`, annotations, names,
//! tags and descriptions, so that either can take over the resources of the other.
//!
//! ```text
//!  cloud.conf, clouds.yaml ──config──► Config ──► Session: token, catalog ──► api: one function for each call
//!                                                                                │
//!        instances: servers and ports in pages, addresses in order ◄─────────────┤
//!        load_balancers: observe ──► Observation ──plan──► steps ──► apply  ◄────┤
//!        routes: extra routes of a router, allowed address pairs ◄───────────────┘
//! ```
//!
//! * [`config`]: parses a [`Config`], and reports all errors at once.
//! * `session`: credentials, token and endpoints; one token for all services, renewed when it expires.
//! * `api`: records and calls of the services. Fields that may be null or missing have a default.
//! * `instances`, `load_balancers`, `routes`: the traits of `bowline-cloud`.
//! * `check`: startup checks and `bowline check`.

mod api;
mod check;
pub mod config;
mod instances;
mod load_balancers;
mod metrics;
mod provider;
mod routes;
mod session;
mod transport;

pub use config::Config;
pub use provider::{OpenStack, factory};
