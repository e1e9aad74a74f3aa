//! Who we are and where the services are.
//!
//! ```text
//!  api ──► Call ──► token there? ──no──► authenticate (one at a time) ──► Access: token, catalog
//!                       │yes                                                 │
//!                       ▼                                                    ▼
//!                    endpoint of the service ──► send ──401──► authenticate once, send once more
//! ```
//!
//! A token is renewed shortly before it ends, while calls go on with the old one. However many calls find that there is none,
//! or that it is not taken any more, Keystone is asked once for all of them.

mod auth;
mod call;
mod catalog;
mod error;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_http::Client;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::{Method, Request, Response, StatusCode, header};
use tokio::time::Instant;

use crate::config::Global;
use crate::metrics::Metrics;

pub(crate) use auth::Access;
use auth::Identity;
pub(crate) use call::Call;
pub(crate) use catalog::Service;
pub(crate) use error::CallError;

/// So long nobody tries to renew a token that still serves, after that has failed.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

/// One cloud, as one user of it. Clones are the same session.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    http: Client,
    identity: Identity,
    user_agent: String,
    metrics: Metrics,
    state: Mutex<State>,
}

/// What is known, and what is being asked.
#[derive(Default)]
struct State {
    access: Option<Arc<Access>>,
    asking: Option<Asking>,
    /// When Keystone last failed to give a token.
    failed_at: Option<Instant>,
}

/// An authentication that is under way, for all who wait for it.
type Asking = Shared<BoxFuture<'static, Result<Arc<Access>, CallError>>>;

impl Session {
    /// With these credentials; nothing is asked yet.
    pub(crate) fn new(http: Client, global: &Global, user_agent: String, metrics: Metrics) -> Session {
        let identity = Identity::new(global);
        Session(Arc::new(Inner { http, identity, user_agent, metrics, state: Mutex::default() }))
    }

    /// A call that is counted under `name`, of the metrics' `request`.
    pub(crate) fn call(&self, name: &'static str, service: Service, method: Method, path: &[&str]) -> Call<'_> {
        Call::new(self, name, service, method, path)
    }

    /// Authenticates, if nobody has yet, and tells what that brought.
    pub(crate) async fn access(&self) -> Result<Arc<Access>, CallError> {
        let now = Instant::now();
        let asking = {
            let mut state = self.state();
            match state.access.clone().filter(|access| !access.has_ended(now)) {
                None => self.ask(&mut state),
                Some(access) => {
                    let is_pausing = state.failed_at.is_some_and(|at| now < at + RENEWAL_PAUSE);
                    if access.ends_soon(now) && !is_pausing {
                        // It still serves; nobody waits for the next one, which is on its way.
                        drop(self.ask(&mut state));
                    }
                    return Ok(access);
                }
            }
        };
        asking.await
    }

    /// Authenticates anew, unless somebody has since `old` was given out.
    async fn renewed(&self, old: &Arc<Access>) -> Result<Arc<Access>, CallError> {
        let asking = {
            let mut state = self.state();
            match &state.access {
                Some(access) if !Arc::ptr_eq(access, old) => return Ok(access.clone()),
                _ => {
                    state.access = None;
                    self.ask(&mut state)
                }
            }
        };
        asking.await
    }

    /// Joins the authentication that is under way, or begins one. It goes on even if all who wait for it give up.
    fn ask(&self, state: &mut State) -> Asking {
        if let Some(asking) = &state.asking {
            return asking.clone();
        }
        let session = self.clone();
        let task = tokio::spawn(async move {
            let outcome = session.authenticate().await;
            let mut state = session.state();
            state.asking = None;
            match &outcome {
                Ok(access) => state.access = Some(access.clone()),
                Err(_) => state.failed_at = Some(Instant::now()),
            }
            outcome
        });
        let interrupted = |error| Err(CallError::Refused(format!("authentication was interrupted: {error}")));
        let asking = task.map(move |outcome| outcome.unwrap_or_else(interrupted)).boxed().shared();
        state.asking = Some(asking.clone());
        asking
    }

    async fn authenticate(&self) -> Result<Arc<Access>, CallError> {
        let identity = &self.0.identity;
        let request = Request::post(identity.url())
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, &self.0.user_agent)
            .body(identity.body())
            .map_err(|error| identity.refused(&format!("auth-url is no URL: {error}")))?;
        let answer = self.0.http.send(request).await;
        let answer = answer.map_err(|failure| CallError::unreachable(&Method::POST, identity.url(), &failure))?;
        let access = identity.read(&answer, Instant::now())?;
        tracing::debug!(url = identity.url(), "authenticated");
        Ok(Arc::new(access))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one request with this token.
    async fn attempt(&self, access: &Access, request: Outgoing<'_>) -> Result<Response<Bytes>, CallError> {
        let Outgoing { method, url, body, if_match } = request;
        let mut sent = Request::builder()
            .method(method)
            .uri(url)
            .header("X-Auth-Token", access.token())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, &self.0.user_agent);
        if !body.is_empty() {
            sent = sent.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(if_match) = if_match {
            sent = sent.header(header::IF_MATCH, if_match);
        }
        let sent = sent.body(body.clone()).map_err(|error| CallError::garbled(method, url, &error))?;
        self.0.http.send(sent).await.map_err(|failure| CallError::unreachable(method, url, &failure))
    }
}

/// What is sent, without the token.
#[derive(Clone, Copy)]
struct Outgoing<'a> {
    method: &'a Method,
    url: &'a str,
    body: &'a Bytes,
    if_match: Option<&'a str>,
}

impl fmt::Debug for Session {
    /// Without anything that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("identity", &self.0.identity.url()).finish_non_exhaustive()
    }
}

/// Whether the token was not taken.
fn is_unauthorized(answer: &Response<Bytes>) -> bool {
    answer.status() == StatusCode::UNAUTHORIZED
}

/// What a `Retry-After` asks for, in seconds or as a time of day.
fn retry_after(answer: &Response<Bytes>) -> Option<Duration> {
    let text = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(at.duration_since(jiff::Timestamp::now())).ok()
}
