//! Operations that the cloud is at work on: when to ask again, and when it has taken too long.
//!
//! ```text
//!             seen at work: InProgress, come back after the pacing's next pause
//!  (unknown) ──► waited for ◄──┐
//!      ▲             │ ────────┘ longer than the deadline: Unavailable, at every poll until it ends
//!      └─────────────┘ ended, applied, or observed without a pending operation
//! ```
//!
//! What is remembered here is of this process alone; a new process learns of an operation by observing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{LoadBalancerKey, Operation};
use tokio::time::Instant;

use crate::{Error, ErrorKind, Result, Retry};

/// The operations that are waited for, at most one for each load balancer.
#[derive(Default)]
pub struct Operations(Mutex<HashMap<LoadBalancerKey, Waiting>>);

struct Waiting {
    id: String,
    polls: u32,
    waited: Duration,
    last: Instant,
}

impl Operations {
    /// Records that the operation was seen at work. Returns when to come back, or that it has taken too long.
    pub fn running(&self, key: &LoadBalancerKey, operation: &Operation, task: &str) -> Error {
        let (pause, waited) = self.look(key, operation);
        let Operation { what, advice, deadline, .. } = operation;
        if waited < *deadline {
            return Error::pending(operation.clone(), task).retry(Retry::After(pause));
        }
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        // The same words at every poll: a repeated message makes no new Event.
        let message = format!("timed out: {what}, for {} s and longer{advice}", deadline.as_secs());
        Error::new(ErrorKind::Unavailable, task, message)
    }

    /// What came of planning or applying. An error that names an operation is paced by what is known of that operation; without
    /// an error nothing is under way.
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

    /// Nothing is under way for this load balancer.
    pub fn ended(&self, key: &LoadBalancerKey) {
        self.all().remove(key);
    }

    fn look(&self, key: &LoadBalancerKey, operation: &Operation) -> (Duration, Duration) {
        let mut all = self.all();
        let now = Instant::now();
        let fresh = || Waiting { id: operation.id.clone(), polls: 0, waited: Duration::ZERO, last: now };
        let known = all.entry(key.clone()).or_insert_with(fresh);
        if known.id != operation.id {
            *known = fresh();
        }
        // Time counts as waited only while polls come: what was at work last week and is again has not been all along.
        known.waited += now.duration_since(known.last).min(operation.pacing.pause(known.polls) * 2);
        known.polls = known.polls.saturating_add(1);
        known.last = now;
        (operation.pacing.pause(known.polls), known.waited)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<LoadBalancerKey, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bowline_core::Pacing;
    use bowline_core::testing::desired;

    use super::*;

    fn operation(id: &str) -> Operation {
        Operation {
            id: id.to_owned(),
            what: "load balancer web is not ACTIVE but PENDING_UPDATE".to_owned(),
            advice: "look at its log".to_owned(),
            pacing: Pacing { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) },
            deadline: Duration::from_secs(271),
            observable: true,
        }
    }

    /// Polls whenever the advice says so; the errors.
    async fn polled(operations: &Operations, id: &str, polls: usize) -> Vec<Error> {
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
    async fn an_operation_is_polled_at_its_own_pace_until_its_deadline() {
        let errors = polled(&Operations::default(), "b1", 60).await;
        let first: Vec<_> = errors.iter().take(3).map(Error::retry_advice).collect();
        assert_eq!(first, [1000, 1200, 1440].map(|millis| Retry::After(Duration::from_millis(millis))));
        assert!(errors[0].kind() == ErrorKind::InProgress && errors[0].pending_operation().is_some());
        let late: Vec<_> = errors.iter().filter(|error| error.kind() == ErrorKind::Unavailable).collect();
        assert!(late.len() > 1 && late.len() < 40, "{}", late.len());
        let expected = "plan: timed out: load balancer web is not ACTIVE but PENDING_UPDATE, for 271 s and longer; look at \
                        its log";
        assert!(late.iter().all(|error| error.to_string() == expected), "{}", late[0]);
        assert_eq!(late[0].retry_advice(), Retry::Backoff);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_again_when_one_has_ended_another_begins_or_nothing_was_polled_for_long() {
        let (operations, key) = (Operations::default(), desired("default/web", &[]).key);
        let is_late = |operations: &Operations, id| {
            operations.running(&key, &operation(id), "plan").kind() == ErrorKind::Unavailable
        };
        polled(&operations, "b1", 50).await;
        assert!(is_late(&operations, "b1") && !is_late(&operations, "b2"));
        polled(&operations, "b2", 50).await;
        operations.ended(&key);
        assert!(!is_late(&operations, "b2"));
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert!(!is_late(&operations, "b2"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_errors_that_name_an_operation_are_paced() {
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
