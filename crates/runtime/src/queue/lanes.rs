//! Waiting keys: by priority, then round robin over flows, then in order of arrival.
//!
//! ```text
//!  lane:  turns  3 ──► a   5 ──► b          flows  a: 1 2 4 6 …      the first turn is that of a: key 1 is taken,
//!                                                  b: 5              and a is appended behind b
//! ```

use std::collections::{BTreeMap, HashMap};

use super::Priority;

/// Maximum number of high-priority keys that are taken before a waiting low-priority key. A flood of changes slows periodic
/// refreshes down to one in seventeen keys, but never stops them.
pub(super) const MAX_HIGH_IN_A_ROW: u32 = 16;

/// One lane per priority. The ticket of a key determines its position.
pub(super) struct Lanes<K> {
    high: Lane<K>,
    low: Lane<K>,
    flow: fn(&K) -> u64,
    next_ticket: u64,
    /// Number of high-priority keys taken since the first low-priority key started to wait.
    high_in_a_row: u32,
}

/// Keys of one priority. Each flow with keys has one turn; flows without keys are dropped.
struct Lane<K> {
    flows: HashMap<u64, Flow<K>>,
    /// Flows by the ticket of their next turn.
    turns: BTreeMap<u64, u64>,
    len: usize,
}

struct Flow<K> {
    turn: u64,
    /// Keys by ticket.
    keys: BTreeMap<u64, K>,
}

impl<K> Lanes<K> {
    pub(super) fn new() -> Lanes<K> {
        Lanes { high: Lane::new(), low: Lane::new(), flow: |_| 0, next_ticket: 0, high_in_a_row: 0 }
    }

    /// Sets the flow of keys. Waiting keys keep their tickets.
    pub(super) fn set_flow(&mut self, flow: fn(&K) -> u64) {
        self.flow = flow;
        self.high.regroup(flow);
        self.low.regroup(flow);
    }

    pub(super) fn len(&self) -> usize {
        self.high.len + self.low.len
    }

    /// Appends a key to its flow in the lane of its priority.
    pub(super) fn push(&mut self, key: K, priority: Priority) -> u64 {
        let (flow, ticket) = ((self.flow)(&key), self.ticket());
        match priority {
            Priority::High => self.high.push(flow, ticket, key),
            Priority::Low => self.low.push(flow, ticket, key),
        };
        ticket
    }

    /// Moves a low-priority key to the end of its flow in the high-priority lane.
    pub(super) fn move_up(&mut self, key: &K, ticket: u64) -> Option<u64> {
        let key = self.low.remove((self.flow)(key), ticket)?;
        Some(self.push(key, Priority::High))
    }

    /// Takes the next key.
    pub(super) fn pop(&mut self) -> Option<K> {
        let ticket = self.ticket();
        if self.low.is_empty() {
            self.high_in_a_row = 0;
        } else if self.high.is_empty() || self.high_in_a_row >= MAX_HIGH_IN_A_ROW {
            self.high_in_a_row = 0;
            return self.low.pop(ticket);
        } else {
            self.high_in_a_row += 1;
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

    /// Appends a key to its flow. A flow without keys gets its turn behind all other flows.
    fn push(&mut self, flow: u64, ticket: u64, key: K) {
        let turns = &mut self.turns;
        let flow = self.flows.entry(flow).or_insert_with(|| {
            turns.insert(ticket, flow);
            Flow { turn: ticket, keys: BTreeMap::new() }
        });
        flow.keys.insert(ticket, key);
        self.len += 1;
    }

    /// Takes the first key of the next flow. The flow's next turn is behind all other flows, at `ticket`.
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
