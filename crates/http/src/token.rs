//! A token that all calls share: renewed early, by one request at a time.
//!
//! ```text
//!  get ──► valid? ──no──► issue (one at a time, for all who wait) ──► token
//!            │yes
//!            └──► token; if it ends soon, a new one is issued meanwhile
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

/// Longest time before its end at which a token is renewed; a tenth of its lifetime if that is less.
const AHEAD: Duration = Duration::from_secs(120);

/// Pause after a failed renewal while the current token is still valid.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

/// A token that was issued just now.
#[derive(Debug)]
pub struct Issued<T> {
    /// The token, with all that came with it.
    pub token: T,
    /// Its lifetime; one without a known end is used until the cloud refuses it.
    pub lifetime: Option<Duration>,
}

/// Issues tokens.
type Issue<T> = dyn Fn() -> BoxFuture<'static, Result<Issued<T>>> + Send + Sync;

/// Source of a token. Clones share the token.
pub struct TokenSource<T> {
    issue: Arc<Issue<T>>,
    state: Arc<Mutex<State<T>>>,
}

impl<T> Clone for TokenSource<T> {
    fn clone(&self) -> TokenSource<T> {
        TokenSource { issue: Arc::clone(&self.issue), state: Arc::clone(&self.state) }
    }
}

struct State<T> {
    current: Option<Held<T>>,
    issuing: Option<Issuing<T>>,
    failed_at: Option<Instant>,
}

struct Held<T> {
    token: Arc<T>,
    /// When it should be renewed, and when it ends.
    life: Option<(Instant, Instant)>,
}

/// A request for a token that is under way, for all who wait for it.
type Issuing<T> = Shared<BoxFuture<'static, Result<Arc<T>>>>;

impl<T: Send + Sync + 'static> TokenSource<T> {
    /// Source of the tokens that `issue` brings; nothing is asked for yet.
    pub fn new(issue: impl Fn() -> BoxFuture<'static, Result<Issued<T>>> + Send + Sync + 'static) -> TokenSource<T> {
        let state = State { current: None, issuing: None, failed_at: None };
        TokenSource { issue: Arc::new(issue), state: Arc::new(Mutex::new(state)) }
    }

    /// The current token; waits for one only if there is none that is valid.
    pub async fn get(&self) -> Result<Arc<T>> {
        let now = Instant::now();
        let issuing = {
            let mut state = self.state();
            let valid = state.current.as_ref().filter(|held| held.life.is_none_or(|(_, end)| now < end));
            match valid.map(|held| (held.token.clone(), held.life.is_some_and(|(renewal, _)| now >= renewal))) {
                None => self.issuing(&mut state),
                Some((token, ends_soon)) => {
                    let is_pausing = state.failed_at.is_some_and(|at| now < at + RENEWAL_PAUSE);
                    if ends_soon && !is_pausing {
                        // The current token is still valid; the next one is on its way.
                        drop(self.issuing(&mut state));
                    }
                    return Ok(token);
                }
            }
        };
        issuing.await
    }

    /// A new token, if the current one is the one that the cloud refused; otherwise the current one.
    pub async fn renewed(&self, is_refused: impl Fn(&T) -> bool) -> Result<Arc<T>> {
        let issuing = {
            let mut state = self.state();
            match &state.current {
                Some(held) if !is_refused(&held.token) => return Ok(held.token.clone()),
                _ => {
                    state.current = None;
                    self.issuing(&mut state)
                }
            }
        };
        issuing.await
    }

    /// Joins the request that is under way, or begins one. It goes on even if all who wait for it give up.
    fn issuing(&self, state: &mut State<T>) -> Issuing<T> {
        if let Some(issuing) = &state.issuing {
            return issuing.clone();
        }
        let source = self.clone();
        let task = tokio::spawn(async move {
            let outcome = (source.issue)().await;
            source.settle(outcome)
        });
        let interrupted =
            |error| Err(Error::new(ErrorKind::Unavailable, "authenticate", format!("it was interrupted: {error}")));
        let issuing = task.map(move |outcome| outcome.unwrap_or_else(interrupted)).boxed().shared();
        state.issuing = Some(issuing.clone());
        issuing
    }

    fn settle(&self, outcome: Result<Issued<T>>) -> Result<Arc<T>> {
        let now = Instant::now();
        let mut state = self.state();
        state.issuing = None;
        match outcome {
            Ok(Issued { token, lifetime }) => {
                let token = Arc::new(token);
                let life = lifetime.map(|lifetime| (now + (lifetime - AHEAD.min(lifetime / 10)), now + lifetime));
                state.current = Some(Held { token: token.clone(), life });
                Ok(token)
            }
            Err(error) => {
                state.failed_at = Some(now);
                Err(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Tokens 1, 2, 3… that live this long, each after a second; the numbers in `failing` are not issued.
    fn source(lifetime: Option<Duration>, failing: &'static [usize]) -> (TokenSource<usize>, Arc<AtomicUsize>) {
        let issued = Arc::new(AtomicUsize::new(0));
        let count = issued.clone();
        let issue = move || {
            let number = count.fetch_add(1, SeqCst) + 1;
            async move {
                sleep(SECOND).await;
                match failing.contains(&number) {
                    true => Err(Error::new(ErrorKind::Unavailable, "authenticate", "no")),
                    false => Ok(Issued { token: number, lifetime }),
                }
            }
            .boxed()
        };
        (TokenSource::new(issue), issued)
    }

    async fn get(source: &TokenSource<usize>) -> usize {
        *source.get().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_calls_need_a_token_one_is_issued() {
        let (source, issued) = source(None, &[]);
        let tokens = join_all((0..100).map(|_| source.get())).await;
        assert!(tokens.iter().all(|token| **token.as_ref().unwrap() == 1));
        let refused = join_all((0..100).map(|_| source.renewed(|token| *token == 1))).await;
        assert!(refused.iter().all(|token| **token.as_ref().unwrap() == 2));
        assert_eq!(issued.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_before_its_end_while_calls_go_on_with_it() {
        let (source, issued) = source(Some(3600 * SECOND), &[]);
        assert_eq!(get(&source).await, 1);
        advance(3479 * SECOND).await;
        assert_eq!((get(&source).await, issued.load(SeqCst)), (1, 1));
        advance(2 * SECOND).await;
        assert_eq!(get(&source).await, 1, "the next one is on its way");
        sleep(2 * SECOND).await;
        assert_eq!((get(&source).await, issued.load(SeqCst)), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_renewal_there_is_a_pause_while_the_token_is_valid() {
        let (source, issued) = source(Some(3600 * SECOND), &[2, 3]);
        assert_eq!(get(&source).await, 1);
        advance(3500 * SECOND).await;
        assert_eq!(get(&source).await, 1);
        sleep(2 * SECOND).await;
        for _ in 0..5 {
            assert_eq!((get(&source).await, issued.load(SeqCst)), (1, 2), "the renewal failed");
        }
        advance(10 * SECOND).await;
        assert_eq!(get(&source).await, 1);
        sleep(2 * SECOND).await;
        assert_eq!(issued.load(SeqCst), 3);
        advance(100 * SECOND).await;
        assert_eq!(get(&source).await, 4, "the old one has ended, and calls wait for a new one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_an_error_for_all_who_wait_and_for_nobody_else() {
        let (source, _) = source(None, &[1]);
        let failed = join_all((0..5).map(|_| source.get())).await;
        assert!(failed.iter().all(Result::is_err));
        assert_eq!(get(&source).await, 2);
    }
}
