//! The keys that wait: by priority, then flows in turn, then in order.
//!
//! ```text
//!  lane:  turns  3 ──► a   5 ──► b          flows  a: 1 2 4 6 …      the first turn is a's: key 1 goes,
//!                                                  b: 5              and a comes back behind b
//! ```

use std::collections::{BTreeMap, HashMap};

use super::Priority;

/// So many urgent keys pass a less urgent one that waits; then it has its turn. A flood of changes thus slows the regular
/// checks down to one in seventeen, and never stops them.
pub(super) const PATIENCE_OF_LOW: u32 = 16;

/// Two lanes; a key's ticket is its place in one.
pub(super) struct Lanes<K> {
    high: Lane<K>,
    low: Lane<K>,
    flow: fn(&K) -> u64,
    next_ticket: u64,
    /// How many urgent keys have gone ahead of the less urgent one that is first in its lane.
    passed: u32,
}

/// Keys of one priority. Each flow with keys has one turn; nothing is kept of a flow without.
struct Lane<K> {
    flows: HashMap<u64, Flow<K>>,
    /// Which flow's turn it is, by ticket.
    turns: BTreeMap<u64, u64>,
    len: usize,
}

struct Flow<K> {
    turn: u64,
    /// By ticket.
    keys: BTreeMap<u64, K>,
}

impl<K> Lanes<K> {
    pub(super) fn new() -> Lanes<K> {
        Lanes { high: Lane::new(), low: Lane::new(), flow: |_| 0, next_ticket: 0, passed: 0 }
    }

    /// Keys belong to these flows from now on. Those that wait keep their tickets.
    pub(super) fn separate(&mut self, flow: fn(&K) -> u64) {
        self.flow = flow;
        self.high.regroup(flow);
        self.low.regroup(flow);
    }

    pub(super) fn len(&self) -> usize {
        self.high.len + self.low.len
    }

    /// Puts a key at the end of its flow in its lane.
    pub(super) fn push(&mut self, key: K, priority: Priority) -> u64 {
        let (flow, ticket) = ((self.flow)(&key), self.ticket());
        match priority {
            Priority::High => self.high.push(flow, ticket, key),
            Priority::Low => self.low.push(flow, ticket, key),
        };
        ticket
    }

    /// Puts a less urgent key at the end of its flow's urgent ones.
    pub(super) fn move_up(&mut self, key: &K, ticket: u64) -> Option<u64> {
        let key = self.low.remove((self.flow)(key), ticket)?;
        Some(self.push(key, Priority::High))
    }

    /// Takes the key whose turn it is.
    pub(super) fn pop(&mut self) -> Option<K> {
        let ticket = self.ticket();
        if self.low.is_empty() {
            self.passed = 0;
        } else if self.high.is_empty() || self.passed >= PATIENCE_OF_LOW {
            self.passed = 0;
            return self.low.pop(ticket);
        } else {
            self.passed += 1;
        }
        self.high.pop(ticket)
    }

    pub(super) fn clear(&mut self) {
        self.high = Lane::new();
        self.low = Lane::new();
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

impl<K> Lane<K> {
    fn new() -> Lane<K> {
        Lane { flows: HashMap::new(), turns: BTreeMap::new(), len: 0 }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a key at the end of its flow; one that had no keys waits for its turn behind all others.
    fn push(&mut self, flow: u64, ticket: u64, key: K) {
        let turns = &mut self.turns;
        let flow = self.flows.entry(flow).or_insert_with(|| {
            turns.insert(ticket, flow);
            Flow { turn: ticket, keys: BTreeMap::new() }
        });
        flow.keys.insert(ticket, key);
        self.len += 1;
    }

    /// Takes the first key of the flow whose turn it is; the flow's next turn is behind all others, at `ticket`.
    fn pop(&mut self, ticket: u64) -> Option<K> {
        let (_, id) = self.turns.pop_first()?;
        let flow = self.flows.get_mut(&id)?;
        let (_, key) = flow.keys.pop_first()?;
        self.len -= 1;
        if flow.keys.is_empty() {
            self.flows.remove(&id);
        } else {
            flow.turn = ticket;
            self.turns.insert(ticket, id);
        }
        Some(key)
    }

    fn remove(&mut self, id: u64, ticket: u64) -> Option<K> {
        let flow = self.flows.get_mut(&id)?;
        let key = flow.keys.remove(&ticket)?;
        self.len -= 1;
        if flow.keys.is_empty() {
            self.turns.remove(&flow.turn);
            self.flows.remove(&id);
        }
        Some(key)
    }

    fn regroup(&mut self, flow: fn(&K) -> u64) {
        let old = std::mem::replace(self, Lane::new());
        let keys: BTreeMap<u64, K> = old.flows.into_values().flat_map(|flow| flow.keys).collect();
        keys.into_iter().for_each(|(ticket, key)| self.push(flow(&key), ticket, key));
    }
}
