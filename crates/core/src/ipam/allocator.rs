//! Allocation of blocks to Nodes.

use std::collections::HashMap;
use std::ops::Range;

use ipnet::IpNet;

use super::ClusterCidr;
use super::blocks::{Blocks, Found};
use crate::{NodeName, parse_cidr};

/// Allocates pod CIDRs from the cluster CIDRs and keeps track of the blocks that each Node holds.
#[derive(Debug, Clone)]
pub struct Allocator {
    pools: Vec<Pool>,
    holders: HashMap<NodeName, Held>,
}

/// A cluster CIDR has no free block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range {range}")]
pub struct Exhausted {
    /// Cluster CIDR without free blocks.
    pub range: IpNet,
}

/// A pod CIDR of a Node is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: spec.podCIDRs[{index}] is {text:?}, which {why}")]
pub struct InvalidPodCidr {
    /// Name of the Node.
    pub node: NodeName,
    /// Index in `spec.podCIDRs`.
    pub index: usize,
    /// The invalid value.
    pub text: String,
    /// Reason, as a clause that completes "which …".
    pub why: String,
}

/// Usage of a cluster CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Cluster CIDR.
    pub range: IpNet,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of blocks in use.
    pub used: u64,
}

/// Allocations and releases of a cluster CIDR since the last call of [`Allocator::take_counts`]. Only blocks that change between
/// free and in use are counted: a second holder of a block is neither an allocation nor, when it leaves, a release (IPAM-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationCounts {
    /// Cluster CIDR.
    pub range: IpNet,
    /// Blocks that were free and are in use now, whether allocated or found in use.
    pub allocations: u64,
    /// Blocks that were in use and are free now.
    pub releases: u64,
    /// Number of blocks in use that the last allocation skipped; `None` without an allocation.
    pub skipped: Option<u64>,
}

/// Two Nodes with overlapping pod CIDRs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// Names of the Nodes, sorted.
    pub nodes: [NodeName; 2],
    /// The addresses that both have.
    pub range: IpNet,
}

/// A cluster CIDR with its blocks and counts.
#[derive(Debug, Clone)]
struct Pool {
    range: ClusterCidr,
    blocks: Blocks,
    counts: AllocationCounts,
}

/// Pod CIDRs and blocks of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Held {
    /// Pod CIDRs, in their order.
    ranges: Vec<IpNet>,
    /// Blocks that the CIDRs overlap, with the index of their pool.
    claims: Vec<(usize, Range<u64>)>,
}

impl Allocator {
    /// Creates an allocator for these cluster CIDRs, in this order. Blocks that overlap the service CIDRs are never allocated.
    pub fn new(ranges: &[ClusterCidr], services: &[IpNet]) -> Allocator {
        let mut pools: Vec<Pool> = ranges.iter().copied().map(Pool::new).collect();
        for pool in &mut pools {
            let range = pool.range;
            services.iter().filter_map(|services| range.numbers(*services)).for_each(|run| pool.hold(&run));
        }
        Allocator { pools, holders: HashMap::new() }
    }

    /// Records the pod CIDRs of a Node, regardless of who allocated them, in place of those recorded before (IPAM-6, IPAM-7).
    ///
    /// Returns an error for an invalid pod CIDR. Even then, every block that any of the CIDRs overlaps counts as held by the
    /// Node: an invalid CIDR is no reason to allocate addresses in use to another Node.
    pub fn observe(&mut self, node: &NodeName, pod_cidrs: &[String]) -> Result<(), InvalidPodCidr> {
        let mut invalid = None;
        let mut held = Held::default();
        for (index, text) in pod_cidrs.iter().enumerate() {
            match self.check(index, text) {
                Ok(range) => held.ranges.push(range),
                Err(why) => {
                    invalid.get_or_insert_with(|| InvalidPodCidr {
                        node: node.clone(),
                        index,
                        text: text.clone(),
                        why,
                    });
                    held.ranges.extend(parse_cidr(text));
                }
            }
        }
        held.claims = self.claims(&held.ranges);
        self.replace(node, held);
        invalid.map_or(Ok(()), Err)
    }

