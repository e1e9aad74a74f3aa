//! OpenStack, in place of `openstack-cloud-controller-manager`: the same `cloud.conf`, annotations, names, tags and
//! descriptions, so that it takes over what that one made, and gives back what it made itself.
//!
//! ```text
//!  cloud.conf, clouds.yaml ──config──► Config ──► Session: token, catalog ──► api: one function for each call
//!                                                                                │
//!        instances: servers and ports in pages, addresses in order ◄─────────────┤
//!        load_balancers: observe ──► Observation ──plan──► steps ──► apply  ◄────┤
//!        routes: extra routes of a router, allowed address pairs ◄───────────────┘
//! ```
//!
//! * [`config`]: from text to a [`Config`], with all that is wrong at once.
//! * `session`: who we are and where the services are; one token for all, renewed by whoever finds it expired.
//! * `api`: what the services say, as far as it is of use here. Whatever may be null or missing has a default.
//! * `instances`, `load_balancers`, `routes`: the contract of `bowline-cloud`.
//! * `check`: what `bowline check` looks at.

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
