//! What Nodes were complained about, so that each cause is told once and not in every pass.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_core::{Node, NodeName};

/// The last complaint about each Node. Bounded by the number of Nodes, if whoever keeps it forgets those that are gone.
#[derive(Default)]
pub(crate) struct Complaints(Mutex<HashMap<NodeName, Complaint>>);

struct Complaint {
    uid: String,
    cause: String,
}

impl Complaints {
    /// Whether this cause is news for this Node; it no longer is afterwards.
    pub(crate) fn is_news(&self, node: &Node, cause: &str) -> bool {
        let mut complaints = self.lock();
        let known = complaints.get(&node.name).is_some_and(|last| last.uid == node.uid && last.cause == cause);
        if !known {
            let complaint = Complaint { uid: node.uid.clone(), cause: cause.to_owned() };
            complaints.insert(node.name.clone(), complaint);
        }
        !known
    }

    /// All is well with this Node, or it is gone: the same cause would be news again.
    pub(crate) fn forget(&self, name: &NodeName) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Complaint>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing::node;

    #[test]
    fn a_cause_is_news_once_per_node_and_again_after_another_or_a_new_node_of_the_name() {
        let complaints = Complaints::default();
        let mut first = node("a");
        assert!(complaints.is_news(&first, "x"));
        assert!(!complaints.is_news(&first, "x"));
        assert!(complaints.is_news(&node("b"), "x"));
        assert!(complaints.is_news(&first, "y"));
        assert!(complaints.is_news(&first, "x"));
        first.uid = "another".to_owned();
        assert!(complaints.is_news(&first, "x"));
        complaints.forget(&first.name);
        assert!(complaints.is_news(&first, "x"));
    }
}
