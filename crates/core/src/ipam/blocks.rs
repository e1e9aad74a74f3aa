//! Which blocks of a range are in use, and by how many.
//!
//! Holders are counted per block, and only where the count changes is anything written down: a run of blocks with the same
//! number of holders is one entry, whatever its length. So all of an IPv4 /8 in blocks of /32 costs as much as what is in
//! use of it, to remember and to search.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many hold each block of a range, and where the last one was given out.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// How many blocks there are.
    count: u64,
    /// From this block on, up to the next entry, each block has so many holders. Two neighbours never have the same number.
    holders: BTreeMap<u64, u32>,
    /// The entries above without holders.
    free: BTreeSet<u64>,
    /// How many blocks have holders.
    used: u64,
    /// How many have more than one.
    shared: u64,
    /// Where the next search begins (IPAM-8).
    next: u64,
}

/// A block without holders, and what finding it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Its number.
    pub(super) number: u64,
    /// How many blocks in use lay before it.
    pub(super) skipped: u64,
}

impl Blocks {
    /// So many blocks, at least one, all of them free.
    pub(super) fn new(count: u64) -> Blocks {
        Blocks { count, holders: BTreeMap::from([(0, 0)]), free: BTreeSet::from([0]), used: 0, shared: 0, next: 0 }
    }

    /// How many have holders.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// How many have more than one holder.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }

    /// None of these has a holder.
    pub(super) fn are_free(&self, run: &Range<u64>) -> bool {
        let later = run.start.saturating_add(1)..run.end.max(run.start.saturating_add(1));
        self.is_free(run.start) && self.holders.range(later).all(|(_, holders)| *holders == 0)
    }

    /// The first free one from the place after the last that was taken, and around (IPAM-8).
    pub(super) fn find(&self) -> Option<Found> {
        let number = if self.is_free(self.next) {
            self.next
        } else {
            *self.free.range(self.next..).next().or_else(|| self.free.first())?
        };
        let skipped = if number >= self.next { number - self.next } else { self.count - self.next + number };
        Some(Found { number, skipped })
    }

    /// The next search begins behind this one.
    pub(super) fn passed(&mut self, number: u64) {
        self.next = (number + 1) % self.count;
    }

    /// These have one holder more. Returns how many were free.
    pub(super) fn hold(&mut self, run: &Range<u64>) -> u64 {
        let before = self.used;
        self.recount(run, |holders| holders.saturating_add(1));
        self.used - before
    }

    /// These have one holder less. Returns how many are free now that were not.
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
        self.cut(run.start);
        self.cut(run.end);
        let entries: Vec<(u64, u32)> = self.holders.range(run.clone()).map(|(at, holders)| (*at, *holders)).collect();
        let ends = entries.iter().skip(1).map(|(at, _)| *at).chain([run.end]);
        for ((at, holders), end) in entries.iter().zip(ends) {
            self.set(*at, end - at, *holders, change(*holders));
        }
        entries.iter().for_each(|(at, _)| self.join(*at));
        self.join(run.end);
    }

    /// Makes an entry begin here.
    fn cut(&mut self, at: u64) {
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

    /// Drops the entry that begins here if it says what the one before it says.
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
    fn a_search_goes_on_where_the_last_one_ended_and_tells_what_it_passed() {
        let mut blocks = Blocks::new(8);
        assert_eq!(blocks.find(), Some(Found { number: 0, skipped: 0 }));
        blocks.hold(&(0..3));
        assert_eq!(blocks.find(), Some(Found { number: 3, skipped: 3 }));
        blocks.passed(5);
        blocks.hold(&(5..8));
        assert_eq!(blocks.find(), Some(Found { number: 3, skipped: 5 }), "around the end: 6, 7, 0, 1, 2");
        blocks.hold(&(3..5));
        assert_eq!(blocks.find(), None);
    }

    #[test]
    fn the_whole_of_an_ipv4_slash_8_is_one_entry() {
        let mut blocks = Blocks::new(1 << 24);
        assert_eq!(blocks.hold(&(0..1 << 24)), 1 << 24);
        assert_eq!((blocks.holders.len(), blocks.find()), (1, None));
        blocks.hold(&(77..78));
        assert_eq!(blocks.release(&(0..1 << 24)), (1 << 24) - 1, "77 has another holder");
        for number in 0..1000 {
            blocks.hold(&(number..number + 1));
        }
        assert_eq!(blocks.holders.len(), 4, "a run of blocks with as many holders is one entry");
    }

    proptest! {
        /// Against the plainest account there is: one number per block.
        #[test]
        fn runs_say_what_single_counts_say(
            runs in prop::collection::vec((0..40_u64, 0..12_u64, any::<bool>()), 0..60), next in 0..40_u64,
        ) {
            let mut blocks = Blocks::new(40);
            let mut plain = [0_u32; 40];
            let mut held: Vec<Range<u64>> = Vec::new();
            for (start, length, frees) in runs {
                let (run, is_release) = match if frees { held.pop() } else { None } {
                    Some(run) => (run, true),
                    None => (start..(start + length).min(40), false),
                };
                let free_before = plain.iter().filter(|holders| **holders == 0).count() as u64;
                for number in run.clone() {
                    let count = &mut plain[usize::try_from(number).unwrap()];
                    *count = if is_release { *count - 1 } else { *count + 1 };
                }
                let free_now = plain.iter().filter(|holders| **holders == 0).count() as u64;
                let flipped = if is_release { blocks.release(&run) } else { blocks.hold(&run) };
                prop_assert_eq!(flipped, free_before.abs_diff(free_now));
                prop_assert_eq!(blocks.used(), 40 - free_now);
                prop_assert_eq!(blocks.shared(), plain.iter().filter(|holders| **holders > 1).count() as u64);
                if !is_release && !run.is_empty() {
                    held.push(run);
                }
            }
            blocks.next = next;
            let expected = (0..40).map(|step| (step, (next + step) % 40)).find(|(_, n)| plain[usize::try_from(*n).unwrap()] == 0);
            prop_assert_eq!(blocks.find(), expected.map(|(skipped, number)| Found { number, skipped }));
            for run in (0..40).map(|start| start..(start + 1 + next % 5).min(40)) {
                let plainly = run.clone().all(|number| plain[usize::try_from(number).unwrap()] == 0);
                prop_assert_eq!(blocks.are_free(&run), plainly, "{:?}", run);
            }
            let entries: Vec<_> = blocks.holders.values().collect();
            prop_assert!(entries.windows(2).all(|two| two[0] != two[1]), "neighbours differ: {:?}", blocks.holders);
            let free: Vec<_> = blocks.holders.iter().filter(|(_, holders)| **holders == 0).map(|(at, _)| *at).collect();
            prop_assert_eq!(free, blocks.free.iter().copied().collect::<Vec<_>>());
        }
    }
}
