//! Desired routes, and the changes of the cloud's route table that they require (ROUTE-4 to ROUTE-13).
//!
//! ```text
//!  a listing, then each write ──► RouteTable ─┐
//!  Node, all other Nodes ─────────────────────┼─► decide ──► NodePlan: changes (delete, then create) ──► condition
//!  the cluster CIDRs ─────────────────────────┤
//!                                             └─► orphans ──► Brake: may the routes without a Node be deleted?
//! ```
//!
//! The unit of work is the Node: its plan depends on its own pod CIDRs, the routes to the Node, and conflicting routes. A change of
//! one Node therefore needs no listing and no work for other Nodes.

mod brake;
mod decide;
mod network;
mod table;

pub use brake::{Brake, BrakeDecision, HoldReason};
pub use decide::{NodePlan, Nodes, Removal, RemovalReason, RouteChange, RouteContext, decide, orphans};
pub use network::{NetworkStatus, network_status};
pub use table::RouteTable;

#[cfg(test)]
mod tests;
