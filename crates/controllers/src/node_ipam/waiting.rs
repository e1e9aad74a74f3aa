//! Nodes that wait for a free block, in order of arrival.

use std::collections::{BTreeMap, HashMap, HashSet};

use bowline_core::NodeName;

/// Queue of Nodes. One that was woken and found no block keeps its position.
#[derive(Debug, Default)]
pub(super) struct WaitingNodes {
    /// Position of each Node, including woken ones.
    positions: HashMap<NodeName, u64>,
    /// Nodes that were not woken since they last found no block.
    waiting: BTreeMap<u64, NodeName>,
    /// Nodes that were woken and have not reserved yet.
    woken: HashSet<NodeName>,
    next: u64,
}

impl WaitingNodes {
    /// Adds a Node that found no block.
    pub(super) fn join(&mut self, name: &NodeName) {
        let position = *self.positions.entry(name.clone()).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert(position, name.clone());
        self.woken.remove(name);
    }

    /// Removes a Node that has a block or is deleted.
    pub(super) fn leave(&mut self, name: &NodeName) {
        if let Some(position) = self.positions.remove(name) {
            self.waiting.remove(&position);
        }
        self.woken.remove(name);
    }

    /// Wakes the Node that has waited longest.
    pub(super) fn wake(&mut self) -> Option<NodeName> {
        let (_, name) = self.waiting.pop_first()?;
        self.woken.insert(name.clone());
        Some(name)
    }

    /// Ends the wake-up of a Node that did not reserve. Returns whether it was woken, so that another one can be.
    pub(super) fn decline(&mut self, name: &NodeName) -> bool {
        self.woken.remove(name)
    }

    /// Number of Nodes that were woken and have not reserved yet.
    pub(super) fn woken_count(&self) -> u64 {
        self.woken.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_finds_no_block_after_all_keeps_its_position() {
        let mut waiting = WaitingNodes::default();
        let names: [NodeName; 3] = ["z".into(), "m".into(), "a".into()];
        names.iter().for_each(|name| waiting.join(name));
        assert_eq!(waiting.wake().as_ref(), Some(&names[0]));
        assert_eq!(waiting.woken_count(), 1);
        waiting.join(&names[2]);
        waiting.join(&names[0]);
        assert_eq!(waiting.woken_count(), 0);
        assert_eq!(waiting.wake().as_ref(), Some(&names[0]), "it was the first in the queue");
        waiting.leave(&names[1]);
        assert_eq!((waiting.wake().as_ref(), waiting.wake()), (Some(&names[2]), None));
        waiting.leave(&names[0]);
        names.iter().for_each(|name| waiting.leave(name));
        assert!(waiting.positions.is_empty() && waiting.waiting.is_empty(), "no entry is kept of nodes that left");
        assert_eq!(waiting.woken_count(), 0);
    }

    #[test]
    fn a_woken_node_counts_until_it_has_a_block_is_deleted_or_declines() {
        let mut waiting = WaitingNodes::default();
        let names: [NodeName; 2] = ["a".into(), "b".into()];
        names.iter().for_each(|name| waiting.join(name));
        assert_eq!(
            (waiting.wake(), waiting.wake(), waiting.woken_count()),
            (Some(names[0].clone()), Some(names[1].clone()), 2)
        );
        assert!(waiting.decline(&names[0]) && !waiting.decline(&names[0]));
        waiting.leave(&names[1]);
        assert_eq!(waiting.woken_count(), 0);
    }
}
