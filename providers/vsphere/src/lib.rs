//! vSphere provider, a replacement for `vsphere-cloud-controller-manager`: it reads the same configuration files, environment
//! variables and Secrets, and uses the same provider IDs, labels and NSX objects, so that either can take over from the other.
//!
//! ```text
//!  file, environment ──config──► Config ──► one Vcenter for each entry ──► nsx: policy API ──► load_balancers, routes
//!  Secrets, folder ──credentials──► Login ───► │
//!                                              ├─ session: login, clone ticket, back-off after rejected credentials
//!                                              ├─ soap:    RetrievePropertiesEx, FindByUuid, container views
//!                                              ├─ tagging: categories and tags, in one batch
//!                                              ▼
//!     instances: listing and batched lookups ──► Machine ──addresses, zones, guest_os──► Instance
//! ```
//!
//! * `config`, `credentials`: settings, and the logins of each vCenter.
//! * `vcenter`: one vCenter: its session, its calls and its datacenters.
//! * `instances`: the trait of `bowline-cloud`; a machine is gone only if every vCenter that could have it reported so.
//! * `zones`: region and zone from tags on hosts, resource pools, folders and datacenters.
//! * `nsx`, `load_balancers`, `routes`: NSX load balancers and static routes, if they are configured.
//! * `check`, `diagnose`: start, health check and `bowline check`.

mod check;
pub mod config;
mod credentials;
mod diagnose;
mod instances;
mod load_balancers;
mod metrics;
mod nsx;
mod provider;
mod routes;
mod soap;
mod transport;
mod vcenter;
mod zones;

pub use config::Config;
pub(crate) use provider::NAME;
pub use provider::{Vsphere, factory};
