//! DigitalOcean provider, a replacement for `digitalocean-cloud-controller-manager`: it reads the same environment variables and
//! annotations, and uses the same names and tags, so that either can take over the resources of the other.
//!
//! ```text
//!  environment, file ──config──► Config ──► api: one function for each call
//!                                             │
//!     instances: Droplets in pages ◄──────────┤
//!     load_balancers: observe ──► State ──request──► plan ──► one POST, PUT or DELETE
//!     tags, firewall: background loops ◄──────┤
//!     admission: reviews of Services ◄────────┘
//! ```
//!
//! * `config`: settings from the environment and a file.
//! * `api`: records and calls of the API, with its errors and its rate limit.
//! * `instances`, `load_balancers`: the traits of `bowline-cloud`.
//! * `tags`, `firewall`: background loops, enabled by the configuration.
//! * `admission`: webhook that lets the API validate the load balancer of a Service.
//! * `check`: start, health check and `bowline check`.

mod admission;
mod api;
mod check;
pub mod config;
mod firewall;
mod instances;
mod load_balancers;
mod metrics;
mod provider;
mod tags;

pub use config::Config;
pub(crate) use provider::NAME;
pub use provider::{DigitalOcean, factory};
