//! What the controller remembers of Nodes beside the store: what it has written, which the store may not show yet, and
//! what it has complained about, so that it does so once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_core::{Node, NodeName};

/// Bounded by the number of Nodes: an entry goes with its Node.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<NodeName, Entry>>);

#[derive(Default)]
struct Entry {
    uid: String,
    /// The version that our last initialisation made.
    written: Option<u64>,
    /// The last complaint.
    complaint: Option<String>,
}

impl Memory {
    /// We initialised this Node; this is what came of it.
    pub(super) fn wrote(&self, node: &Node) {
        let mut entries = self.lock();
        let entry = entry(&mut entries, node);
        entry.written = version(node);
        entry.complaint = None;
    }

    /// `seen` is from before our own write: what it says of taints is history.
    ///
    /// Versions of one kind of object are numbers that grow; where one is not a number, nothing is known, and a write on an
    /// outdated state ends in a conflict, which costs a request and does no harm.
    pub(super) fn is_outdated(&self, seen: &Node) -> bool {
        let entries = self.lock();
        let Some(entry) = entries.get(&seen.name).filter(|entry| entry.uid == seen.uid) else { return false };
        matches!((entry.written, version(seen)), (Some(written), Some(seen)) if seen < written)
    }

    /// Whether `complaint` is news for this Node; the same one again is not.
    pub(super) fn is_news(&self, node: &Node, complaint: &str) -> bool {
        let mut entries = self.lock();
        let entry = entry(&mut entries, node);
        if entry.complaint.as_deref() == Some(complaint) {
            return false;
        }
        entry.complaint = Some(complaint.to_owned());
        true
    }

    /// The Node is gone.
    pub(super) fn forget(&self, name: &NodeName) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, Entry>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of this very Node: another one of the same name starts afresh.
fn entry<'a>(entries: &'a mut HashMap<NodeName, Entry>, node: &Node) -> &'a mut Entry {
    let entry = entries.entry(node.name.clone()).or_default();
    if entry.uid != node.uid {
        *entry = Entry { uid: node.uid.clone(), ..Entry::default() };
    }
    entry
}

fn version(node: &Node) -> Option<u64> {
    node.resource_version.parse().ok()
}
