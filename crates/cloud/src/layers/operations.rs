//! Operations in progress in the cloud: sets the poll interval and enforces the deadline.
//!
//! ```text
//!             observed in progress: InProgress, poll again after the next interval
//!  (unknown) ──► in progress ◄──┐
//!      ▲             │ ─────────┘ longer than the deadline: Unavailable, at every poll until it ends
//!      └─────────────┘ ended, applied, or observed without a pending operation
//! ```
//!
//! The records are local to this process; a new process learns of an operation by observing the load balancer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{LoadBalancerKey, Operation};
use tokio::time::Instant;

use crate::{Error, ErrorKind, Result, Retry};

/// Operations in progress, at most one for each load balancer.
#[derive(Default)]
pub struct Operations(Mutex<HashMap<LoadBalancerKey, Waiting>>);

struct Waiting {
    id: String,
    polls: u32,
    waited: Duration,
    last: Instant,
}

impl Operations {
    /// Records that the operation is in progress. Returns an error with the time of the next poll or, after the deadline, a
    /// timeout.
    pub fn running(&self, key: &LoadBalancerKey, operation: &Operation, task: &str) -> Error {
        let (pause, waited) = self.record_poll(key, operation);
        let Operation { description: what, advice, deadline, .. } = operation;
        if waited < *deadline {
            return Error::pending(operation.clone(), task).retry(Retry::After(pause));
        }
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        // The same message at every poll, so that it does not create new Events.
        let message = format!("timed out after {} s: {what}{advice}", deadline.as_secs());
        Error::new(ErrorKind::Unavailable, task, message)
    }

    /// Processes the outcome of `plan`, `apply` or `poll`. An error with a pending operation gets the poll interval of that
    /// operation; a success means that no operation is in progress.
    pub fn paced<T>(&self, key: &LoadBalancerKey, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => {
                self.ended(key);
                Ok(value)
            }
            Err(error) => Err(match error.pending_operation() {
                Some(operation) => self.running(key, operation, error.operation()),
                None => error,
            }),
        }
    }

    /// Records that no operation is in progress for this load balancer.
    pub fn ended(&self, key: &LoadBalancerKey) {
        self.all().remove(key);
    }

    fn record_poll(&self, key: &LoadBalancerKey, operation: &Operation) -> (Duration, Duration) {
        let mut all = self.all();
        let now = Instant::now();
        let fresh = || Waiting { id: operation.id.clone(), polls: 0, waited: Duration::ZERO, last: now };
        let known = all.entry(key.clone()).or_insert_with(fresh);
        if known.id != operation.id {
            *known = fresh();
        }
        // Only time between regular polls counts: an operation that was in progress last week and is again may have ended between.
        known.waited += now.duration_since(known.last).min(operation.poll_interval.pause(known.polls) * 2);
        known.polls = known.polls.saturating_add(1);
        known.last = now;
        (operation.poll_interval.pause(known.polls), known.waited)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<LoadBalancerKey, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bowline_core::PollInterval;
    use bowline_core::testing::desired;

    use super::*;

    fn operation(id: &str) -> Operation {
        Operation {
            id: id.to_owned(),
            description: "load balancer web is not ACTIVE but PENDING_UPDATE".to_owned(),
            advice: "see its log".to_owned(),
            poll_interval: PollInterval { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) },
            deadline: Duration::from_secs(271),
            observable: true,
        }
    }

    /// Polls with the advised delays, and returns the errors.
    async fn poll(operations: &Operations, id: &str, polls: usize) -> Vec<Error> {
        let (key, mut errors) = (desired("default/web", &[]).key, Vec::new());
        for _ in 0..polls {
            let error = operations.running(&key, &operation(id), "plan");
            let pause = if let Retry::After(pause) = error.retry_advice() { pause } else { Duration::from_secs(10) };
            tokio::time::advance(pause).await;
            errors.push(error);
        }
        errors
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_is_polled_at_its_interval_until_its_deadline() {
        let errors = poll(&Operations::default(), "b1", 60).await;
        let first: Vec<_> = errors.iter().take(3).map(Error::retry_advice).collect();
        assert_eq!(first, [1000, 1200, 1440].map(|millis| Retry::After(Duration::from_millis(millis))));
        assert!(errors[0].kind() == ErrorKind::InProgress && errors[0].pending_operation().is_some());
        let late: Vec<_> = errors.iter().filter(|error| error.kind() == ErrorKind::Unavailable).collect();
        assert!(late.len() > 1 && late.len() < 40, "{}", late.len());
        let expected = "plan: timed out after 271 s: load balancer web is not ACTIVE but PENDING_UPDATE; see its log";
        assert!(late.iter().all(|error| error.to_string() == expected), "{}", late[0]);
        assert_eq!(late[0].retry_advice(), Retry::Backoff);
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_restarts_after_an_end_another_operation_or_a_gap_in_polling() {
        let (operations, key) = (Operations::default(), desired("default/web", &[]).key);
        let is_late = |operations: &Operations, id| {
            operations.running(&key, &operation(id), "plan").kind() == ErrorKind::Unavailable
        };
        poll(&operations, "b1", 50).await;
        assert!(is_late(&operations, "b1") && !is_late(&operations, "b2"));
        poll(&operations, "b2", 50).await;
        operations.ended(&key);
        assert!(!is_late(&operations, "b2"));
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert!(!is_late(&operations, "b2"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_errors_with_a_pending_operation_get_a_poll_interval() {
        let (operations, key) = (Operations::default(), desired("default/web", &[]).key);
        let busy = || Err::<(), _>(Error::pending(operation("b1"), "apply"));
        let pauses: Vec<_> = (0..3).map(|_| operations.paced(&key, busy()).unwrap_err().retry_advice()).collect();
        assert_eq!(pauses, [1000, 1200, 1440].map(|millis| Retry::After(Duration::from_millis(millis))));
        let other = Error::new(ErrorKind::InProgress, "apply", "busy").retry(Retry::After(Duration::from_secs(7)));
        let error = operations.paced(&key, Err::<(), _>(other)).unwrap_err();
        assert_eq!(error.retry_advice(), Retry::After(Duration::from_secs(7)));
        assert!(operations.paced(&key, Ok(())).is_ok() && operations.all().is_empty());
    }
}
