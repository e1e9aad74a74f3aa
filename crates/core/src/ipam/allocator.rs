//! Who holds which blocks.

use std::collections::HashMap;
use std::ops::Range;

use ipnet::IpNet;

use super::ClusterCidr;
use super::blocks::{Blocks, Found};
use crate::{NodeName, parse_cidr};

/// All ranges of the cluster, and who holds what of them.
#[derive(Debug, Clone)]
pub struct Allocator {
    pools: Vec<Pool>,
    holders: HashMap<NodeName, Held>,
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
pub struct InvalidPodCidr {
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

/// What happened to a range since that was last asked. Only blocks that really change hands with nobody are counted: a
/// second holder of a block is neither an allocation nor, when it leaves, a release (IPAM-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationCounts {
    /// The range.
    pub range: IpNet,
    /// Blocks that were free and are held, whether they were given out or found in use.
    pub allocations: u64,
    /// Blocks that were held and are free.
    pub releases: u64,
    /// How many blocks in use the last allocation had to pass; `None` if there was none.
    pub skipped: Option<u64>,
}

/// Two Nodes have addresses in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// The two, in the order of their names.
    pub nodes: [NodeName; 2],
    /// What they have in common.
    pub range: IpNet,
}

/// One range, its blocks, and what happened to it.
#[derive(Debug, Clone)]
struct Pool {
    range: ClusterCidr,
    blocks: Blocks,
    tally: AllocationCounts,
}

/// What a Node holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Held {
    /// Its ranges, in their order.
    ranges: Vec<IpNet>,
    /// The blocks that they have a part of, and in which pool.
    claims: Vec<(usize, Range<u64>)>,
}

impl Allocator {
    /// These ranges, in this order, without the blocks that Services have addresses in.
    pub fn new(ranges: &[ClusterCidr], services: &[IpNet]) -> Allocator {
        let mut pools: Vec<Pool> = ranges.iter().copied().map(Pool::new).collect();
        for pool in &mut pools {
            let range = pool.range;
            services.iter().filter_map(|services| range.numbers(*services)).for_each(|run| pool.hold(&run));
        }
        Allocator { pools, holders: HashMap::new() }
    }

    /// The Node has these ranges, whoever gave them to it, and nothing else any more (IPAM-6, IPAM-7).
    ///
    /// A misfit is told, and yet every block that any of the ranges has a part of is held: that a Node says something odd is
    /// no reason to give what it uses to another.
    pub fn observe(&mut self, node: &NodeName, pod_cidrs: &[String]) -> Result<(), InvalidPodCidr> {
        let mut misfit = None;
        let mut held = Held::default();
        for (index, text) in pod_cidrs.iter().enumerate() {
            match self.check(index, text) {
                Ok(range) => held.ranges.push(range),
                Err(why) => {
                    misfit.get_or_insert_with(|| InvalidPodCidr { node: node.clone(), index, text: text.clone(), why });
                    held.ranges.extend(parse_cidr(text));
                }
            }
        }
        held.claims = self.claims(&held.ranges);
        self.replace(node, held);
        misfit.map_or(Ok(()), Err)
    }

    /// One block of each range for this Node, or none of any (IPAM-8). A Node that holds one of each gets the same again.
    pub fn allocate(&mut self, node: &NodeName) -> Result<Vec<IpNet>, Exhausted> {
        if let Some(held) = self.holders.get(node).filter(|held| held.ranges.len() == self.pools.len()) {
            return Ok(held.ranges.clone());
        }
        let found = self.pools.iter().map(Pool::find).collect::<Result<Vec<_>, _>>()?;
        let mut held = Held::default();
        for (index, (pool, (found, range))) in self.pools.iter_mut().zip(found).enumerate() {
            pool.passed(found);
            held.ranges.push(range);
            held.claims.push((index, found.number..found.number + 1));
        }
        let ranges = held.ranges.clone();
        self.replace(node, held);
        Ok(ranges)
    }

    /// The Node is gone, or surely did not get what it was given (IPAM-9, IPAM-10).
    pub fn release(&mut self, node: &NodeName) {
        self.replace(node, Held::default());
    }

    /// Whether a Node may have these, and nobody else has a part of them.
    pub fn admit(&self, node: &NodeName, pod_cidrs: &[String]) -> Result<(), InvalidPodCidr> {
        for (index, text) in pod_cidrs.iter().enumerate() {
            let why = self.check(index, text).and_then(|range| match self.other_holder(node, range) {
                Some(other) => Err(format!("is, or is a part of, what node {other} has")),
                None => Ok(()),
            });
            why.map_err(|why| InvalidPodCidr { node: node.clone(), index, text: text.clone(), why })?;
        }
        Ok(())
    }

