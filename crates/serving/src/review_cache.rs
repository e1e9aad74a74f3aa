//! Cache for reviews by the API server. Concurrent requests for the same key share one review.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::Shared;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum number of cached results, and of concurrent reviews.
const MAX_ENTRIES: usize = 8192;

/// Result of a review, or why there is none.
pub(crate) type Outcome<V> = Result<V, String>;

type Pending<V> = Shared<oneshot::Receiver<Outcome<V>>>;

/// Cached results by key. Failures are not cached.
pub(crate) struct ReviewCache<K, V>(Arc<Mutex<State<K, V>>>);

struct State<K, V> {
    results: HashMap<K, (V, Instant)>,
    pending: HashMap<K, Pending<V>>,
}

impl<K, V> ReviewCache<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new() -> ReviewCache<K, V> {
        ReviewCache(Arc::new(Mutex::new(State { results: HashMap::new(), pending: HashMap::new() })))
    }

    /// Returns the result for the key, from the cache if it is there. `review` returns the result and its time to live; it runs to
    /// its end even if this future is dropped, because other callers may wait for it.
    pub(crate) async fn get<F>(&self, key: K, review: impl FnOnce() -> F) -> Outcome<V>
    where
        F: Future<Output = Outcome<(V, Duration)>> + Send + 'static,
    {
        let pending = match lock(&self.0).lookup(&key) {
            Lookup::Cached(value) => return Ok(value),
            Lookup::Pending(pending) => pending,
            Lookup::Full => return Err("too many concurrent reviews by the API server".to_owned()),
            Lookup::Absent(sender, pending) => {
                let (state, review) = (self.0.clone(), review());
                tokio::spawn(async move {
                    let outcome = review.await;
                    // The receiver may be gone.
                    let _ = sender.send(lock(&state).store(key, outcome));
                });
                pending
            }
        };
        pending.await.unwrap_or_else(|_| Err("the review was aborted".to_owned()))
    }
}

/// State of a key in the cache.
enum Lookup<V> {
    Cached(V),
    Pending(Pending<V>),
    Absent(oneshot::Sender<Outcome<V>>, Pending<V>),
    Full,
}

impl<K: Clone + Eq + Hash, V: Clone> State<K, V> {
    fn lookup(&mut self, key: &K) -> Lookup<V> {
        match self.results.get(key) {
            Some((value, until)) if *until > Instant::now() => return Lookup::Cached(value.clone()),
            _ => drop(self.results.remove(key)),
        }
        match self.pending.get(key) {
            // A review that panicked dropped its sender.
            Some(pending) if pending.peek().is_none_or(Result::is_ok) => return Lookup::Pending(pending.clone()),
            None if self.pending.len() >= MAX_ENTRIES => return Lookup::Full,
            _ => {}
        }
        let (sender, pending) = oneshot::channel();
        let pending = pending.shared();
        self.pending.insert(key.clone(), pending.clone());
        Lookup::Absent(sender, pending)
    }

    fn store(&mut self, key: K, outcome: Outcome<(V, Duration)>) -> Outcome<V> {
        self.pending.remove(&key);
        let (value, ttl) = outcome?;
        let now = Instant::now();
        if self.results.len() >= MAX_ENTRIES {
            self.results.retain(|_, (_, until)| *until > now);
        }
        if self.results.len() < MAX_ENTRIES && !ttl.is_zero() {
            self.results.insert(key, (value.clone(), now + ttl));
        }
        Ok(value)
    }
}

fn lock<K, V>(state: &Mutex<State<K, V>>) -> MutexGuard<'_, State<K, V>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    /// Counts reviews; each takes a second.
    #[derive(Clone, Default)]
    struct Reviewer(Arc<AtomicU32>);

    impl Reviewer {
        async fn review(self, outcome: Outcome<(u32, Duration)>) -> Outcome<(u32, Duration)> {
            sleep(Duration::from_secs(1)).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            outcome
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_review_until_it_expires() {
        let (cache, reviewer, ttl) = (ReviewCache::new(), Reviewer::default(), Duration::from_secs(10));
        let answers = join_all((0..5).map(|_| cache.get("key", || reviewer.clone().review(Ok((7, ttl)))))).await;
        assert_eq!((answers, reviewer.count()), (vec![Ok(7); 5], 1));
        advance(ttl - Duration::from_millis(1)).await;
        assert_eq!(cache.get("key", || reviewer.clone().review(Ok((8, ttl)))).await, Ok(7));
        advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get("key", || reviewer.clone().review(Ok((8, ttl)))).await, Ok(8));
        assert_eq!(reviewer.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_and_results_without_time_to_live_are_not_cached() {
        let (cache, reviewer) = (ReviewCache::new(), Reviewer::default());
        assert_eq!(cache.get("key", || reviewer.clone().review(Err("no".to_owned()))).await, Err("no".to_owned()));
        assert_eq!(cache.get("key", || reviewer.clone().review(Ok((1, Duration::ZERO)))).await, Ok(1));
        assert_eq!(cache.get("key", || reviewer.clone().review(Ok((2, Duration::ZERO)))).await, Ok(2));
        assert_eq!(reviewer.count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_continues_after_its_first_caller_is_dropped() {
        let (cache, reviewer, ttl) = (ReviewCache::new(), Reviewer::default(), Duration::from_secs(10));
        let impatient = cache.get("key", || reviewer.clone().review(Ok((7, ttl))));
        assert!(tokio::time::timeout(Duration::from_millis(1), impatient).await.is_err());
        assert_eq!(cache.get("key", || reviewer.clone().review(Ok((8, ttl)))).await, Ok(7));
        assert_eq!(reviewer.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let cache = ReviewCache::new();
        for key in 0..MAX_ENTRIES + 10 {
            let answer = cache.get(key, || async move { Ok((key, Duration::from_secs(10))) }).await;
            assert_eq!(answer, Ok(key));
        }
        assert_eq!(lock(&cache.0).results.len(), MAX_ENTRIES);
        advance(Duration::from_secs(10)).await;
        let _ = cache.get(MAX_ENTRIES + 10, || async { Ok((0, Duration::from_secs(10))) }).await;
        assert_eq!(lock(&cache.0).results.len(), 1);
    }
}