    /// Allocates one block of each cluster CIDR to the Node, or none at all (IPAM-8). A Node that already holds one of each gets
    /// the same ones.
    pub fn allocate(&mut self, node: &NodeName) -> Result<Vec<IpNet>, Exhausted> {
        if let Some(held) = self.holders.get(node).filter(|held| held.ranges.len() == self.pools.len()) {
            return Ok(held.ranges.clone());
        }
        let found = self.pools.iter().map(Pool::find).collect::<Result<Vec<_>, _>>()?;
        let mut held = Held::default();
        for (index, (pool, (found, range))) in self.pools.iter_mut().zip(found).enumerate() {
            pool.record_found(found);
            held.ranges.push(range);
            held.claims.push((index, found.number..found.number + 1));
        }
        let ranges = held.ranges.clone();
        self.replace(node, held);
        Ok(ranges)
    }

    /// Releases the blocks of a Node that was deleted, or that certainly did not get its allocation (IPAM-9, IPAM-10).
    pub fn release(&mut self, node: &NodeName) {
        self.replace(node, Held::default());
    }

    /// Checks that a Node may have these pod CIDRs and that they overlap those of no other Node.
    pub fn admit(&self, node: &NodeName, pod_cidrs: &[String]) -> Result<(), InvalidPodCidr> {
        for (index, text) in pod_cidrs.iter().enumerate() {
            let why = self.check(index, text).and_then(|range| match self.other_holder(node, range) {
                Some(other) => Err(format!("overlaps a pod CIDR of node {other}")),
                None => Ok(()),
            });
            why.map_err(|why| InvalidPodCidr { node: node.clone(), index, text: text.clone(), why })?;
        }
        Ok(())
    }

    /// Returns Nodes with overlapping pod CIDRs, regardless of who allocated them. Each such Node is in at least one pair.
    pub fn overlaps(&self) -> Vec<Overlap> {
        if self.pools.iter().all(|pool| pool.blocks.shared() == 0) {
            return Vec::new();
        }
        let mut all: Vec<(IpNet, &NodeName)> =
            self.holders.iter().flat_map(|(node, held)| held.ranges.iter().map(move |range| (*range, node))).collect();
        // A CIDR precedes all CIDRs that it contains.
        all.sort_unstable_by_key(|(range, node)| (range.network(), range.prefix_len(), *node));
        let mut widest: Option<(IpNet, &NodeName)> = None;
        let mut overlaps = Vec::new();
        for (range, node) in all {
            match widest {
                Some((around, other)) if around.contains(&range) => overlaps.extend(Overlap::of(node, other, range)),
                _ => widest = Some((range, node)),
            }
        }
        overlaps
    }

    /// Returns the pod CIDRs of a Node, in their order.
    pub fn held(&self, node: &NodeName) -> &[IpNet] {
        self.holders.get(node).map_or(&[], |held| &held.ranges)
    }

    /// Returns the number of Nodes that can still get pod CIDRs.
    pub fn remaining(&self) -> u64 {
        self.usage().iter().map(Usage::free).min().unwrap_or(0)
    }

    /// Returns the usage of each cluster CIDR.
    pub fn usage(&self) -> Vec<Usage> {
        self.pools.iter().map(Pool::usage).collect()
    }

    /// Returns the counts of each cluster CIDR since the last call, and resets them.
    pub fn take_counts(&mut self) -> Vec<AllocationCounts> {
        let empty =
            |pool: &mut Pool| std::mem::replace(&mut pool.counts, AllocationCounts::empty(pool.range.cluster()));
        self.pools.iter_mut().map(empty).collect()
    }

