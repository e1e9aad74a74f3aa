//! Cloudlycke provider: a cloud of virtual machines on one host, for clusters that Vagrant creates. It replaces the demonstration
//! `cloud-provider-cloudlycke`: it keeps the names, labels and provider IDs, and reads the real machines.
//!
//! ```text
//!  backend static     the table of the demonstration ──────────────────────────────► instances
//!  backend inventory  YAML file ──────────────┐                                          ▲
//!  backend vagrant    index, id files ──┐     ▼                                          │
//!  backend libvirt ─────────────────────┴► Survey: all machines ──identity──► Machine ──► Details
//!                                             ▲                                          ▲
//!                       hypervisors: VBoxManage, virsh ──────── commands ────────────────┘
//! ```
//!
//! * `config`: the YAML file.
//! * `commands`: starts commands without a shell, through the call layer, with limits of time and output.
//! * `hypervisors`: lists and describes machines with the commands of VirtualBox and libvirt.
//! * `backends`: where the list of machines comes from.
//! * `pool`: one read for all lookups at a time, cached for a while; a machine is gone only after a read of its own.
//! * `identity`, `machine`: pure rules for provider IDs, instance types, addresses and states.
//! * `node_load_balancers`: addresses of Nodes in place of load balancers, for tests. Load balancers and routes by agents are those of
//!   `bowline-agent-client`.
//! * `check`: start, health check and `bowline check`.
//!
//! Vagrant itself is never started: `vagrant status` removes the records of a machine that VirtualBox does not know at this moment.

mod backends;
mod check;
mod commands;
pub mod config;
mod hypervisors;
mod identity;
mod instances;
mod machine;
mod node_load_balancers;
mod pool;
mod provider;

pub use config::Config;
pub(crate) use provider::NAME;
pub use provider::{Cloudlycke, factory};
