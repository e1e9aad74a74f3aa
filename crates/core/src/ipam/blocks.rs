//! Number of holders of each block of a cluster CIDR.
//!
//! Holder counts are run-length encoded: a run of blocks with the same number of holders is one entry, whatever its length. Memory
//! and search time therefore depend on the blocks in use, not on the size of the CIDR, even for an IPv4 /8 with blocks of /32.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Holder counts of all blocks of a cluster CIDR, and the position of the next search.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Total number of blocks.
    count: u64,
    /// Number of holders by first block of a run, which extends to the next entry. Adjacent runs never have the same number.
    holders: BTreeMap<u64, u32>,
    /// Keys of the entries in `holders` that have no holders.
    free: BTreeSet<u64>,
    /// Number of blocks with at least one holder.
    used: u64,
    /// Number of blocks with more than one holder.
    shared: u64,
    /// Block at which the next search starts (IPAM-8).
    next: u64,
}

/// A free block, as found by a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Block number.
    pub(super) number: u64,
    /// Number of blocks in use that the search skipped.
    pub(super) skipped: u64,
}

impl Blocks {
    /// Creates `count` free blocks; `count` is at least 1.
    pub(super) fn new(count: u64) -> Blocks {
        Blocks { count, holders: BTreeMap::from([(0, 0)]), free: BTreeSet::from([0]), used: 0, shared: 0, next: 0 }
    }

    /// Returns the number of blocks in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the number of blocks with more than one holder.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }

    /// Returns whether none of these blocks has a holder.
    pub(super) fn are_free(&self, run: &Range<u64>) -> bool {
        let later = run.start.saturating_add(1)..run.end.max(run.start.saturating_add(1));
        self.is_free(run.start) && self.holders.range(later).all(|(_, holders)| *holders == 0)
    }

    /// Finds the first free block after the last allocated one, and wraps around at the end (IPAM-8).
    pub(super) fn find(&self) -> Option<Found> {
        let number = if self.is_free(self.next) {
            self.next
        } else {
            *self.free.range(self.next..).next().or_else(|| self.free.first())?
        };
        let skipped = if number >= self.next { number - self.next } else { self.count - self.next + number };
        Some(Found { number, skipped })
    }

    /// Makes the next search start after this block.
    pub(super) fn search_after(&mut self, number: u64) {
        self.next = (number + 1) % self.count;
    }

    /// Adds a holder to each of these blocks. Returns how many of them were free.
    pub(super) fn hold(&mut self, run: &Range<u64>) -> u64 {
        let before = self.used;
        self.recount(run, |holders| holders.saturating_add(1));
        self.used - before
    }

    /// Removes a holder from each of these blocks. Returns how many of them have become free.
    pub(super) fn release(&mut self, run: &Range<u64>) -> u64 {
        let before = self.used;
        self.recount(run, |holders| holders.saturating_sub(1));
        before - self.used
    }

    fn is_free(&self, number: u64) -> bool {
        self.holders.range(..=number).next_back().is_some_and(|(_, holders)| *holders == 0)
    }

    fn recount(&mut self, run: &Range<u64>, change: fn(u32) -> u32) {
        let run = run.start..run.end.min(self.count);
        if run.is_empty() {
            return;
        }
        self.split(run.start);
        self.split(run.end);
        let entries: Vec<(u64, u32)> = self.holders.range(run.clone()).map(|(at, holders)| (*at, *holders)).collect();
        let ends = entries.iter().skip(1).map(|(at, _)| *at).chain([run.end]);
        for ((at, holders), end) in entries.iter().zip(ends) {
            self.set(*at, end - at, *holders, change(*holders));
        }
        entries.iter().for_each(|(at, _)| self.join(*at));
        self.join(run.end);
    }

    /// Splits the run that contains this block, so that an entry starts here.
    fn split(&mut self, at: u64) {
        let around = self.holders.range(..=at).next_back();
        let Some((_, &holders)) = around.filter(|(from, _)| **from < at && at < self.count) else { return };
        self.holders.insert(at, holders);
        if holders == 0 {
            self.free.insert(at);
        }
    }

