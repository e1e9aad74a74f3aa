//! The keys that wait, by priority and then in order.

use std::collections::BTreeMap;

use super::Priority;

/// So many urgent keys pass a less urgent one that waits; then it has its turn. A flood of changes thus slows the regular
/// checks down to one in seventeen, and never stops them.
pub(super) const PATIENCE_OF_LOW: u32 = 16;

/// Two lanes; a key's ticket is its place in one.
pub(super) struct Lanes<K> {
    high: BTreeMap<u64, K>,
    low: BTreeMap<u64, K>,
    next_ticket: u64,
    /// How many urgent keys have gone ahead of the less urgent one that is first in its lane.
    passed: u32,
}

impl<K> Lanes<K> {
    pub(super) fn new() -> Lanes<K> {
        Lanes { high: BTreeMap::new(), low: BTreeMap::new(), next_ticket: 0, passed: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.high.len() + self.low.len()
    }

    /// Puts a key at the end of its lane.
    pub(super) fn push(&mut self, key: K, priority: Priority) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        match priority {
            Priority::High => self.high.insert(ticket, key),
            Priority::Low => self.low.insert(ticket, key),
        };
        ticket
    }

    /// Puts a less urgent key at the end of the urgent ones.
    pub(super) fn move_up(&mut self, ticket: u64) -> Option<u64> {
        let key = self.low.remove(&ticket)?;
        Some(self.push(key, Priority::High))
    }

    /// Takes the key whose turn it is.
    pub(super) fn pop(&mut self) -> Option<K> {
        if self.low.is_empty() {
            self.passed = 0;
        } else if self.high.is_empty() || self.passed >= PATIENCE_OF_LOW {
            self.passed = 0;
            return self.low.pop_first().map(|(_, key)| key);
        } else {
            self.passed += 1;
        }
        self.high.pop_first().map(|(_, key)| key)
    }

    pub(super) fn clear(&mut self) {
        self.high.clear();
        self.low.clear();
    }
}
