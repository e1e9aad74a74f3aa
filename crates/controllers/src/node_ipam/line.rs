//! Nodes that wait for a block, in the order in which they came.

use std::collections::{BTreeMap, HashMap, HashSet};

use bowline_core::NodeName;

/// A queue of Nodes, in which one that was called and found nothing has its old place again.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The place of each, also of those that were called.
    places: HashMap<NodeName, u64>,
    /// Those that were not called since they last found nothing.
    waiting: BTreeMap<u64, NodeName>,
    /// Those that were called, and have not come yet.
    called: HashSet<NodeName>,
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
        self.called.remove(name);
    }

    /// This one is served, or gone.
    pub(super) fn leave(&mut self, name: &NodeName) {
        if let Some(place) = self.places.remove(name) {
            self.waiting.remove(&place);
        }
        self.called.remove(name);
    }

    /// Calls the one that has waited longest.
    pub(super) fn call(&mut self) -> Option<NodeName> {
        let (_, name) = self.waiting.pop_first()?;
        self.called.insert(name.clone());
        Some(name)
    }

    /// This one does not come although it was called, if it was: another may be called in its stead.
    pub(super) fn decline(&mut self, name: &NodeName) -> bool {
        self.called.remove(name)
    }

    /// How many were called and have not come yet.
    pub(super) fn expected(&self) -> u64 {
        self.called.len() as u64
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
        assert_eq!(line.expected(), 1);
        line.join(&names[2]);
        line.join(&names[0]);
        assert_eq!(line.expected(), 0);
        assert_eq!(line.call().as_ref(), Some(&names[0]), "its place was the first");
        line.leave(&names[1]);
        assert_eq!((line.call().as_ref(), line.call()), (Some(&names[2]), None));
        line.leave(&names[0]);
        names.iter().for_each(|name| line.leave(name));
        assert!(line.places.is_empty() && line.waiting.is_empty(), "nothing is kept of those that left");
        assert_eq!(line.expected(), 0);
    }

    #[test]
    fn who_was_called_is_expected_until_served_gone_or_declining() {
        let mut line = Line::default();
        let names: [NodeName; 2] = ["a".into(), "b".into()];
        names.iter().for_each(|name| line.join(name));
        assert_eq!((line.call(), line.call(), line.expected()), (Some(names[0].clone()), Some(names[1].clone()), 2));
        assert!(line.decline(&names[0]) && !line.decline(&names[0]));
        line.leave(&names[1]);
        assert_eq!(line.expected(), 0);
    }
}
