//! The call layer: limits, retries, times and measures every HTTP call to one cloud.
//!
//! ```text
//!  call ──► attempt: permit, if limited ──► pause, budget ──► token ──► dry run, fence (writes) ──► timeout ──► the cloud
//!             ▲                                                                                       │
//!             └──────────── back-off ◄── transient error of a call that may be repeated ◄─────────────┘
//! ```
//!
//! A [limited](Call::limited) call has an adaptive concurrency limit: four concurrent calls at first, fewer after a response that
//! is slow or reports overload, and more again after successful ones.
//!
//! A response with `Retry-After` pauses the service for all callers. They wait for the end of a short pause, and fail immediately
//! during a long one, with the remaining time in the error. Reads and idempotent writes are retried. Any other write is retried
//! only if the cloud certainly did not execute it ([`Error::is_outcome_unknown`] is false).
//!
//! A service that throttles without `Retry-After` can have an adaptive rate: see [`Calls::with_adaptive_rate`].
//!
//! If the responses of a service report how many calls remain ([`CallBudget`]), calls slow down before the cloud rejects any.

mod adaptive;
mod attempts;
mod budgets;
mod history;
mod limits;
mod metrics;
mod pauses;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::{Fence, TokenBucket};
use tokio::time::{Instant, sleep, timeout};

pub use attempts::Attempts;
pub use budgets::CallBudget;
pub use history::{CallInterval, FinishedCall, INTERVAL};
pub use metrics::METRICS;

use crate::{CheckResult, Error, ErrorKind, Result, Retry};
use adaptive::AdaptiveRate;
use budgets::Budgets;
use history::History;
use limits::Limits;
use metrics::Measurements;
use pauses::Pauses;

/// Limits and retry policy of the calls to a cloud.
#[derive(Debug, Clone)]
pub struct CallPolicy {
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Back-off after the first failed attempt; it doubles with each further one.
    pub first_backoff: Duration,
    /// Maximum back-off. If a service requests a longer delay, callers get the error with that delay in its retry advice.
    pub max_backoff: Duration,
    /// `Retry-After` pauses the service for all callers; otherwise only for the call that received it.
    pub pauses: bool,
    /// Maximum number of calls per second; `None` for no rate limit.
    pub rate: Option<f64>,
    /// Burst size of the rate limit.
    pub burst: u32,
    /// Fence that must be open for a write, so that a process that is no longer the leader changes nothing.
    pub fence: Fence,
    /// Writes are logged and fail with [`Cancelled`](ErrorKind::Cancelled). The layers skip the writes of the contract; this stops
    /// all others.
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

/// Effect of a call on the cloud. It determines whether the call may be repeated and whether the fence applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing, whatever its HTTP method.
    Read,
    /// Changes something, and may be repeated safely.
    IdempotentWrite,
    /// Changes something, and may do so twice if it is repeated.
    Write,
}

/// Metadata of one HTTP call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Service of the cloud that receives the call; each service is paused on its own.
    pub service: &'static str,
    /// Name in metrics, traces and errors, such as `server_list`.
    pub name: &'static str,
    /// Effect on the cloud.
    pub effect: Effect,
    /// Calls of this name have an adaptive concurrency limit.
    pub limited: bool,
}

/// Call layer of one cloud. Clones share its limits, pauses and measurements.
///
/// The default, for tests, makes one attempt, has no rate limit and pauses no service.
#[derive(Clone)]
pub struct Calls {
    shared: Arc<Shared>,
    timeout: Duration,
    max_attempts: u32,
    /// Rate limit of the provider's configuration, in addition to that of the policy.
    own_bucket: Option<Arc<TokenBucket>>,
    adaptive: Option<Arc<AdaptiveRate>>,
}

/// Calls of the last half hour, and the current limits.
#[derive(Debug, Clone)]
pub struct CallActivity {
    /// Number of calls in progress.
    pub in_progress: usize,
    /// Finished calls in intervals of ten seconds, oldest first; intervals without a call are left out.
    pub intervals: Vec<CallInterval>,
    /// The 50 most recent calls, newest first.
    pub recent: Vec<FinishedCall>,
    /// Maximum number of calls per second, if the rate is limited.
    pub rate_limit: Option<f64>,
    /// End of the longest pause, if a service is paused.
    pub paused_until: Option<Instant>,
    /// Last reported budget of each service whose responses report one, with the time of its reset.
    pub budgets: BTreeMap<&'static str, (CallBudget, Instant)>,
}

