//! A small real cloud on this machine, and the reference provider for it.
//!
//! ```text
//!  LocalCloud  machines in memory, a snapshot file, faults by seed, a count of every call
//!     │  in process ──────────────┐
//!     └─ HTTP API (serve) ── client ┴─► LocalProvider: the contract
//! ```
//!
//! The cloud is real in that it has state, an API, paging, throttling and failures of its own, and survives a restart;
//! controller tests use it in place of mocks.

mod api;
mod client;
mod cloud;
mod config;
mod error;
mod faults;
mod fleet;
mod instances;
mod provider;
mod server;
mod snapshot;

pub use api::FaultInForce;
pub use client::ManagementClient;
pub use cloud::{CloudError, CloudOptions, LocalCloud, Machine, MachineState, NewMachine};
pub use config::Config;
pub use error::CallError;
pub use faults::{Fault, FaultSpec};
pub use provider::{LocalProvider, factory, factory_for};
pub use server::{Server, serve};
