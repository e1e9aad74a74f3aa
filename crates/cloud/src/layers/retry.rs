//! Tries again what may work a moment later, and leaves a cloud alone that says when.
//!
//! Only a cloud that is busy or does not answer is asked again here. What needs another look at the world first
//! (`Conflict`, `InProgress`) or a person (credentials, quota, configuration) goes back to the caller at once. Every
//! operation of the contract may be repeated, so an attempt with an unclear end is repeated like any other.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_runtime::Fence;
use tokio::time::{Instant, sleep};
use tracing::field::{Empty, display};
use tracing::{Instrument as _, Span};

use crate::layers::limit::Limit;
use crate::layers::operation::{Family, Operation};
use crate::layers::{LayerOptions, first_error};
use crate::{Error, ErrorKind, Result, Retry};

/// Attempts at one provider.
pub(crate) struct Attempts {
    limit: Limit,
    most: u32,
    first_backoff: Duration,
    max_backoff: Duration,
    gates: Gates,
    fence: Fence,
}

/// One for each family: a service that wants to be left alone says nothing of the others.
#[derive(Default)]
struct Gates {
    access: Gate,
    machines: Gate,
    balancers: Gate,
    routes: Gate,
}

/// Closed while the cloud wants to be left alone: by everybody, not just by the caller whom it told.
#[derive(Default)]
struct Gate {
    closed_until: Mutex<Option<Instant>>,
}

impl Attempts {
    pub(crate) fn new(options: &LayerOptions, limit: Limit) -> Attempts {
        Attempts {
            limit,
            most: options.max_attempts,
            first_backoff: options.first_backoff,
            max_backoff: options.max_backoff,
            gates: Gates::default(),
            fence: options.fence.clone(),
        }
    }

    /// Makes `call` until it works or trying again is of no use.
    pub(crate) async fn run<T, F>(&self, operation: Operation, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut attempt = 1;
        loop {
            let span = self.span(operation, attempt);
            let made = self.attempt(operation, call(), |answer| answer.as_ref().err());
            let error = match made.instrument(span.clone()).await.flatten() {
                Ok(value) => return Ok(value),
                Err(error) => within_reason(error),
            };
            note(&span, &error);
            let Some(pause) = self.pause_after(operation, attempt, &error) else { return Err(error) };
            tracing::debug!(attempt, ?pause, %error, "trying again");
            sleep(pause).await;
            attempt += 1;
        }
    }

    /// Makes `call` with all of `questions`, then with those alone that failed and may work a moment later. Each answer is
    /// handed on as soon as it stands: nobody waits because somebody else's question is asked again.
    pub(crate) async fn run_each<Q, T, F>(
        &self,
        operation: Operation,
        mut questions: Vec<Q>,
        call: impl Fn(&[Q]) -> F,
        settle: impl Fn(Q, Result<T>),
    ) where
        F: Future<Output = Vec<Result<T>>>,
    {
        for attempt in 1.. {
            let span = self.span(operation, attempt);
            let made = self.each_once(operation, questions.len(), call(&questions));
            let answers = made.instrument(span.clone()).await;
            if let Some(error) = first_error(&answers) {
                note(&span, error);
            }
            let (mut open, mut pause) = (Vec::new(), Duration::ZERO);
            for (question, answer) in questions.into_iter().zip(answers) {
                match answer.as_ref().err().and_then(|error| self.pause_after(operation, attempt, error)) {
                    Some(wait) => {
                        pause = pause.max(wait);
                        open.push(question);
                    }
                    None => settle(question, answer),
                }
            }
            if open.is_empty() {
                return;
            }
            tracing::debug!(attempt, ?pause, failed = open.len(), "trying again");
            sleep(pause).await;
            questions = open;
        }
    }

    /// For traces, and for what a provider logs. Many who ask may share one attempt, so it says itself what it is about.
    fn span(&self, operation: Operation, attempt: u32) -> Span {
        let (cloud, op) = (self.limit.provider(), operation.label());
        tracing::info_span!("attempt", cloud, op, attempt, kind = Empty, error = Empty)
    }