struct Shared {
    policy: CallPolicy,
    bucket: Option<TokenBucket>,
    pauses: Pauses,
    budgets: Budgets,
    limits: Limits,
    measurements: Measurements,
    history: History,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls::new(CallPolicy { max_attempts: 1, pauses: false, ..CallPolicy::default() })
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("policy", &self.shared.policy).finish_non_exhaustive()
    }
}

impl Calls {
    /// Creates a call layer with this policy. It exports no metrics until they are [registered](Calls::register_metrics).
    pub fn new(policy: CallPolicy) -> Calls {
        let bucket = policy.rate.map(|rate| TokenBucket::new(rate, policy.burst));
        let (timeout, max_attempts) = (policy.timeout, policy.max_attempts);
        let (pauses, budgets, limits, measurements, history) = Default::default();
        let shared = Shared { policy, bucket, pauses, budgets, limits, measurements, history };
        Calls { shared: Arc::new(shared), timeout, max_attempts, own_bucket: None, adaptive: None }
    }

    /// Returns the same call layer with another timeout per attempt, for providers whose configuration has one.
    pub fn with_timeout(&self, timeout: Duration) -> Calls {
        Calls { timeout, ..self.clone() }
    }

    /// Returns the same call layer with fewer attempts per call, for providers whose configuration has a limit. A limit above that of
    /// the policy has no effect.
    pub fn with_max_attempts(&self, max_attempts: u32) -> Calls {
        Calls { max_attempts: self.max_attempts.min(max_attempts.max(1)), ..self.clone() }
    }

    /// Returns the same call layer with another rate limit in addition, for providers whose configuration has one.
    pub fn with_rate(&self, rate: f64, burst: u32) -> Calls {
        Calls { own_bucket: Some(Arc::new(TokenBucket::new(rate, burst))), ..self.clone() }
    }

    /// Returns the same call layer with an adaptive rate limit in addition, for clouds that throttle without `Retry-After`. There is
    /// no limit until the first throttled call; then the rate falls to 0.7 of the measured one, and grows again with each call that
    /// is not throttled. All services that use the returned value share one rate; call this again for a rate of its own.
    pub fn with_adaptive_rate(&self) -> Calls {
        Calls { adaptive: Some(Arc::new(AdaptiveRate::new())), ..self.clone() }
    }

    /// Registers the metrics under the name of the cloud. Only the first name takes effect.
    pub fn register_metrics(&self, cloud: &str, registry: &prometheus::Registry) {
        self.shared.measurements.register(cloud, registry);
    }

    /// Makes a call, and retries `attempt` as the policy allows.
    pub async fn make<T, F>(&self, call: Call, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut attempts = self.attempts(call);
        loop {
            match attempts.attempt(attempt()).await {
                Err(error) => attempts.back_off(error).await?,
                result => return result,
            }
        }
    }

