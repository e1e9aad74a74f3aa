//! Attempts of one call: decides whether to retry, and after which delay.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::field::{Empty, display};
use tracing::{Instrument as _, Span};

use super::{Call, Calls, Effect};
use crate::{Error, Result, Retry};

/// Attempts of one call.
pub struct Attempts<'a> {
    calls: &'a Calls,
    call: Call,
    made: u32,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(calls: &'a Calls, call: Call) -> Attempts<'a> {
        Attempts { calls, call, made: 0 }
    }

    /// Makes one attempt as soon as the limits allow it.
    pub async fn attempt<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.made += 1;
        let span = self.span();
        let attempt = async {
            let permit = self.calls.shared.limits.acquire(self.call).await;
            self.calls.wait_for_rate_limit(self.call).await?;
            let begun = Instant::now();
            let result = self.calls.run(self.call, work).await;
            permit.iter().for_each(|permit| permit.record(begun, result.as_ref().err()));
            result
        };
        let result = attempt.instrument(span.clone()).await.map_err(Error::with_bounded_retry);
        if let Err(error) = &result {
            span.record("kind", error.kind().as_str());
            span.record("error", display(error));
        }
        result
    }

    /// Waits before the next attempt, or returns the error if there is no next attempt.
    pub async fn back_off(&self, error: Error) -> Result<()> {
        let Some(delay) = self.delay_after(&error) else { return Err(error) };
        let Call { service, name, .. } = self.call;
        tracing::debug!(service, call = name, attempt = self.made, ?delay, %error, "retrying the call");
        sleep(delay).await;
        Ok(())
    }

    fn span(&self) -> Span {
        let Call { service, name, .. } = self.call;
        let cloud = self.calls.shared.measurements.cloud().unwrap_or_default();
        let attempt = self.made;
        tracing::info_span!(
            "call",
            otel.kind = "client",
            cloud,
            service,
            call = name,
            attempt,
            kind = Empty,
            error = Empty
        )
    }

    /// Returns the delay before the next attempt; `None` if there is no next attempt.
    fn delay_after(&self, error: &Error) -> Option<Duration> {
        if !error.kind().is_transient() {
            return None;
        }
        let policy = &self.calls.shared.policy;
        if let Retry::After(pause) = error.retry_advice()
            && policy.pauses
        {
            self.calls.shared.pauses.pause(self.call.service, pause);
            self.calls.shared.measurements.record_pause(pause);
        }
        let may_have_executed = self.call.effect == Effect::Write && error.is_outcome_unknown();
        match error.retry_advice() {
            _ if may_have_executed || self.made >= self.calls.max_attempts => None,
            Retry::Never => None,
            Retry::After(pause) => Some(pause).filter(|pause| *pause <= policy.max_backoff),
            // While the service is paused for a long time, callers fail instead of waiting.
            Retry::Backoff if self.calls.shared.pauses.remaining(self.call.service) > policy.max_backoff => None,
            Retry::Backoff => Some(self.backoff()),
        }
    }

    /// Returns the exponential back-off with jitter: between half and all of a delay that doubles each time, so that calls that
    /// failed together are not retried together.
    fn backoff(&self) -> Duration {
        let policy = &self.calls.shared.policy;
        let doubled = 2_u32.saturating_pow(self.made.saturating_sub(1));
        let whole = policy.first_backoff.saturating_mul(doubled).min(policy.max_backoff);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
