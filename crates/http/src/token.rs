//! A token that all calls share, renewed before it expires, with one request at a time.
//!
//! ```text
//!  get ──► valid? ──no──► issue (one request, shared by all callers) ──► token
//!            │yes
//!            └──► token; if it expires soon, a new one is issued in the background
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

/// Time before the expiry at which a token is renewed; a tenth of its lifetime if that is less.
const RENEW_BEFORE: Duration = Duration::from_secs(120);

/// Pause after a failed renewal while the current token is still valid.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

/// A newly issued token.
#[derive(Debug)]
pub struct IssuedToken<T> {
    /// The token, with everything else from the response.
    pub token: T,
    /// Lifetime; a token without a known lifetime is used until the cloud rejects it.
    pub lifetime: Option<Duration>,
}

/// Issues tokens.
type Issue<T> = dyn Fn() -> BoxFuture<'static, Result<IssuedToken<T>>> + Send + Sync;

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
    /// Times of renewal and expiry.
    validity: Option<(Instant, Instant)>,
}

/// A request for a token in progress, shared by all callers.
type Issuing<T> = Shared<BoxFuture<'static, Result<Arc<T>>>>;

impl<T: Send + Sync + 'static> TokenSource<T> {
    /// Creates a source of the tokens that `issue` returns. Makes no request yet.
    pub fn new(
        issue: impl Fn() -> BoxFuture<'static, Result<IssuedToken<T>>> + Send + Sync + 'static,
    ) -> TokenSource<T> {
        let state = State { current: None, issuing: None, failed_at: None };
        TokenSource { issue: Arc::new(issue), state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the current token; waits only if there is no valid one.
    pub async fn get(&self) -> Result<Arc<T>> {
        let now = Instant::now();
        let issuing = {
            let mut state = self.state();
            let valid = state.current.as_ref().filter(|held| held.validity.is_none_or(|(_, end)| now < end));
            match valid.map(|held| (held.token.clone(), held.validity.is_some_and(|(renewal, _)| now >= renewal))) {
                None => self.issuing(&mut state),
                Some((token, expires_soon)) => {
                    let is_pausing = state.failed_at.is_some_and(|at| now < at + RENEWAL_PAUSE);
                    if expires_soon && !is_pausing {
                        // The current token is still valid; the next one is issued in the background.
                        drop(self.issuing(&mut state));
                    }
                    return Ok(token);
                }
            }
        };
        issuing.await
    }

    /// Returns a new token if the cloud rejected the current one; otherwise the current one.
    pub async fn renew(&self, is_rejected: impl Fn(&T) -> bool) -> Result<Arc<T>> {
        let issuing = {
            let mut state = self.state();
            match &state.current {
                Some(held) if !is_rejected(&held.token) => return Ok(held.token.clone()),
                _ => {
                    state.current = None;
                    self.issuing(&mut state)
                }
            }
        };
        issuing.await
    }

    /// Returns the current token, if there is one that has not expired. Makes no request.
    pub fn current(&self) -> Option<Arc<T>> {
        let now = Instant::now();
        let state = self.state();
        let valid = state.current.as_ref().filter(|held| held.validity.is_none_or(|(_, end)| now < end));
        valid.map(|held| held.token.clone())
    }

    /// Removes and returns the current token, for a caller that revokes it. The next call issues another.
    pub fn take(&self) -> Option<Arc<T>> {
        self.state().current.take().map(|held| held.token)
    }

    /// Joins the request in progress, or starts one. It continues even if all callers stop waiting.
    fn issuing(&self, state: &mut State<T>) -> Issuing<T> {
        if let Some(issuing) = &state.issuing {
            return issuing.clone();
        }
        let source = self.clone();
        let task = tokio::spawn(async move {
            let outcome = (source.issue)().await;
            source.settle(outcome)
        });
        let interrupted = |error| {
            Err(Error::new(ErrorKind::Unavailable, "authenticate", format!("the login was interrupted: {error}")))
        };
        let issuing = task.map(move |outcome| outcome.unwrap_or_else(interrupted)).boxed().shared();
        state.issuing = Some(issuing.clone());
        issuing
    }

    fn settle(&self, outcome: Result<IssuedToken<T>>) -> Result<Arc<T>> {
        let now = Instant::now();
        let mut state = self.state();
        state.issuing = None;
        match outcome {
            Ok(IssuedToken { token, lifetime }) => {
                let token = Arc::new(token);
                let validity =
                    lifetime.map(|lifetime| (now + (lifetime - RENEW_BEFORE.min(lifetime / 10)), now + lifetime));
                state.current = Some(Held { token: token.clone(), validity });
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

    /// Issues tokens 1, 2, 3… with this lifetime, each after one second; the numbers in `failing` fail.
    fn source(lifetime: Option<Duration>, failing: &'static [usize]) -> (TokenSource<usize>, Arc<AtomicUsize>) {
        let issued = Arc::new(AtomicUsize::new(0));
        let count = issued.clone();
        let issue = move || {
            let number = count.fetch_add(1, SeqCst) + 1;
            async move {
                sleep(SECOND).await;
                match failing.contains(&number) {
                    true => Err(Error::new(ErrorKind::Unavailable, "authenticate", "no")),
                    false => Ok(IssuedToken { token: number, lifetime }),
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
    async fn concurrent_calls_share_one_token_request() {
        let (source, issued) = source(None, &[]);
        let tokens = join_all((0..100).map(|_| source.get())).await;
        assert!(tokens.iter().all(|token| **token.as_ref().unwrap() == 1));
        let renewed = join_all((0..100).map(|_| source.renew(|token| *token == 1))).await;
        assert!(renewed.iter().all(|token| **token.as_ref().unwrap() == 2));
        assert_eq!(issued.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_in_the_background_before_it_expires() {
        let (source, issued) = source(Some(3600 * SECOND), &[]);
        assert_eq!(get(&source).await, 1);
        advance(3479 * SECOND).await;
        assert_eq!((get(&source).await, issued.load(SeqCst)), (1, 1));
        advance(2 * SECOND).await;
        assert_eq!(get(&source).await, 1, "the next one is being issued");
        sleep(2 * SECOND).await;
        assert_eq!((get(&source).await, issued.load(SeqCst)), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_renewal_is_retried_after_a_pause() {
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
        assert_eq!(get(&source).await, 4, "the old token has expired, and calls wait for a new one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_can_be_inspected_and_taken_without_a_request() {
        let (source, issued) = source(Some(3600 * SECOND), &[]);
        assert!(source.current().is_none() && source.take().is_none());
        assert_eq!(get(&source).await, 1);
        assert_eq!((source.current().as_deref(), source.take().as_deref()), (Some(&1), Some(&1)));
        assert!(source.current().is_none());
        assert_eq!((get(&source).await, issued.load(SeqCst)), (2, 2));
        advance(3600 * SECOND).await;
        assert!(source.current().is_none(), "it has expired");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_request_fails_only_its_waiting_callers() {
        let (source, _) = source(None, &[1]);
        let failed = join_all((0..5).map(|_| source.get())).await;
        assert!(failed.iter().all(Result::is_err));
        assert_eq!(get(&source).await, 2);
    }
}