    /// Parses and checks the pod CIDR at this index of `spec.podCIDRs`. The error is a clause that completes "which …".
    fn check(&self, index: usize, text: &str) -> Result<IpNet, String> {
        let range = parse_cidr(text).ok_or("is not a CIDR such as 10.244.1.0/24 or fd00:10:244:1::/64")?;
        let Some(pool) = self.pools.get(index) else {
            return Err(format!("exceeds the number of cluster CIDRs ({})", self.pools.len()));
        };
        match pool.range.numbers(range) {
            Some(_) => Ok(range),
            None => Err(format!("is outside the cluster CIDR {}", pool.range.cluster())),
        }
    }

    /// Returns another Node whose pod CIDRs overlap this one. The search over all Nodes runs only if a block is in use.
    fn other_holder(&self, node: &NodeName, range: IpNet) -> Option<&NodeName> {
        let is_free = |pool: &Pool| pool.range.numbers(range).is_none_or(|run| pool.blocks.are_free(&run));
        if self.pools.iter().all(is_free) {
            return None;
        }
        let overlaps = |held: &Held| held.ranges.iter().any(|other| other.contains(&range) || range.contains(other));
        self.holders.iter().find(|(other, held)| *other != node && overlaps(held)).map(|(other, _)| other)
    }

    /// Returns the blocks of all pools that these CIDRs overlap.
    fn claims(&self, ranges: &[IpNet]) -> Vec<(usize, Range<u64>)> {
        let all = ranges.iter().flat_map(|range| self.pools.iter().enumerate().map(move |pool| (range, pool)));
        all.filter_map(|(range, (index, pool))| Some((index, pool.range.numbers(*range)?))).collect()
    }

    /// Replaces everything that the Node holds. The new blocks are acquired before the old ones are released, so that blocks which
    /// stay in use are not counted.
    fn replace(&mut self, node: &NodeName, held: Held) {
        if self.holders.get(node) == Some(&held) {
            return;
        }
        for (index, run) in &held.claims {
            if let Some(pool) = self.pools.get_mut(*index) {
                pool.hold(run);
            }
        }
        let is_empty = held.ranges.is_empty();
        let old = if is_empty { self.holders.remove(node) } else { self.holders.insert(node.clone(), held) };
        for (index, run) in old.into_iter().flat_map(|old| old.claims) {
            if let Some(pool) = self.pools.get_mut(index) {
                pool.release(&run);
            }
        }
    }
}

impl Pool {
    fn new(range: ClusterCidr) -> Pool {
        Pool { range, blocks: Blocks::new(range.blocks()), counts: AllocationCounts::empty(range.cluster()) }
    }

    /// Returns a free block with its CIDR.
    fn find(&self) -> Result<(Found, IpNet), Exhausted> {
        let found = self.blocks.find().and_then(|found| Some((found, self.range.block(found.number)?)));
        found.ok_or(Exhausted { range: self.range.cluster() })
    }

    fn record_found(&mut self, found: Found) {
        self.blocks.search_after(found.number);
        self.counts.skipped = Some(found.skipped);
    }

    fn hold(&mut self, run: &Range<u64>) {
        self.counts.allocations += self.blocks.hold(run);
    }

    fn release(&mut self, run: &Range<u64>) {
        self.counts.releases += self.blocks.release(run);
    }

    fn usage(&self) -> Usage {
        Usage { range: self.range.cluster(), blocks: self.range.blocks(), used: self.blocks.used() }
    }
}

impl Usage {
    /// Returns the number of free blocks.
    pub fn free(&self) -> u64 {
        self.blocks.saturating_sub(self.used)
    }

    /// Returns the fraction of blocks in use, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.used as f64 / self.blocks as f64
    }
}

impl Overlap {
    /// Returns `None` if both are the same Node.
    fn of(one: &NodeName, other: &NodeName, range: IpNet) -> Option<Overlap> {
        let (first, last) = if one < other { (one, other) } else { (other, one) };
        (first != last).then(|| Overlap { nodes: [first.clone(), last.clone()], range })
    }
}

impl AllocationCounts {
    fn empty(range: IpNet) -> AllocationCounts {
        AllocationCounts { range, allocations: 0, releases: 0, skipped: None }
    }
}
