//! The attempts at one call: when there is another one, and after which pause.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::field::{Empty, display};
use tracing::{Instrument as _, Span};

use super::{Call, Calls, Effect};
use crate::{Error, Result, Retry};

/// Attempts at one call.
pub struct Attempts<'a> {
    calls: &'a Calls,
    call: Call,
    made: u32,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(calls: &'a Calls, call: Call) -> Attempts<'a> {
        Attempts { calls, call, made: 0 }
    }

    /// Makes one attempt, as soon as the limits let it.
    pub async fn attempt<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.made += 1;
        let span = self.span();
        let attempt = async {
            let place = self.calls.gate.limits.place(self.call).await;
            self.calls.wait_for_turn(self.call).await?;
            let begun = Instant::now();
            let answer = self.calls.admitted(self.call, work).await;
            place.iter().for_each(|place| place.answered(begun, answer.as_ref().err()));
            answer
        };
        let answer = attempt.instrument(span.clone()).await.map_err(Error::within_reason);
        if let Err(error) = &answer {
            span.record("kind", error.kind().as_str());
            span.record("error", display(error));
        }
        answer
    }

    /// Waits before the next attempt, or returns the error if there is none.
    pub async fn back_off(&self, error: Error) -> Result<()> {
        let Some(pause) = self.pause_after(&error) else { return Err(error) };
        let Call { service, name, .. } = self.call;
        tracing::debug!(service, call = name, attempt = self.made, ?pause, %error, "the call is repeated");
        sleep(pause).await;
        Ok(())
    }

    fn span(&self) -> Span {
        let Call { service, name, .. } = self.call;
        let cloud = self.calls.gate.measurements.cloud().unwrap_or_default();
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

    /// How long to wait before the next attempt; `None` if there is none.
    fn pause_after(&self, error: &Error) -> Option<Duration> {
        if !error.kind().is_transient() {
            return None;
        }
        let policy = &self.calls.gate.policy;
        if let Retry::After(pause) = error.retry_advice()
            && policy.pauses
        {
            self.calls.gate.pauses.pause(self.call.service, pause);
            self.calls.gate.measurements.paused(pause);
        }
        let is_open = self.call.effect == Effect::Write && error.is_outcome_unknown();
        match error.retry_advice() {
            _ if is_open || self.made >= policy.max_attempts => None,
            Retry::Never => None,
            Retry::After(pause) => Some(pause).filter(|pause| *pause <= policy.max_backoff),
            // While all callers of the service pause, none waits to be the first to come back.
            Retry::Backoff if self.calls.gate.pauses.left(self.call.service) > policy.max_backoff => None,
            Retry::Backoff => Some(self.backoff()),
        }
    }

    /// Between half and all of a pause that doubles each time, so that calls that failed together are not repeated together.
    fn backoff(&self) -> Duration {
        let policy = &self.calls.gate.policy;
        let doubled = 2_u32.saturating_pow(self.made.saturating_sub(1));
        let whole = policy.first_backoff.saturating_mul(doubled).min(policy.max_backoff);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
