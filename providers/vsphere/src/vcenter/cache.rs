//! Values that are used for five minutes, and longer while they cannot be read again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, Result};
use tokio::time::Instant;

/// Time for which a value is used.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Time for which an old value is used after it could not be read again.
const EXTENSION: Duration = Duration::from_secs(60);

/// Time for which an old value is kept for that case.
const KEPT: Duration = Duration::from_secs(3600);

/// Values by key, each with the time until which it is used.
pub(super) struct Cache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Cache<K, V> {
        Cache(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.values().get(key).filter(|(until, _)| Instant::now() < *until).map(|(_, value)| value.clone())
    }

    pub(super) fn insert(&self, key: K, value: V) {
        let (mut values, now) = (self.values(), Instant::now());
        // Only before the table grows, so that it costs little for each value.
        if values.len() == values.capacity() {
            values.retain(|_, (until, _)| now < *until + KEPT);
        }
        values.insert(key, (now + MAX_AGE, value));
    }

    /// Records the outcome of a read. If it failed, returns the old value, if there is one and the object may still exist.
    pub(super) fn record(&self, key: K, outcome: Result<V>) -> Result<V> {
        match outcome {
            Ok(value) => {
                self.insert(key, value.clone());
                Ok(value)
            }
            Err(error) => self.extend(&key, error),
        }
    }

    /// Returns the old value of a key that could not be read, or the error.
    pub(super) fn extend(&self, key: &K, error: Error) -> Result<V> {
        match self.values().get_mut(key) {
            Some((until, value)) if !error.is_not_found() => {
                *until = Instant::now() + EXTENSION;
                Ok(value.clone())
            }
            _ => Err(error),
        }
    }

    fn values(&self) -> MutexGuard<'_, HashMap<K, (Instant, V)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bowline_cloud::ErrorKind;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_value_is_used_for_five_minutes_and_a_minute_longer_after_each_failure() {
        let (cache, failed) = (Cache::default(), |kind| Err(Error::new(kind, "read", "no")));
        cache.insert("a", 1);
        advance(MAX_AGE - Duration::from_secs(1)).await;
        assert_eq!(cache.get(&"a"), Some(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&"a"), None);
        assert_eq!(cache.record("a", failed(ErrorKind::Unavailable)).ok(), Some(1));
        assert_eq!(cache.get(&"a"), Some(1));
        advance(EXTENSION).await;
        assert_eq!(cache.get(&"a"), None);
        assert!(cache.record("a", failed(ErrorKind::NotFound)).is_err());
        assert!(cache.record("b", failed(ErrorKind::Unavailable)).is_err());
    }
}