    /// One attempt, unless the cloud wants to be left alone.
    async fn attempt<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = T>,
        failure: impl Fn(&T) -> Option<&Error>,
    ) -> Result<T> {
        self.pass(operation)?;
        let _place = self.limit.turn(operation).await;
        // The cloud may have said so while we waited.
        self.pass(operation)?;
        self.guarded(operation, self.limit.call(operation, call, failure)).await
    }

    /// Goes on only while this process leads; whoever does not leads nobody's calls on, and makes none.
    async fn guarded<T>(&self, operation: Operation, call: impl Future<Output = Result<T>>) -> Result<T> {
        // Whether credentials are right may be asked by anybody.
        if operation == Operation::Check {
            return call.await;
        }
        self.fence.guard(call).await.unwrap_or_else(|fenced| {
            let error = Error::new(ErrorKind::Cancelled, operation.to_string(), fenced.to_string()).source(fenced);
            Err(error.retry(Retry::Never).context("provider", self.limit.provider()))
        })
    }

    /// How long the cloud, or one of its services, still wants to be left alone; zero if none does.
    pub(crate) fn left_alone_for(&self) -> Duration {
        self.gates.longest()
    }

    /// Fails while the cloud wants to be left alone, with the time that is left.
    fn pass(&self, operation: Operation) -> Result<()> {
        let left = self.gates.closed_for(operation.family());
        if left.is_zero() {
            return Ok(());
        }
        let message = format!("the cloud wants to be left alone for another {left:.0?}");
        let error = Error::new(ErrorKind::RateLimited, operation.to_string(), message).retry(Retry::After(left));
        Err(error.context("provider", self.limit.provider()))
    }

    /// One attempt; whatever comes back, there is one answer per question.
    async fn each_once<T>(
        &self,
        operation: Operation,
        count: usize,
        call: impl Future<Output = Vec<Result<T>>>,
    ) -> Vec<Result<T>> {
        let to_all = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
        match self.attempt(operation, call, |answers| first_error(answers)).await {
            Ok(answers) if answers.len() == count => {
                answers.into_iter().map(|answer| answer.map_err(within_reason)).collect()
            }
            Ok(answers) => to_all(miscounted(operation, count, answers.len())),
            Err(error) => to_all(error),
        }
    }

    /// How long to wait before the next attempt; `None` if there is none. A cloud that wants more than the longest pause
    /// is left alone by everybody from now on, in what the operation is about.
    fn pause_after(&self, operation: Operation, attempt: u32, error: &Error) -> Option<Duration> {
        if !error.kind().is_passing() {
            return None;
        }
        match error.retry_advice() {
            Retry::Never => None,
            Retry::After(wish) if wish > self.max_backoff => {
                self.gates.of(operation.family()).close(wish);
                None
            }
            // While everybody leaves the cloud alone, nobody waits here to be the first to come back.
            _ if attempt >= self.most || !self.gates.closed_for(operation.family()).is_zero() => None,
            Retry::After(wish) if !wish.is_zero() => Some(wish),
            Retry::After(_) | Retry::Backoff => Some(self.backoff(attempt)),
        }
    }

    /// Between half and all of a pause that doubles each time, so that callers who failed together do not return together.
    fn backoff(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let whole = self.first_backoff.saturating_mul(doubled).min(self.max_backoff);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

fn note(span: &Span, error: &Error) {
    span.record("kind", error.kind().as_str());
    span.record("error", display(error));
}

/// A cloud that wants more than this has made a mistake, and nothing would end it before the process does.
const LONGEST_REST: Duration = Duration::from_secs(3600);

impl Gates {
    fn of(&self, family: Family) -> &Gate {
        match family {
            Family::Access => &self.access,
            Family::Machines => &self.machines,
            Family::Balancers => &self.balancers,
            Family::Routes => &self.routes,
        }
    }

    /// Zero while there is a way. There is none while the cloud as a whole wants to be left alone.
    fn closed_for(&self, family: Family) -> Duration {
        self.access.closed_for().max(self.of(family).closed_for())
    }

    fn longest(&self) -> Duration {
        let families = [Family::Access, Family::Machines, Family::Balancers, Family::Routes];
        families.map(|family| self.of(family).closed_for()).into_iter().max().unwrap_or_default()
    }
}

impl Gate {
    /// Stays closed for `wish`, or longer if somebody was told so.
    fn close(&self, wish: Duration) {
        let mut closed_until = self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now().checked_add(wish.min(LONGEST_REST));
        *closed_until = until.max(*closed_until);
    }

    /// Zero while open.
    fn closed_for(&self) -> Duration {
        let closed_until = *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        closed_until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default()
    }
}

/// The same error with advice that a caller can follow: one that puts an object aside for years would never see it again, and
/// one that comes back at once would do nothing else.
fn within_reason(error: Error) -> Error {
    match error.retry_advice() {
        Retry::After(Duration::ZERO) => error.retry(Retry::Backoff),
        Retry::After(wish) if wish > LONGEST_REST => error.retry(Retry::After(LONGEST_REST)),
        _ => error,
    }
}

fn miscounted(operation: Operation, asked: usize, answered: usize) -> Error {
    let message = format!("the provider gave {answered} answers to {asked} questions");
    Error::new(ErrorKind::Unexpected, operation.to_string(), message)
}
