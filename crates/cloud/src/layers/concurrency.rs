//! The innermost layer: limits concurrent operations to the provider's capabilities. It also records the last results of the
//! provider for `/statusz`.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::layers::operation::{Family, Operation};
use crate::{Capabilities, Error, ErrorKind, Result};

/// Concurrency limits of one provider.
pub(crate) struct ConcurrencyLimits {
    instances: Option<Semaphore>,
    routes: Option<Semaphore>,
    in_progress: AtomicUsize,
    last: Mutex<LastResults>,
}

/// Time of the provider's last success and last failure.
#[derive(Debug, Clone, Default)]
pub struct LastResults {
    /// End of the last operation that succeeded.
    pub success: Option<Instant>,
    /// End of the last operation that failed, and its error.
    pub failure: Option<(Instant, Error)>,
}

/// Counts an operation as in progress until it is dropped.
struct InProgress<'a> {
    limits: &'a ConcurrencyLimits,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.limits.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConcurrencyLimits {
    pub(crate) fn new(capabilities: &Capabilities) -> ConcurrencyLimits {
        let semaphore = |max: usize| Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS));
        ConcurrencyLimits {
            instances: capabilities.instances.as_ref().map(|limits| semaphore(limits.max_parallel)),
            routes: capabilities.routes.as_ref().map(|limits| semaphore(limits.max_parallel)),
            in_progress: AtomicUsize::new(0),
            last: Mutex::default(),
        }
    }

    /// Runs `work` as soon as a permit is free.
    pub(crate) async fn run<T>(&self, operation: Operation, work: impl Future<Output = Result<T>>) -> Result<T> {
        let _in_progress = self.acquire(operation).await;
        let result = work.await.map_err(Error::with_bounded_retry);
        self.record(result.as_ref().err());
        result
    }

    /// Runs `work`, which returns `count` results. If it returns another number, each result is an error.
    pub(crate) async fn run_each<T>(
        &self,
        operation: Operation,
        count: usize,
        work: impl Future<Output = Vec<Result<T>>>,
    ) -> Vec<Result<T>> {
        let _in_progress = self.acquire(operation).await;
        let results = work.await;
        self.record(results.iter().find_map(|result| result.as_ref().err()));
        if results.len() == count {
            return results.into_iter().map(|result| result.map_err(Error::with_bounded_retry)).collect();
        }
        let message = format!("the provider returned {} results for {count} items", results.len());
        let error = Error::new(ErrorKind::Unexpected, operation.to_string(), message);
        (0..count).map(|_| Err(error.clone())).collect()
    }

    /// Waits for a permit.
    async fn acquire(&self, operation: Operation) -> InProgress<'_> {
        let semaphore = match operation.family() {
            Family::Machines => self.instances.as_ref(),
            Family::Routes => self.routes.as_ref(),
            Family::Access | Family::LoadBalancers | Family::Loops => None,
        };
        let permit = match semaphore {
            Some(semaphore) => semaphore.acquire().await.ok(),
            None => None,
        };
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        InProgress { limits: self, _permit: permit }
    }

    fn record(&self, failure: Option<&Error>) {
        let now = Instant::now();
        match failure {
            Some(error) => self.last().failure = Some((now, error.clone())),
            None => self.last().success = Some(now),
        }
    }

    /// Returns the number of operations in progress and the last results, for `/statusz`.
    pub(crate) fn status(&self) -> Value {
        let last = self.last();
        let failure = last.failure.as_ref().map(
            |(at, error)| json!({"secondsAgo": ago(*at), "kind": error.kind().as_str(), "message": error.to_string()}),
        );
        json!({
            "operationsUnderWay": self.in_progress.load(Ordering::Relaxed),
            "lastSuccessSecondsAgo": last.success.map(ago),
            "lastError": failure,
        })
    }

    /// Returns the last results.
    pub(crate) fn last_results(&self) -> LastResults {
        self.last().clone()
    }

    fn last(&self) -> MutexGuard<'_, LastResults> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ago(at: Instant) -> f64 {
    at.elapsed().as_millis() as f64 / 1000.0
}
