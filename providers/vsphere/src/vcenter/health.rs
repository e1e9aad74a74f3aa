//! Health of a vCenter: one that hangs is left alone for a while, so that it delays lookups in the others only once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use tokio::time::{Instant, timeout};

/// A failure within this time delays no one: the next lookup asks again.
const QUICK: Duration = Duration::from_secs(5);

/// First pause after a slow failure.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Time limit of the call that is made first after a pause.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// Slow failures of a vCenter in a row.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<Failure>>);

#[derive(Debug, Clone)]
struct Failure {
    error: Error,
    pause: Duration,
    until: Instant,
}

impl Health {
    /// Makes reads unless the vCenter is paused. After a pause, only one caller makes the first call, a short one.
    pub(super) async fn guard<T>(
        &self,
        probe: impl Future<Output = Result<()>>,
        reads: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let failure = self.check(begun)?;
        if let Some(error) = failure {
            let silent = timeout(PROBE_LIMIT, probe).await.is_err();
            if silent {
                self.record(&error);
                return Err(error);
            }
        }
        let outcome = reads.await;
        match &outcome {
            Err(error) if error.kind() == ErrorKind::Unavailable && begun.elapsed() >= QUICK => self.record(error),
            _ => *self.failure() = None,
        }
        outcome
    }

    /// Returns the last failure if a probe is due, and fails during a pause.
    fn check(&self, now: Instant) -> Result<Option<Error>> {
        let mut failure = self.failure();
        let Some(failure) = &mut *failure else { return Ok(None) };
        if now < failure.until {
            return Err(failure.error.clone().retry(Retry::After(failure.until - now)));
        }
        failure.until = now + PROBE_LIMIT;
        Ok(Some(failure.error.clone()))
    }

    fn record(&self, error: &Error) {
        let mut failure = self.failure();
        let pause = failure.as_ref().map_or(FIRST_PAUSE, |failure| (failure.pause * 2).min(MAX_PAUSE));
        *failure = Some(Failure { error: error.clone(), pause, until: Instant::now() + pause });
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{advance, sleep};

    use super::*;

    /// Makes a read that fails after this time.
    async fn fails(health: &Health, kind: ErrorKind, seconds: u64) -> Error {
        let read = async {
            sleep(Duration::from_secs(seconds)).await;
            Err::<u8, _>(Error::new(kind, "read", "no"))
        };
        health.guard(ready(Ok(())), read).await.unwrap_err()
    }

    async fn works(health: &Health) -> Result<u8> {
        health.guard(ready(Ok(())), ready(Ok(1))).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_vcenter_that_hangs_is_paused_for_longer_each_time() {
        let health = Health::default();
        for pause in [5, 10, 20, 40, 60, 60] {
            fails(&health, ErrorKind::Unavailable, 20).await;
            let early = works(&health).await.unwrap_err();
            assert_eq!(early.retry_advice(), Retry::After(Duration::from_secs(pause)));
            advance(Duration::from_secs(pause)).await;
        }
        assert_eq!(works(&health).await.unwrap(), 1);
        assert_eq!(works(&health).await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_failure_starts_no_pause() {
        let health = Health::default();
        for (kind, seconds) in
            [(ErrorKind::Unauthenticated, 20), (ErrorKind::NotFound, 20), (ErrorKind::Unavailable, 1)]
        {
            fails(&health, kind, seconds).await;
            assert!(works(&health).await.is_ok(), "{kind:?} after {seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_a_vcenter_that_still_hangs_costs_one_caller_three_seconds() {
        let health = Health::default();
        fails(&health, ErrorKind::Unavailable, 20).await;
        advance(FIRST_PAUSE).await;
        let begun = Instant::now();
        let (first, second) = tokio::join!(health.guard(pending(), ready(Ok(1))), works(&health));
        assert!(first.is_err() && second.is_err());
        assert_eq!(begun.elapsed(), PROBE_LIMIT);
        assert_eq!(works(&health).await.unwrap_err().retry_advice(), Retry::After(FIRST_PAUSE * 2));
    }
}
