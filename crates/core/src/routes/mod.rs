//! Which routes should be there, and what is to be done about those that are (ROUTE-4 to ROUTE-13).
//!
//! ```text
//!  a listing, then each write ──► Table ─┐
//!  Node, all other Nodes ────────────────┼─► decide ──► NodePlan: lanes (delete, then create) ──► condition
//!  the cluster's ranges ─────────────────┤
//!                                        └─► strays ──► Brake: routes that lead to no Node, and whether they may go
//! ```
//!
//! The unit of work is the Node: what one Node needs is decided from its own ranges, the routes that lead to it, and the
//! routes that stand in their way. So a change of one Node costs what that Node needs, and no listing.

mod brake;
mod decide;
mod network;
mod table;

pub use brake::{Brake, BrakeDecision, HoldReason};
pub use decide::{Lane, NodePlan, Nodes, Removal, Scene, Why, decide, orphans};
pub use network::{NetworkStatus, network};
pub use table::Table;

#[cfg(test)]
mod tests;