    /// Returns the attempts of one call, for callers that do other work between them.
    pub fn attempts(&self, call: Call) -> Attempts<'_> {
        Attempts::new(self, call)
    }

    /// Returns the longest remaining pause of any service; zero if none is paused.
    pub fn paused_for(&self) -> Duration {
        self.shared.pauses.longest()
    }

    /// Records the budget that a response of the service reported.
    pub fn record_budget(&self, service: &'static str, budget: CallBudget) {
        self.shared.budgets.record(service, budget);
        self.shared.measurements.record_budget(service, budget.remaining);
    }

    /// Returns the last reported budget of each service whose responses report one.
    pub fn budgets(&self) -> BTreeMap<&'static str, CallBudget> {
        self.shared.budgets.all()
    }

    /// Checks the last reported budget of each service, for `bowline check`.
    pub fn check_budgets(&self) -> Vec<CheckResult> {
        self.budgets().into_iter().map(|(service, budget)| budget.check(service)).collect()
    }

    /// Returns the number of calls in progress.
    pub fn in_progress(&self) -> usize {
        self.shared.measurements.calls_in_progress()
    }

    /// Returns the calls of the last half hour.
    pub fn activity(&self) -> CallActivity {
        CallActivity {
            in_progress: self.in_progress(),
            intervals: self.shared.history.intervals(),
            recent: self.shared.history.recent(),
            rate_limit: self.rate_limit(),
            paused_until: self.shared.pauses.longest_until(),
            budgets: self.shared.budgets.with_resets(),
        }
    }

    /// Returns the lowest of the rate limits, in calls per second.
    fn rate_limit(&self) -> Option<f64> {
        let buckets = self.own_bucket.as_deref().into_iter().chain(&self.shared.bucket);
        let adaptive = self.adaptive.as_ref().and_then(|adaptive| adaptive.rate());
        buckets.filter_map(TokenBucket::rate).chain(adaptive).min_by(f64::total_cmp)
    }

    /// Waits for the end of a short pause and for a token.
    async fn wait_for_rate_limit(&self, call: Call) -> Result<()> {
        let begun = Instant::now();
        self.wait_for_pause(call).await?;
        self.wait_for_budget(call).await?;
        for bucket in self.own_bucket.as_deref().into_iter().chain(&self.shared.bucket) {
            bucket.take().await;
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.take().await;
        }
        // The cloud may have requested a pause meanwhile.
        self.wait_for_pause(call).await?;
        self.shared.measurements.record_wait(begun.elapsed());
        Ok(())
    }

    /// Waits if few calls remain, and fails if the wait would be long.
    async fn wait_for_budget(&self, call: Call) -> Result<()> {
        match self.shared.budgets.reserve(call.service, self.shared.policy.max_backoff) {
            Ok(wait) if wait.is_zero() => Ok(()),
            Ok(wait) => {
                sleep(wait).await;
                Ok(())
            }
            Err(wait) => {
                let message = "throttled: nearly all calls that the cloud allows in this period are used up";
                let error = Error::new(ErrorKind::RateLimited, call.name, message);
                Err(self.with_context(error.retry(Retry::After(wait)), call))
            }
        }
    }

    /// Fails during a long pause, with the remaining time.
    async fn wait_for_pause(&self, call: Call) -> Result<()> {
        loop {
            let remaining = self.shared.pauses.remaining(call.service);
            if remaining.is_zero() {
                return Ok(());
            }
            if remaining > self.shared.policy.max_backoff {
                // The message does not contain the remaining time, so that repeated Events and log lines are aggregated.
                let message = "throttled: the cloud requested a pause (Retry-After) that has not ended yet";
                let error = Error::new(ErrorKind::RateLimited, call.name, message);
                return Err(self.with_context(error.retry(Retry::After(remaining)), call));
            }
            sleep(remaining).await;
        }
    }

    /// Runs one attempt with its timeout. A write continues only while the fence is open.
    async fn run<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        let timed = async { timeout(self.timeout, work).await.unwrap_or_else(|_| Err(self.timed_out(call))) };
        if call.effect == Effect::Read {
            return self.measure(call, timed).await;
        }
        if self.shared.policy.dry_run {
            tracing::info!(service = call.service, call = call.name, "dry run: call skipped");
            let error = Error::new(ErrorKind::Cancelled, call.name, "call skipped: dry run");
            return Err(self.with_context(error.retry(Retry::Never), call));
        }
        let guarded = self.shared.policy.fence.guard(self.measure(call, timed)).await;
        guarded.unwrap_or_else(|fenced| {
            let error = Error::new(ErrorKind::Cancelled, call.name, fenced.to_string()).source(fenced);
            Err(self.with_context(error.retry(Retry::Never).outcome_unknown(), call))
        })
    }

    /// Adapts the rate to the response of the cloud. A service with `Retry-After` is paused instead.
    fn adapt(&self, error: Option<&Error>) {
        let is_throttled =
            |error: &Error| error.kind() == ErrorKind::RateLimited && !matches!(error.retry_advice(), Retry::After(_));
        self.adaptive.iter().for_each(|adaptive| adaptive.record(error.is_some_and(is_throttled)));
    }

    async fn measure<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        let (_in_progress, begun) = (self.shared.measurements.begin(), Instant::now());
        let result = work.await;
        let (took, failure) = (begun.elapsed(), result.as_ref().err());
        self.shared.measurements.record_call(call, took, failure);
        self.shared.history.record(call, took, failure);
        self.adapt(result.as_ref().err());
        result
    }

    fn timed_out(&self, call: Call) -> Error {
        let message = format!("no response within {:?}", self.timeout);
        self.with_context(Error::new(ErrorKind::Unavailable, call.name, message).outcome_unknown(), call)
    }

    fn with_context(&self, error: Error, call: Call) -> Error {
        let error = error.context("service", call.service);
        match self.shared.measurements.cloud() {
            Some(cloud) => error.context("provider", cloud),
            None => error,
        }
    }
}
