//! Caches results of credential checks by the digest of the credential.
//!
//! Keys are digests so that no secret stays in memory and lookups take the same time for every secret.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use ring::digest::{SHA256, digest as hash};

pub(super) type Digest = [u8; 32];

/// Maximum number of entries. A full cache is cleared: every entry can be computed again from its credential.
const CAPACITY: usize = 4096;

/// A bounded map keyed by digest.
#[derive(Debug)]
pub(super) struct DigestCache<T>(RwLock<HashMap<Digest, T>>);

impl<T> Default for DigestCache<T> {
    fn default() -> Self {
        DigestCache(RwLock::default())
    }
}

impl<T: Clone> DigestCache<T> {
    pub(super) fn get(&self, key: &Digest) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Inserts an entry; clears the cache first if it is full.
    pub(super) fn insert(&self, key: Digest, value: T) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.insert(key, value);
    }
}

/// SHA-256.
pub(super) fn digest(bytes: &[u8]) -> Digest {
    let mut out = Digest::default();
    for (to, from) in out.iter_mut().zip(hash(&SHA256, bytes).as_ref()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_is_cleared() {
        let cache = DigestCache::default();
        for n in 0..=CAPACITY {
            cache.insert(digest(&n.to_be_bytes()), n);
        }
        assert_eq!(cache.get(&digest(&0usize.to_be_bytes())), None);
        assert_eq!(cache.get(&digest(&CAPACITY.to_be_bytes())), Some(CAPACITY));
    }
}
