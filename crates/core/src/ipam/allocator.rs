//! Who holds which blocks.

use ipnet::IpNet;

use super::ClusterRange;
use crate::NodeName;

/// All ranges of the cluster, and who holds what of them.
#[derive(Debug, Clone)]
pub struct Allocator {
    _ranges: Vec<ClusterRange>,
}

/// There is no free block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range {range}")]
pub struct Exhausted {
    /// Of this range.
    pub range: IpNet,
}

/// A Node has a range that it cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: spec.podCIDRs[{index}] is {text:?}, which {why}")]
pub struct Misfit {
    /// The Node.
    pub node: NodeName,
    /// Which of its ranges.
    pub index: usize,
    /// What stands there.
    pub text: String,
    /// What is wrong with it, as half a sentence.
    pub why: String,
}

/// How much of a range is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The range.
    pub range: IpNet,
    /// How many blocks it has.
    pub blocks: u64,
    /// How many of them are in use.
    pub used: u64,
}

impl Allocator {
    /// These ranges, in this order, without the blocks that Services have addresses in.
    pub fn new(ranges: &[ClusterRange], services: &[IpNet]) -> Allocator {
        let _ = (ranges, services);
        todo!()
    }

    /// The Node has these ranges, whoever gave them to it, and nothing else any more (IPAM-6, IPAM-7). All or nothing.
    pub fn observe(&mut self, node: &NodeName, pod_cidrs: &[String]) -> Result<(), Misfit> {
        let _ = (node, pod_cidrs);
        todo!()
    }

    /// One block of each range for this Node, or none of any (IPAM-8). A Node that holds blocks gets the same again.
    pub fn allocate(&mut self, node: &NodeName) -> Result<Vec<IpNet>, Exhausted> {
        let _ = node;
        todo!()
    }

    /// The Node is gone, or surely did not get what it was given (IPAM-9, IPAM-10).
    pub fn release(&mut self, node: &NodeName) {
        let _ = node;
        todo!()
    }

    /// How much of each range is in use.
    pub fn usage(&self) -> Vec<Usage> {
        todo!()
    }
}
