//! Targets of load balancers, shared by all Services with the same targets.
//!
//! A [`TargetSet`] is a reference: a cluster with 5,000 Nodes and 200 Services has one list of 5,000 targets, not 200 lists. Sets
//! are compared by reference first, and entry by entry only if the references differ. Entries that two sets have in common are
//! shared as well ([`TargetSet::updated`]), so that a Node that joins costs one entry and not a new list.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize, Serializer};

use crate::{Merged, NodeName, TargetNode, merge_sorted};

/// Immutable set of targets, sorted by Node name, with one entry per name. Cheap to clone.
#[derive(Clone, Deserialize)]
#[serde(from = "Vec<TargetNode>")]
pub struct TargetSet(Arc<Shared>);

struct Shared {
    version: u64,
    targets: Vec<Arc<TargetNode>>,
}

/// Differences between two sets, each list sorted by Node name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetChanges<'a> {
    /// Targets that only the new set has.
    pub added: Vec<&'a TargetNode>,
    /// Targets that only the old set has.
    pub removed: Vec<&'a TargetNode>,
    /// Old and new entry of targets that both sets have, with different addresses, machines or drain states.
    pub changed: Vec<(&'a TargetNode, &'a TargetNode)>,
}

/// Version of the next set, unique within the process.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(1);

impl TargetSet {
    /// Creates a set from entries that are sorted and unique by name.
    fn from_sorted(targets: Vec<Arc<TargetNode>>) -> TargetSet {
        TargetSet(Arc::new(Shared { version: NEXT_VERSION.fetch_add(1, Ordering::Relaxed), targets }))
    }

    /// Returns the version, which identifies the set within the process: two references with the same version refer to the same
    /// set. Equal sets that were built separately have different versions.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// Returns the number of targets.
    pub fn len(&self) -> usize {
        self.0.targets.len()
    }

    /// Returns whether the set has no targets.
    pub fn is_empty(&self) -> bool {
        self.0.targets.is_empty()
    }

    /// Iterates over the targets, sorted by Node name.
    pub fn iter(&self) -> Iter<'_> {
        self.0.targets.iter().map(shared)
    }

    /// Returns the target with this Node name.
    pub fn get(&self, node: &NodeName) -> Option<&TargetNode> {
        let index = self.0.targets.binary_search_by(|target| target.node.cmp(node)).ok()?;
        self.0.targets.get(index).map(shared)
    }

    /// Returns whether both references refer to the same set.
    pub fn is_same(&self, other: &TargetSet) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Compares the set with an earlier one, in linear time.
    pub fn changes_from<'a>(&'a self, old: &'a TargetSet) -> TargetChanges<'a> {
        let mut changes = TargetChanges::default();
        if self.is_same(old) {
            return changes;
        }
        for merged in merge_sorted(&old.0.targets, &self.0.targets, |old, new| old.node.cmp(&new.node)) {
            match merged {
                Merged::Left(old) => changes.removed.push(old),
                Merged::Right(new) => changes.added.push(new),
                Merged::Both(old, new) if !is_equal(old, new) => changes.changed.push((old, new)),
                Merged::Both(..) => {}
            }
        }
        changes
    }

    /// Builds the successor of this set from new targets. Unchanged entries are shared with this set; if no entry has changed, this
    /// set itself is returned.
    pub fn updated(&self, targets: impl IntoIterator<Item = TargetNode>) -> TargetSet {
        let new = sorted(targets);
        let kept = merge_sorted(&self.0.targets, new, |old, new| old.node.cmp(&new.node));
        let kept = kept.filter_map(|merged| match merged {
            Merged::Left(_) => None,
            Merged::Right(new) => Some(new),
            Merged::Both(old, new) => Some(if *old == new { Arc::clone(old) } else { new }),
        });
        let kept: Vec<Arc<TargetNode>> = kept.collect();
        let is_unchanged =
            kept.len() == self.len() && kept.iter().zip(&self.0.targets).all(|(new, old)| Arc::ptr_eq(new, old));
        if is_unchanged { self.clone() } else { TargetSet::from_sorted(kept) }
    }

    /// Replaces this reference with one to an edited copy of the set, and returns the result of `edit`.
    pub fn edit<T>(&mut self, edit: impl FnOnce(&mut Vec<TargetNode>) -> T) -> T {
        let mut targets = self.iter().cloned().collect();
        let value = edit(&mut targets);
        *self = self.updated(targets);
        value
    }
}

impl TargetChanges<'_> {
    /// Returns whether the sets are equal.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Sorts targets by Node name and keeps the first of each name.
fn sorted(targets: impl IntoIterator<Item = TargetNode>) -> Vec<Arc<TargetNode>> {
    let mut targets: Vec<Arc<TargetNode>> = targets.into_iter().map(Arc::new).collect();
    targets.sort_by(|one, other| one.node.cmp(&other.node));
    targets.dedup_by(|later, earlier| later.node == earlier.node);
    targets
}

