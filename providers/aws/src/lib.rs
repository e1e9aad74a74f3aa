//! AWS provider, a replacement for `aws-cloud-controller-manager`: it reads the same configuration file and annotations, and uses the
//! same names and tags, so that either can take over the resources of the other.
//!
//! ```text
//!  cloud config ──config──► Config ──endpoints──► URL and region of each API
//!                                                     │
//!  environment, files, metadata ──credentials──► Signer ──► api: Ec2, Elb, ElbV2, one method for each action
//!                                                             │
//!     instances: DescribeInstances by ID or in pages ◄────────┤
//!     load_balancers: Classic and Network Load Balancers ◄────┤
//!     routes: entries of the route table ◄────────────────────┤
//!     tagging: background loop ◄──────────────────────────────┘
//! ```
//!
//! * `config`: settings of the file.
//! * `endpoints`, `credentials`: where the APIs are, and how calls are signed.
//! * `api`: records and calls of the APIs, with their errors.
//! * `cluster_tags`: tags that say which cluster a resource belongs to.
//! * `instances`, `load_balancers`, `routes`: the traits of `bowline-cloud`.
//! * `tagging`: background loop that tags instances.
//! * `check`, `diagnose`: start, and `bowline check`.
//! * `policy`: IAM actions that the manager needs.
//! * `metrics`: metrics of API calls.

mod api;
mod check;
mod cluster_tags;
pub mod config;
mod credentials;
mod diagnose;
mod endpoints;
mod instances;
mod load_balancers;
mod metrics;
mod policy;
mod provider;
mod routes;
mod tagging;
#[cfg(test)]
mod testing;

pub use config::Config;
pub(crate) use provider::NAME;
pub use provider::{Aws, factory};