    fn set(&mut self, at: u64, length: u64, old: u32, new: u32) {
        self.holders.insert(at, new);
        match (old, new) {
            (0, 1..) => {
                self.free.remove(&at);
                self.used += length;
            }
            (1.., 0) => {
                self.free.insert(at);
                self.used -= length;
            }
            _ => {}
        }
        match (old, new) {
            (..=1, 2..) => self.shared += length,
            (2.., ..=1) => self.shared -= length,
            _ => {}
        }
    }

    /// Removes the entry that starts here if the previous run has the same number of holders.
    fn join(&mut self, at: u64) {
        let before = self.holders.range(..at).next_back().map(|(_, holders)| *holders);
        if before.is_some() && before == self.holders.get(&at).copied() {
            self.holders.remove(&at);
            self.free.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_search_continues_after_the_last_block_and_counts_skipped_blocks() {
        let mut blocks = Blocks::new(8);
        assert_eq!(blocks.find(), Some(Found { number: 0, skipped: 0 }));
        blocks.hold(&(0..3));
        assert_eq!(blocks.find(), Some(Found { number: 3, skipped: 3 }));
        blocks.search_after(5);
        blocks.hold(&(5..8));
        assert_eq!(blocks.find(), Some(Found { number: 3, skipped: 5 }), "wraps around: 6, 7, 0, 1, 2");
        blocks.hold(&(3..5));
        assert_eq!(blocks.find(), None);
    }

    #[test]
    fn an_entire_ipv4_slash_8_is_one_entry() {
        let mut blocks = Blocks::new(1 << 24);
        assert_eq!(blocks.hold(&(0..1 << 24)), 1 << 24);
        assert_eq!((blocks.holders.len(), blocks.find()), (1, None));
        blocks.hold(&(77..78));
        assert_eq!(blocks.release(&(0..1 << 24)), (1 << 24) - 1, "77 has another holder");
        for number in 0..1000 {
            blocks.hold(&(number..number + 1));
        }
        assert_eq!(blocks.holders.len(), 4, "a run of blocks with equally many holders is one entry");
    }

    proptest! {
        /// Compares with a naive model: one counter per block.
        #[test]
        fn runs_match_a_counter_per_block(
            runs in prop::collection::vec((0..40_u64, 0..12_u64, any::<bool>()), 0..60), next in 0..40_u64,
        ) {
            let mut blocks = Blocks::new(40);
            let mut model = [0_u32; 40];
            let mut held: Vec<Range<u64>> = Vec::new();
            for (start, length, frees) in runs {
                let (run, is_release) = match if frees { held.pop() } else { None } {
                    Some(run) => (run, true),
                    None => (start..(start + length).min(40), false),
                };
                let free_before = model.iter().filter(|holders| **holders == 0).count() as u64;
                for number in run.clone() {
                    let count = &mut model[usize::try_from(number).unwrap()];
                    *count = if is_release { *count - 1 } else { *count + 1 };
                }
                let free_now = model.iter().filter(|holders| **holders == 0).count() as u64;
                let flipped = if is_release { blocks.release(&run) } else { blocks.hold(&run) };
                prop_assert_eq!(flipped, free_before.abs_diff(free_now));
                prop_assert_eq!(blocks.used(), 40 - free_now);
                prop_assert_eq!(blocks.shared(), model.iter().filter(|holders| **holders > 1).count() as u64);
                if !is_release && !run.is_empty() {
                    held.push(run);
                }
            }
            blocks.next = next;
            let expected = (0..40).map(|step| (step, (next + step) % 40)).find(|(_, n)| model[usize::try_from(*n).unwrap()] == 0);
            prop_assert_eq!(blocks.find(), expected.map(|(skipped, number)| Found { number, skipped }));
            for run in (0..40).map(|start| start..(start + 1 + next % 5).min(40)) {
                let expected_free = run.clone().all(|number| model[usize::try_from(number).unwrap()] == 0);
                prop_assert_eq!(blocks.are_free(&run), expected_free, "{:?}", run);
            }
            let entries: Vec<_> = blocks.holders.values().collect();
            prop_assert!(entries.windows(2).all(|two| two[0] != two[1]), "neighbours differ: {:?}", blocks.holders);
            let free: Vec<_> = blocks.holders.iter().filter(|(_, holders)| **holders == 0).map(|(at, _)| *at).collect();
            prop_assert_eq!(free, blocks.free.iter().copied().collect::<Vec<_>>());
        }
    }
}
