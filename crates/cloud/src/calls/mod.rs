//! The gate that every HTTP call to one cloud passes: limited, retried, timed and measured here and nowhere else.
//!
//! ```text
//!  call ──► attempt: place, if limited ──► pause of the service ──► token ──► dry run, fence (writes) ──► timeout ──► the cloud
//!             ▲                                                                                        │
//!             └──────────── back-off ◄── may be repeated, and may work later ◄─────────────────────────┘
//! ```
//!
//! A [limited](Call::limited) call is one of which the cloud does not take many at once: four are under way at first, fewer after
//! an answer that is slow or says that the cloud is overloaded, and more again after good ones.
//!
//! A cloud that answers `Retry-After` pauses the service for all its callers: a short pause is waited for, a long one fails
//! at once with the time that is left. Reads and idempotent writes are repeated; any other write is repeated only if the
//! error says that the cloud did not execute it ([`Error::is_outcome_unknown`]).

mod attempts;
mod limits;
mod metrics;
mod pauses;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::{Fence, TokenBucket};
use tokio::time::{Instant, sleep, timeout};

pub use attempts::Attempts;
pub use metrics::METRICS;

use crate::{Error, ErrorKind, Result, Retry};
use limits::Limits;
use metrics::Measurements;
use pauses::Pauses;

/// How calls to a cloud are limited and repeated.
#[derive(Debug, Clone)]
pub struct CallPolicy {
    /// Longest time that one attempt may take.
    pub timeout: Duration,
    /// Number of attempts, the first one included.
    pub max_attempts: u32,
    /// Pause after the first failed attempt; it doubles each time.
    pub first_backoff: Duration,
    /// Longest pause. A service that asks for a longer one is paused for all its callers, and they get the error with the
    /// cloud's advice in it.
    pub max_backoff: Duration,
    /// A service that asks for a pause (`Retry-After`) is paused for all its callers; otherwise only the call that it answered
    /// waits.
    pub pauses: bool,
    /// Calls per second; `None` sets no limit of our own.
    pub rate: Option<f64>,
    /// Number of calls that may come at once before the rate counts.
    pub burst: u32,
    /// Fence that must be open for a write: a process that no longer leads changes nothing.
    pub fence: Fence,
    /// Writes fail with [`Cancelled`](ErrorKind::Cancelled) and are logged. The layers skip the writes that they know of; this
    /// stops the others, those of loops above all.
    pub dry_run: bool,
}

impl Default for CallPolicy {
    fn default() -> CallPolicy {
        CallPolicy {
            timeout: Duration::from_secs(60),
            max_attempts: 4,
            first_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(10),
            pauses: true,
            rate: None,
            burst: 20,
            fence: Fence::open(),
            dry_run: false,
        }
    }
}

/// Effect of a call on the cloud: it decides when the call may be repeated and whether the fence applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing, whatever its HTTP method.
    Read,
    /// Changes something; made twice, it does what it does once.
    IdempotentWrite,
    /// Changes something, and made twice may do so twice.
    Write,
}

/// One HTTP call, as the gate sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Service of the cloud that answers it; services are paused one by one.
    pub service: &'static str,
    /// Name in metrics, traces and errors, such as `server_list`.
    pub name: &'static str,
    /// Effect on the cloud.
    pub effect: Effect,
    /// Only as many of this name are made at once as the cloud answers well.
    pub limited: bool,
}

/// Gate for the calls to one cloud. Clones share its limits, pauses and measurements.
///
/// The default, for tests, makes one attempt, sets no limit and pauses no service.
#[derive(Clone)]
pub struct Calls {
    gate: Arc<Gate>,
    timeout: Duration,
}

struct Gate {
    policy: CallPolicy,
    bucket: Option<TokenBucket>,
    pauses: Pauses,
    limits: Limits,
    measurements: Measurements,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls::new(CallPolicy { max_attempts: 1, pauses: false, ..CallPolicy::default() })
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("policy", &self.gate.policy).finish_non_exhaustive()
    }
}

