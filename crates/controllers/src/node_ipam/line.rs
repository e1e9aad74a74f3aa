//! Nodes that wait for a block, in the order in which they came.

use std::collections::{BTreeMap, HashMap};

use bowline_core::NodeName;

/// A queue of Nodes, in which one that was called and found nothing has its old place again.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The place of each, also of those that were called.
    places: HashMap<NodeName, u64>,
    /// Those that were not called since they last found nothing.
    waiting: BTreeMap<u64, NodeName>,
    next: u64,
}

impl Line {
    /// This one found nothing.
    pub(super) fn join(&mut self, name: &NodeName) {
        let place = *self.places.entry(name.clone()).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert(place, name.clone());
    }

    /// This one is served, or gone.
    pub(super) fn leave(&mut self, name: &NodeName) {
        if let Some(place) = self.places.remove(name) {
            self.waiting.remove(&place);
        }
    }

    /// Calls the one that has waited longest.
    pub(super) fn call(&mut self) -> Option<NodeName> {
        self.waiting.pop_first().map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_nothing_after_all_has_the_old_place_again() {
        let mut line = Line::default();
        let names: [NodeName; 3] = ["z".into(), "m".into(), "a".into()];
        names.iter().for_each(|name| line.join(name));
        assert_eq!(line.call().as_ref(), Some(&names[0]));
        line.join(&names[2]);
        line.join(&names[0]);
        assert_eq!(line.call().as_ref(), Some(&names[0]), "its place was the first");
        line.leave(&names[1]);
        assert_eq!((line.call().as_ref(), line.call()), (Some(&names[2]), None));
        line.leave(&names[0]);
        names.iter().for_each(|name| line.leave(name));
        assert!(line.places.is_empty() && line.waiting.is_empty(), "nothing is kept of those that left");
    }
}
