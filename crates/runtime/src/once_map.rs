//! Answers that are asked for once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

/// Answers by question. Of callers that ask the same at once, one asks and the others wait for its answer. A failure is not kept:
/// the next caller asks again.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use bowline_runtime::OnceMap;
///
/// let names = OnceMap::default();
/// assert_eq!(names.get(7, async || Err::<&str, _>("no answer")).await, Err("no answer"));
/// assert_eq!(names.get(7, async || Ok::<_, &str>("seven")).await, Ok("seven"));
/// assert_eq!(names.get(7, async || Err("is not asked")).await, Ok("seven"));
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
    /// The answer to this question, which `ask` gives if it is not known yet.
    pub async fn get<E, F>(&self, question: K, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let cell = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(question).or_default().clone();
        cell.get_or_try_init(ask).await.cloned()
    }
}
