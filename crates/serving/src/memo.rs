//! Answers of the API server, kept for a while. Whoever asks while the question is already on its way waits for that answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::Shared;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// More answers than this are not kept, and more questions not asked at a time.
const MOST: usize = 8192;

/// What a question came to, or why there is no answer.
pub(crate) type Outcome<V> = Result<V, String>;

type OnTheWay<V> = Shared<oneshot::Receiver<Outcome<V>>>;

/// Answers by question. Failures to get one are not kept.
pub(crate) struct Memo<K, V>(Arc<Mutex<State<K, V>>>);

struct State<K, V> {
    known: HashMap<K, (V, Instant)>,
    asked: HashMap<K, OnTheWay<V>>,
}

impl<K, V> Memo<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new() -> Memo<K, V> {
        Memo(Arc::new(Mutex::new(State { known: HashMap::new(), asked: HashMap::new() })))
    }

    /// The answer, from memory if it is there. `ask` says for how long its answer counts; it goes on if we are not waited for
    /// any more, since others may wait.
    pub(crate) async fn get<F>(&self, key: K, ask: impl FnOnce() -> F) -> Outcome<V>
    where
        F: Future<Output = Outcome<(V, Duration)>> + Send + 'static,
    {
        let on_the_way = match lock(&self.0).look(&key) {
            Look::Known(value) => return Ok(value),
            Look::IncomingRequest(on_the_way) => on_the_way,
            Look::Full => return Err("too many questions are on their way to the API server".to_owned()),
            Look::Unknown(answer, on_the_way) => {
                let (state, question) = (self.0.clone(), ask());
                tokio::spawn(async move {
                    let outcome = question.await;
                    // Nobody may be waiting any more.
                    let _ = answer.send(lock(&state).keep(key, outcome));
                });
                on_the_way
            }
        };
        on_the_way.await.unwrap_or_else(|_| Err("the question was lost".to_owned()))
    }
}

/// What there is to a question.
enum Look<V> {
    Known(V),
    IncomingRequest(OnTheWay<V>),
    Unknown(oneshot::Sender<Outcome<V>>, OnTheWay<V>),
    Full,
}

impl<K: Clone + Eq + Hash, V: Clone> State<K, V> {
    fn look(&mut self, key: &K) -> Look<V> {
        match self.known.get(key) {
            Some((value, until)) if *until > Instant::now() => return Look::Known(value.clone()),
            _ => drop(self.known.remove(key)),
        }
        match self.asked.get(key) {
            // The sender of a question that panicked is gone.
            Some(asked) if asked.peek().is_none_or(Result::is_ok) => return Look::IncomingRequest(asked.clone()),
            None if self.asked.len() >= MOST => return Look::Full,
            _ => {}
        }
        let (answer, on_the_way) = oneshot::channel();
        let on_the_way = on_the_way.shared();
        self.asked.insert(key.clone(), on_the_way.clone());
        Look::Unknown(answer, on_the_way)
    }

    fn keep(&mut self, key: K, outcome: Outcome<(V, Duration)>) -> Outcome<V> {
        self.asked.remove(&key);
        let (value, ttl) = outcome?;
        let now = Instant::now();
        if self.known.len() >= MOST {
            self.known.retain(|_, (_, until)| *until > now);
        }
        if self.known.len() < MOST && !ttl.is_zero() {
            self.known.insert(key, (value.clone(), now + ttl));
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

    /// Counts how often it is asked; each question takes a second.
    #[derive(Clone, Default)]
    struct Oracle(Arc<AtomicU32>);

    impl Oracle {
        async fn ask(self, outcome: Outcome<(u32, Duration)>) -> Outcome<(u32, Duration)> {
            sleep(Duration::from_secs(1)).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            outcome
        }

        fn asked(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_once_for_all_who_wait_and_again_when_its_answer_is_old() {
        let (memo, oracle, ttl) = (Memo::new(), Oracle::default(), Duration::from_secs(10));
        let answers = join_all((0..5).map(|_| memo.get("key", || oracle.clone().ask(Ok((7, ttl)))))).await;
        assert_eq!((answers, oracle.asked()), (vec![Ok(7); 5], 1));
        advance(ttl - Duration::from_millis(1)).await;
        assert_eq!(memo.get("key", || oracle.clone().ask(Ok((8, ttl)))).await, Ok(7));
        advance(Duration::from_millis(1)).await;
        assert_eq!(memo.get("key", || oracle.clone().ask(Ok((8, ttl)))).await, Ok(8));
        assert_eq!(oracle.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn neither_failures_nor_what_counts_for_no_time_are_kept() {
        let (memo, oracle) = (Memo::new(), Oracle::default());
        assert_eq!(memo.get("key", || oracle.clone().ask(Err("no".to_owned()))).await, Err("no".to_owned()));
        assert_eq!(memo.get("key", || oracle.clone().ask(Ok((1, Duration::ZERO)))).await, Ok(1));
        assert_eq!(memo.get("key", || oracle.clone().ask(Ok((2, Duration::ZERO)))).await, Ok(2));
        assert_eq!(oracle.asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_comes_although_the_first_to_ask_went_away() {
        let (memo, oracle, ttl) = (Memo::new(), Oracle::default(), Duration::from_secs(10));
        let impatient = memo.get("key", || oracle.clone().ask(Ok((7, ttl))));
        assert!(tokio::time::timeout(Duration::from_millis(1), impatient).await.is_err());
        assert_eq!(memo.get("key", || oracle.clone().ask(Ok((8, ttl)))).await, Ok(7));
        assert_eq!(oracle.asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let memo = Memo::new();
        for key in 0..MOST + 10 {
            let answer = memo.get(key, || async move { Ok((key, Duration::from_secs(10))) }).await;
            assert_eq!(answer, Ok(key));
        }
        assert_eq!(lock(&memo.0).known.len(), MOST);
        advance(Duration::from_secs(10)).await;
        let _ = memo.get(MOST + 10, || async { Ok((0, Duration::from_secs(10))) }).await;
        assert_eq!(lock(&memo.0).known.len(), 1);
    }
}