fn is_equal(one: &Arc<TargetNode>, other: &Arc<TargetNode>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn shared(target: &Arc<TargetNode>) -> &TargetNode {
    target
}

/// Iterator over the targets of a set.
type Iter<'a> = std::iter::Map<std::slice::Iter<'a, Arc<TargetNode>>, fn(&Arc<TargetNode>) -> &TargetNode>;

impl<'a> IntoIterator for &'a TargetSet {
    type Item = &'a TargetNode;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl FromIterator<TargetNode> for TargetSet {
    fn from_iter<T: IntoIterator<Item = TargetNode>>(targets: T) -> TargetSet {
        TargetSet::from_sorted(sorted(targets))
    }
}

impl From<Vec<TargetNode>> for TargetSet {
    fn from(targets: Vec<TargetNode>) -> TargetSet {
        targets.into_iter().collect()
    }
}

impl Default for TargetSet {
    fn default() -> TargetSet {
        TargetSet::from_sorted(Vec::new())
    }
}

impl PartialEq for TargetSet {
    fn eq(&self, other: &TargetSet) -> bool {
        let is_equal = || self.0.targets.iter().zip(&other.0.targets).all(|(one, other)| is_equal(one, other));
        self.is_same(other) || self.len() == other.len() && is_equal()
    }
}

impl Eq for TargetSet {}

impl Serialize for TargetSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

/// Formats the version and the number of targets only: a list of thousands of names does not belong in a log line.
impl fmt::Debug for TargetSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetSet(version {}, {} targets)", self.version(), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addresses, target};

    fn set(nodes: impl IntoIterator<Item = u32>) -> TargetSet {
        nodes.into_iter().map(|number| target(&format!("n{number:05}"))).collect()
    }

    fn names<'a>(targets: impl IntoIterator<Item = &'a TargetNode>) -> Vec<&'a str> {
        targets.into_iter().map(|target| target.node.as_str()).collect()
    }

    /// Returns the number of entries of `new` that are not shared with `old`.
    fn allocated(old: &TargetSet, new: &TargetSet) -> usize {
        let is_old = |entry: &&Arc<TargetNode>| old.0.targets.iter().any(|old| Arc::ptr_eq(old, entry));
        new.0.targets.iter().filter(|entry| !is_old(entry)).count()
    }

    #[test]
    fn targets_are_sorted_and_unique_by_name() {
        let draining = TargetNode { draining: true, ..target("b") };
        let set: TargetSet = [target("c"), target("b"), draining, target("a")].into_iter().collect();
        assert_eq!(names(&set), ["a", "b", "c"]);
        assert!(set.get(&"b".into()).is_some_and(|target| !target.draining), "the first entry is kept");
        assert_eq!(set.get(&"d".into()), None);
    }

    #[test]
    fn changes_list_added_removed_and_changed_targets() {
        let old: TargetSet = ["a", "b", "c"].map(target).into_iter().collect();
        let moved = TargetNode { addresses: addresses("I10.0.0.1"), ..target("b") };
        let new: TargetSet = [target("d"), moved.clone(), target("a")].into_iter().collect();
        let changes = new.changes_from(&old);
        assert_eq!((names(changes.added), names(changes.removed)), (vec!["d"], vec!["c"]));
        assert_eq!(changes.changed, [(&target("b"), &moved)]);
        assert!(new.changes_from(&new.iter().cloned().collect()).is_empty());
    }

    #[test]
    fn a_node_that_joins_5000_allocates_one_entry() {
        let old = set(0..5_000);
        let new = old.updated(set(0..5_001).iter().cloned());
        assert_eq!((allocated(&old, &new), new.changes_from(&old).added.len()), (1, 1));
        assert!(new.version() > old.version() && new != old);
    }

    #[test]
    fn the_successor_of_an_unchanged_set_is_the_same_set() {
        let old = set(0..10);
        assert!(old.updated(set(0..10).iter().cloned()).is_same(&old));
        let shorter = old.updated(set(0..9).iter().cloned());
        assert!(!shorter.is_same(&old) && shorter.len() == 9);
        assert_eq!(allocated(&old, &shorter), 0);
    }

    #[test]
    fn sets_that_were_built_separately_are_compared_by_their_entries() {
        let (one, other) = (set(0..3), set(0..3));
        assert!(one == other && !one.is_same(&other) && one.version() != other.version());
        assert!(one != set(0..2) && one != set(1..4) && set([]) == TargetSet::default());
        assert_eq!(one.clone().version(), one.version());
    }

    #[test]
    fn a_set_is_serialised_as_a_list_and_debug_printed_without_its_entries() {
        let written = serde_json::to_value(set([2, 1])).unwrap();
        assert_eq!(written[0]["node"], "n00001");
        assert_eq!(serde_json::from_value::<TargetSet>(written).unwrap(), set([1, 2]));
        assert!(format!("{:?}", set(0..5_000)).len() < 60);
    }
}
