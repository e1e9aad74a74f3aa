//! Group of agents: which one is active, and how the others copy its state.
//!
//! ```text
//!  peers ◄─ poll ──► beats ──► decide ──► take over, step down, copy
//!                                              │
//!  clients ──► write (only while active) ──► State ──► standbys
//! ```

pub(crate) mod beat;
pub(crate) mod decide;
pub(crate) mod peer_client;
mod problems;
pub(crate) mod replication;
mod run;
mod shared;
#[cfg(test)]
mod simulation;

pub(crate) use beat::Role;
pub(crate) use shared::Group;
