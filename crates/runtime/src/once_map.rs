//! Map whose values are fetched once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

/// Values by key, each fetched once. Of concurrent callers with the same key, one fetches the value and the rest wait for it. A
/// failure is not stored: the next caller fetches again.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use bowline_runtime::OnceMap;
///
/// let names = OnceMap::default();
/// assert_eq!(names.get(7, async || Err::<&str, _>("unavailable")).await, Err("unavailable"));
/// assert_eq!(names.get(7, async || Ok::<_, &str>("seven")).await, Ok("seven"));
/// assert_eq!(names.get(7, async || Err("not called")).await, Ok("seven"));
/// # });
/// ```
#[derive(Debug)]
pub struct OnceMap<K, V>(Mutex<HashMap<K, Arc<OnceCell<V>>>>);

impl<K, V> Default for OnceMap<K, V> {
    fn default() -> OnceMap<K, V> {
        OnceMap(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> OnceMap<K, V> {
    /// Returns the value of a key, fetched by `fetch` if it is not stored.
    pub async fn get<E, F>(&self, key: K, fetch: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let cell = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        cell.get_or_try_init(fetch).await.cloned()
    }
}
