//! A map that remembers only what was used of late.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// At most so many entries; the one that was not used for longest goes first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    entries: HashMap<K, (u64, V)>,
    /// Keys by when they were last used.
    order: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(most: usize) -> Recent<K, V> {
        Recent { most, entries: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Takes the entry out, to be changed and put back.
    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Puts an entry in, as the one used last.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.take(&key);
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_is_forgotten() {
        let mut recent = Recent::new(2);
        recent.put("a", 1);
        recent.put("b", 2);
        recent.put("a", 3);
        recent.put("c", 4);
        assert_eq!((recent.take(&"a"), recent.take(&"b"), recent.take(&"c")), (Some(3), None, Some(4)));
        assert!(recent.order.is_empty() && recent.entries.is_empty());
    }
}
