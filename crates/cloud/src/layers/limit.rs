//! The innermost layer: an attempt waits for a free place and for its turn, has a limited time, and is counted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::TokenBucket;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::layers::LayerOptions;
use crate::layers::observe::Metrics;
use crate::layers::operation::{Family, Operation};
use crate::{CloudProvider, Error, ErrorKind, Result};

/// The limits of one provider.
pub(crate) struct Limit {
    bucket: Option<TokenBucket>,
    call_timeout: Duration,
    instance_places: Option<Semaphore>,
    route_places: Option<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Limit {
    pub(crate) fn new(options: &LayerOptions, provider: &dyn CloudProvider, metrics: Arc<Metrics>) -> Limit {
        let capabilities = provider.capabilities();
        let places = |most: usize| Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS));
        Limit {
            bucket: options.rate.map(|rate| TokenBucket::new(rate, options.burst)),
            call_timeout: provider.patience().unwrap_or(options.call_timeout),
            instance_places: capabilities.instances.as_ref().map(|limits| places(limits.max_parallel)),
            route_places: capabilities.routes.as_ref().map(|limits| places(limits.max_parallel)),
            metrics,
        }
    }

    /// Waits for the attempt's turn; its place is kept until the value is dropped.
    pub(crate) async fn turn(&self, operation: Operation) -> Option<SemaphorePermit<'_>> {
        let asked = Instant::now();
        // The place comes first: a token that is taken and then waits for a place would make a burst later.
        let place = match self.places(operation) {
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        if let Some(bucket) = &self.bucket {
            bucket.take().await;
        }
        self.metrics.waited(asked.elapsed());
        place
    }

    /// Makes one attempt; `failure` finds the error in its answer.
    pub(crate) async fn call<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = T>,
        failure: impl Fn(&T) -> Option<&Error>,
    ) -> Result<T> {
        let (_under_way, begun) = (self.metrics.calling(), Instant::now());
        let answer = timeout(self.call_timeout, call).await.map_err(|_| self.too_slow(operation));
        self.metrics.called(operation, begun.elapsed(), answer.as_ref().map_or_else(Some, failure));
        answer
    }

    /// Whose limits these are.
    pub(crate) fn provider(&self) -> &str {
        self.metrics.provider()
    }

    fn places(&self, operation: Operation) -> Option<&Semaphore> {
        match operation.family() {
            Family::Machines => self.instance_places.as_ref(),
            Family::Routes => self.route_places.as_ref(),
            Family::Access | Family::Balancers => None,
        }
    }

    fn too_slow(&self, operation: Operation) -> Error {
        let message = format!("no answer within {:?}", self.call_timeout);
        Error::new(ErrorKind::Unavailable, operation.to_string(), message).context("provider", self.provider())
    }
}
