//! LRU map.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Map with a maximum number of entries that evicts the least recently used one.
#[derive(Debug)]
pub(super) struct LruMap<K, V> {
    capacity: usize,
    entries: HashMap<K, (u64, V)>,
    /// Keys by last use.
    order: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> LruMap<K, V> {
    pub(super) fn new(capacity: usize) -> LruMap<K, V> {
        LruMap { capacity, entries: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Removes the entry, so that the caller can change it and put it back.
    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Inserts an entry as the most recently used one.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.take(&key);
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > self.capacity
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
    fn the_least_recently_used_entry_is_evicted() {
        let mut map = LruMap::new(2);
        map.put("a", 1);
        map.put("b", 2);
        map.put("a", 3);
        map.put("c", 4);
        assert_eq!((map.take(&"a"), map.take(&"b"), map.take(&"c")), (Some(3), None, Some(4)));
        assert!(map.order.is_empty() && map.entries.is_empty());
    }
}
