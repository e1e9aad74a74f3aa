//! A small real cloud on this machine, and the reference provider for it.
//!
//! ```text
//!  LocalCloud  machines, balancers and routes in memory, a snapshot file, faults by seed, a count of every call
//!     │  in process ──────────────┐
//!     └─ HTTP API (serve) ── client ┴─► LocalProvider: the contract
//! ```
//!
//! Balancers are records, and with [`BalancerOptions::data_plane`] sockets that carry traffic as well.
//! Routes are records, and with [`RouteOptions::kernel`] routes of the Linux kernel as well.
//!
//! The cloud is real in that it has state, an API, paging, throttling and failures of its own, and survives a restart;
//! controller tests use it in place of mocks.

mod api;
mod balancers;
mod balancing;
mod client;
mod cloud;
mod config;
mod data_plane;
mod door;
mod error;
mod faults;
mod fleet;
mod instances;
mod kernel;
mod load_balancers;
mod pod_ranges;
mod provider;
mod routes;
mod server;
mod snapshot;
mod tags;
mod token;
mod workload;

pub use api::{BalancerView, FaultInForce};
pub use balancers::{
    Balancer, BalancerCheck, BalancerOptions, BalancerSettings, BalancerTarget, CloudAddress, Listener, NewBalancer,
    Targets,
};
pub use client::ManagementClient;
pub use cloud::{CloudError, CloudOptions, LocalCloud, Machine, MachineState, NewMachine};
pub use config::{Config, LoadBalancerConfig, RouteConfig};
pub use faults::{Fault, FaultSpec};
pub use kernel::{RouteOptions, RouteProblem};
pub use provider::{LocalProvider, factory, factory_for};
pub use routes::{NewRoute, RouteRecord};
pub use server::{Server, serve, serve_for};
