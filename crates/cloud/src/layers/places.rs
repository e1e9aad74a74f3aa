//! The innermost layer: no more operations at once than the provider's capabilities say. It also remembers, for `/statusz`,
//! how the provider last answered.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::layers::operation::{Family, Operation};
use crate::{Capabilities, Error, ErrorKind, Result};

/// Places for operations at one provider.
pub(crate) struct Places {
    instances: Option<Semaphore>,
    routes: Option<Semaphore>,
    under_way: AtomicUsize,
    last: Mutex<Last>,
}

/// Latest answers of the provider.
#[derive(Default)]
struct Last {
    success: Option<Instant>,
    failure: Option<(Instant, Error)>,
}

/// An operation that is under way until this is dropped, however it ends.
struct UnderWay<'a> {
    places: &'a Places,
    _place: Option<SemaphorePermit<'a>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.places.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Places {
    pub(crate) fn new(capabilities: &Capabilities) -> Places {
        let places = |most: usize| Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS));
        Places {
            instances: capabilities.instances.as_ref().map(|limits| places(limits.max_parallel)),
            routes: capabilities.routes.as_ref().map(|limits| places(limits.max_parallel)),
            under_way: AtomicUsize::new(0),
            last: Mutex::default(),
        }
    }

    /// Runs `work` as soon as there is a place for it.
    pub(crate) async fn run<T>(&self, operation: Operation, work: impl Future<Output = Result<T>>) -> Result<T> {
        let _under_way = self.begin(operation).await;
        let answer = work.await.map_err(Error::within_reason);
        self.answered(answer.as_ref().err());
        answer
    }

    /// Runs `work`, which answers `count` questions; whatever it returns, there is one answer per question.
    pub(crate) async fn run_each<T>(
        &self,
        operation: Operation,
        count: usize,
        work: impl Future<Output = Vec<Result<T>>>,
    ) -> Vec<Result<T>> {
        let _under_way = self.begin(operation).await;
        let answers = work.await;
        self.answered(answers.iter().find_map(|answer| answer.as_ref().err()));
        if answers.len() == count {
            return answers.into_iter().map(|answer| answer.map_err(Error::within_reason)).collect();
        }
        let message = format!("the provider gave {} answers to {count} questions", answers.len());
        let error = Error::new(ErrorKind::Unexpected, operation.to_string(), message);
        (0..count).map(|_| Err(error.clone())).collect()
    }

    /// Waits for a place.
    async fn begin(&self, operation: Operation) -> UnderWay<'_> {
        let places = match operation.family() {
            Family::Machines => self.instances.as_ref(),
            Family::Routes => self.routes.as_ref(),
            Family::Access | Family::Balancers => None,
        };
        let place = match places {
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { places: self, _place: place }
    }

    fn answered(&self, failure: Option<&Error>) {
        let now = Instant::now();
        match failure {
            Some(error) => self.last().failure = Some((now, error.clone())),
            None => self.last().success = Some(now),
        }
    }

    /// Operations under way, and the latest answers.
    pub(crate) fn status(&self) -> Value {
        let last = self.last();
        let failure = last.failure.as_ref().map(
            |(at, error)| json!({"secondsAgo": ago(*at), "kind": error.kind().as_str(), "message": error.to_string()}),
        );
        json!({
            "operationsUnderWay": self.under_way.load(Ordering::Relaxed),
            "lastSuccessSecondsAgo": last.success.map(ago),
            "lastError": failure,
        })
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ago(at: Instant) -> f64 {
    at.elapsed().as_millis() as f64 / 1000.0
}
