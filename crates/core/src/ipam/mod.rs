//! Which pod range a Node gets (IPAM-5 to IPAM-12).
//!
//! ```text
//!  --cluster-cidr, node masks ──► ClusterRange ─┐
//!  service ranges, Nodes with ranges ───────────┼─► Allocator ──allocate(node)──► one block of each ClusterRange
//!                                               └─◄──release(node)── the Node is gone
//!
//!  where a cloud has a say:  the Node's ranges, the cloud's ranges, Lead ──► cloud::decide ──► Step
//!  blocks in use over time ──► forecast::Trend ──► time left ──► forecast::Watchman ──► Warning, once per level
//! ```
//!
//! A block is in use as long as anybody holds a part of it, and each holder is counted: a range that two Nodes share, by
//! whatever accident, is free when both are gone and not before. So a block is never handed out while anybody holds it.

mod allocator;
mod blocks;
pub mod cloud;
mod cluster_range;
pub mod forecast;
#[cfg(test)]
mod tests;

pub use allocator::{AllocationCounts, Allocator, Exhausted, InvalidPodCidr, Overlap, Usage};
pub use cluster_range::{ClusterCidr, ClusterCidrError};
