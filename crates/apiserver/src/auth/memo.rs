//! What was worked out once for a credential, by the digest of that credential.
//!
//! Keys are digests so that no secret is kept, and so that looking one up takes no time that depends on its text.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use ring::digest::{SHA256, digest as hash};

pub(super) type Digest = [u8; 32];

/// More entries than this are not kept: credentials come and go, and none is needed twice.
const MOST: usize = 4096;

/// A bounded map from digests.
#[derive(Debug)]
pub(super) struct Memo<T>(RwLock<HashMap<Digest, T>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Memo(RwLock::default())
    }
}

impl<T: Clone> Memo<T> {
    pub(super) fn get(&self, key: &Digest) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Remembers; forgets everything else when it is full.
    pub(super) fn insert(&self, key: Digest, value: T) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MOST {
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
    fn a_full_memo_starts_over() {
        let memo = Memo::default();
        for n in 0..=MOST {
            memo.insert(digest(&n.to_be_bytes()), n);
        }
        assert_eq!(memo.get(&digest(&0usize.to_be_bytes())), None);
        assert_eq!(memo.get(&digest(&MOST.to_be_bytes())), Some(MOST));
    }
}
