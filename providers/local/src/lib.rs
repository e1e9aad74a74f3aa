//! Small cloud on the local machine, and the reference provider for it.
//!
//! ```text
//!  LocalCloud  machines, load balancers and routes in memory, snapshot file, seeded faults, call counters
//!     │  in process ────────────────┐
//!     └─ HTTP API (serve) ── client ┴─► LocalProvider: implements the provider traits
//! ```
//!
//! * [`LocalCloud`] is the cloud. It has state, an API with pagination and throttling, and injected faults, and it survives a
//!   restart. Controller tests use it instead of mocks.
//! * [`LocalProvider`] is the provider: `instances`, `load_balancers` and `routes` implement the traits of `bowline-cloud`.
//!   Provider authors can read it as an example; it has no code that only tests need.
//! * [`ManagementClient`] controls the cloud over HTTP, as its owner.
//!
//! Load balancers are records; with [`BalancerOptions::data_plane`] they also have sockets that forward traffic. Routes are
//! records; with [`RouteOptions::kernel`] they are also routes of the Linux kernel.

mod access_control;
mod api;
mod client;
mod cloud;
mod cloud_load_balancers;
mod config;
mod data_plane;
mod faults;
mod fleet;
mod instances;
mod kernel;
mod pending_changes;
mod pod_cidrs;
mod provider;
mod routes;
mod server;
mod snapshot;
mod tags;
mod token;

pub use api::{BalancerView, FaultInForce};
pub use bowline_agent::{RouteProblem, RuleError};
pub use bowline_agent_client::{
    Balancer, BalancerCheck, BalancerSettings, BalancerTarget, CloudAddress, Listener, NewBalancer, Targets,
};
pub use bowline_l4::{Health as TargetHealth, ListenerStatus, LoadBalancerStatus, TargetStatus, Transport};
pub use client::ManagementClient;
pub use cloud::{CloudError, CloudOptions, LocalCloud, Machine, MachineState, NewMachine};
pub use cloud_load_balancers::BalancerOptions;
pub use config::{Config, LoadBalancerConfig, RouteConfig};
pub use faults::{Fault, FaultSpec};
pub use kernel::RouteOptions;
pub use provider::{LocalProvider, factory, factory_for};
pub use routes::{NewRoute, RouteRecord};
pub use server::{Server, serve, serve_for};