impl Calls {
    /// Gate with this policy; it counts for no one until it is [named](Calls::named).
    pub fn new(policy: CallPolicy) -> Calls {
        let bucket = policy.rate.map(|rate| TokenBucket::new(rate, policy.burst));
        let timeout = policy.timeout;
        let (pauses, limits, measurements) = Default::default();
        let gate = Gate { policy, bucket, pauses, limits, measurements };
        Calls { gate: Arc::new(gate), timeout }
    }

    /// The same gate with another longest time for an attempt, where the provider's configuration has one.
    pub fn with_timeout(&self, timeout: Duration) -> Calls {
        Calls { gate: Arc::clone(&self.gate), timeout }
    }

    /// Registers the metrics under the name of the cloud. The first name counts.
    pub fn named(&self, cloud: &str, registry: &prometheus::Registry) {
        self.gate.measurements.register(cloud, registry);
    }

    /// Makes `attempt` until it works or repeating it is of no use.
    pub async fn make<T, F>(&self, call: Call, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut attempts = self.attempts(call);
        loop {
            match attempts.attempt(attempt()).await {
                Err(error) => attempts.back_off(error).await?,
                answer => return answer,
            }
        }
    }

    /// Attempts at one call, for callers with work of their own between them.
    pub fn attempts(&self, call: Call) -> Attempts<'_> {
        Attempts::new(self, call)
    }

    /// Longest time for which a service is still paused; zero if none is.
    pub fn paused_for(&self) -> Duration {
        self.gate.pauses.longest()
    }

    /// Number of calls that are under way.
    pub fn under_way(&self) -> usize {
        self.gate.measurements.calls_under_way()
    }

    /// Waits for the end of a short pause and for a token.
    async fn wait_for_turn(&self, call: Call) -> Result<()> {
        let begun = Instant::now();
        self.wait_for_pause(call).await?;
        if let Some(bucket) = &self.gate.bucket {
            bucket.take().await;
        }
        // The cloud may have asked for a pause meanwhile.
        self.wait_for_pause(call).await?;
        self.gate.measurements.waited(begun.elapsed());
        Ok(())
    }

    /// Fails during a long pause, with the time that is left.
    async fn wait_for_pause(&self, call: Call) -> Result<()> {
        loop {
            let left = self.gate.pauses.left(call.service);
            if left.is_zero() {
                return Ok(());
            }
            if left > self.gate.policy.max_backoff {
                // Without the time that is left: Events and logs count what is repeated by its text.
                let message = "the cloud has asked for a pause (Retry-After), which is not over yet";
                let error = Error::new(ErrorKind::RateLimited, call.name, message);
                return Err(self.explained(error.retry(Retry::After(left)), call));
            }
            sleep(left).await;
        }
    }

    /// One attempt within its time; a write goes on only while this process leads.
    async fn admitted<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        let timed = async { timeout(self.timeout, work).await.unwrap_or_else(|_| Err(self.too_slow(call))) };
        if call.effect == Effect::Read {
            return self.measured(call, timed).await;
        }
        if self.gate.policy.dry_run {
            tracing::info!(service = call.service, call = call.name, "dry run, not called");
            let error = Error::new(ErrorKind::Cancelled, call.name, "not called, because this is a dry run");
            return Err(self.explained(error.retry(Retry::Never), call));
        }
        let guarded = self.gate.policy.fence.guard(self.measured(call, timed)).await;
        guarded.unwrap_or_else(|fenced| {
            let error = Error::new(ErrorKind::Cancelled, call.name, fenced.to_string()).source(fenced);
            Err(self.explained(error.retry(Retry::Never).outcome_unknown(), call))
        })
    }

    async fn measured<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        let (_under_way, begun) = (self.gate.measurements.under_way(), Instant::now());
        let answer = work.await;
        self.gate.measurements.called(call, begun.elapsed(), answer.as_ref().err());
        answer
    }

    fn too_slow(&self, call: Call) -> Error {
        let message = format!("no answer within {:?}", self.timeout);
        self.explained(Error::new(ErrorKind::Unavailable, call.name, message).outcome_unknown(), call)
    }

    fn explained(&self, error: Error, call: Call) -> Error {
        let error = error.context("service", call.service);
        match self.gate.measurements.cloud() {
            Some(cloud) => error.context("provider", cloud),
            None => error,
        }
    }
}
