//! Pod CIDR allocation (IPAM-5 to IPAM-12).
//!
//! ```text
//!  --cluster-cidr, node mask size ───► ClusterCidr ─┐
//!  service CIDRs, Nodes with pod CIDRs ─────────────┼─► Allocator ──allocate(node)──► one block of each ClusterCidr
//!                                                   └─◄──release(node)── the Node is deleted
//!
//!  with pod CIDRs in the cloud:  the Node's CIDRs, the cloud's CIDRs, AllocationMode ──► cloud::decide ──► Step
//!  used blocks over time ──► forecast::Trend ──► time left ──► forecast::UsageMonitor ──► UsageWarning, once per level
//! ```
//!
//! A block is in use as long as any Node holds a part of it, and holders are counted: a CIDR that two Nodes share by accident is
//! free only when both are deleted. The allocator therefore never allocates a block that any Node still holds.

mod allocator;
mod blocks;
pub mod cloud;
mod cluster_cidr;
pub mod forecast;
#[cfg(test)]
mod tests;

pub use allocator::{AllocationCounts, Allocator, Exhausted, InvalidPodCidr, Overlap, Usage};
pub use cluster_cidr::{ClusterCidr, ClusterCidrError};
