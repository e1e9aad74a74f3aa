//! The L4 agent: load balancers and routes on hosts without a cloud.
//!
//! * [`Balancers`] are the records and their rules: a plain value, without files, time or sockets.
//! * [`Sockets`] forward the traffic of load balancers, from the [`Records`] of an agent or of the local cloud.
//! * [`KernelRoutes`] are routes of the Linux kernel, with the feature `netlink`.
//! * [`network`] puts the addresses on an interface and announces them.

mod balancers;
mod data_plane;
mod kernel_routes;
#[cfg(feature = "daemon")]
pub mod network;

pub use balancers::{Balancers, MAX_NAME_LENGTH, Pool, PoolError, Pools, RuleError, check_name, fit_response};
pub use data_plane::{Records, Sockets, load_balancer_config, target_host};
pub use kernel_routes::{DesiredRoutes, Hop, KernelRoutes, KernelRoutesError, Namespace, RouteProblem, Routes};

#[cfg(feature = "daemon")]
mod agent;
#[cfg(feature = "daemon")]
mod certificate_names;
#[cfg(feature = "daemon")]
mod config;
#[cfg(feature = "daemon")]
mod error;
#[cfg(feature = "daemon")]
mod group;
#[cfg(feature = "daemon")]
mod group_status;
#[cfg(feature = "daemon")]
mod interface;
#[cfg(feature = "daemon")]
mod metrics;
#[cfg(feature = "daemon")]
mod pki;
#[cfg(feature = "daemon")]
mod routes;
#[cfg(feature = "daemon")]
mod server;
#[cfg(feature = "daemon")]
mod state;
#[cfg(feature = "daemon")]
#[cfg(test)]
mod testing;
#[cfg(feature = "daemon")]
mod traffic;
#[cfg(feature = "daemon")]
mod version;

#[cfg(feature = "daemon")]
pub use agent::{Agent, OpenError};
#[cfg(feature = "daemon")]
pub use config::{Config, Listen, Peer, TlsConfig};
#[cfg(feature = "daemon")]
pub use group::beat::Role;
#[cfg(feature = "daemon")]
pub use group_status::{Answer, query_group};
#[cfg(feature = "daemon")]
pub use metrics::{METRICS, metric_reference};
#[cfg(feature = "daemon")]
pub use pki::{Issued, NewCertificates, PkiError, Usage, create_certificates};
#[cfg(feature = "daemon")]
pub use server::TlsFileError;
#[cfg(feature = "daemon")]
pub use state::StateError;