    /// Nodes that have addresses in common, whoever gave them those: each such Node in one pair at least.
    pub fn overlaps(&self) -> Vec<Overlap> {
        if self.pools.iter().all(|pool| pool.blocks.shared() == 0) {
            return Vec::new();
        }
        let mut all: Vec<(IpNet, &NodeName)> =
            self.holders.iter().flat_map(|(node, held)| held.ranges.iter().map(move |range| (*range, node))).collect();
        // What contains another comes right before it, or before others that it contains, too.
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

    /// What this Node holds, in the order of its ranges.
    pub fn held(&self, node: &NodeName) -> &[IpNet] {
        self.holders.get(node).map_or(&[], |held| &held.ranges)
    }

    /// How many more Nodes can be served.
    pub fn room(&self) -> u64 {
        self.usage().iter().map(Usage::free).min().unwrap_or(0)
    }

    /// How much of each range is in use.
    pub fn usage(&self) -> Vec<Usage> {
        self.pools.iter().map(Pool::usage).collect()
    }

    /// What happened to each range since this was last asked.
    pub fn take_counts(&mut self) -> Vec<AllocationCounts> {
        let empty = |pool: &mut Pool| std::mem::replace(&mut pool.tally, AllocationCounts::empty(pool.range.cluster()));
        self.pools.iter_mut().map(empty).collect()
    }

    /// The range in this text, if a Node may have it in this place; else why not, as half a sentence.
    fn check(&self, index: usize, text: &str) -> Result<IpNet, String> {
        let range = parse_cidr(text).ok_or("is not a range like 10.244.1.0/24 or fd00:10:244:1::/64")?;
        let Some(pool) = self.pools.get(index) else {
            return Err(format!("is one more than the {} that this cluster has ranges for", self.pools.len()));
        };
        match pool.range.numbers(range) {
            Some(_) => Ok(range),
            None => Err(format!("lies outside the cluster's range {}", pool.range.cluster())),
        }
    }

    /// Somebody else who has a part of this range. Only where a block is in use is anybody looked for.
    fn other_holder(&self, node: &NodeName, range: IpNet) -> Option<&NodeName> {
        let is_free = |pool: &Pool| pool.range.numbers(range).is_none_or(|run| pool.blocks.are_free(&run));
        if self.pools.iter().all(is_free) {
            return None;
        }
        let meets = |held: &Held| held.ranges.iter().any(|other| other.contains(&range) || range.contains(other));
        self.holders.iter().find(|(other, held)| *other != node && meets(held)).map(|(other, _)| other)
    }

    /// The blocks that these have a part of, in whichever range.
    fn claims(&self, ranges: &[IpNet]) -> Vec<(usize, Range<u64>)> {
        let all = ranges.iter().flat_map(|range| self.pools.iter().enumerate().map(move |pool| (range, pool)));
        all.filter_map(|(range, (index, pool))| Some((index, pool.range.numbers(*range)?))).collect()
    }

    /// The Node holds this from now on, and nothing else. The new is taken before the old is given back, so that what stays
    /// does not count as having changed hands.
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
        Pool { range, blocks: Blocks::new(range.blocks()), tally: AllocationCounts::empty(range.cluster()) }
    }

    /// A free block, by number and as a range.
    fn find(&self) -> Result<(Found, IpNet), Exhausted> {
        let found = self.blocks.find().and_then(|found| Some((found, self.range.block(found.number)?)));
        found.ok_or(Exhausted { range: self.range.cluster() })
    }

    fn passed(&mut self, found: Found) {
        self.blocks.passed(found.number);
        self.tally.skipped = Some(found.skipped);
    }

    fn hold(&mut self, run: &Range<u64>) {
        self.tally.allocations += self.blocks.hold(run);
    }

    fn release(&mut self, run: &Range<u64>) {
        self.tally.releases += self.blocks.release(run);
    }

    fn usage(&self) -> Usage {
        Usage { range: self.range.cluster(), blocks: self.range.blocks(), used: self.blocks.used() }
    }
}

impl Usage {
    /// How many blocks nobody holds.
    pub fn free(&self) -> u64 {
        self.blocks.saturating_sub(self.used)
    }

    /// The part in use, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.used as f64 / self.blocks as f64
    }
}

impl Overlap {
    /// `None` if it is one and the same Node.
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
