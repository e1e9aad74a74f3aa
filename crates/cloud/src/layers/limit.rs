//! The innermost layer: an attempt waits for a free place and for its turn, has a limited time, and is counted.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use crate::layers::LayerOptions;
use crate::layers::observe::Metrics;
use crate::layers::operation::Operation;
use crate::{Capabilities, Error, ErrorKind, Result};

/// The limits of one provider.
pub(crate) struct Limit {
    bucket: Option<TokenBucket>,
    call_timeout: Duration,
    instance_places: Option<Semaphore>,
    route_places: Option<Semaphore>,
    metrics: Arc<Metrics>,
}

/// Tokens that come at a rate, up to a number. A caller takes one at once and waits until it would have come; so callers
/// are served in the order in which they asked.
struct TokenBucket {
    rate: f64,
    burst: f64,
    level: Mutex<Level>,
}

struct Level {
    tokens: f64,
    at: Instant,
}

impl Limit {
    pub(crate) fn new(options: &LayerOptions, capabilities: &Capabilities, metrics: Arc<Metrics>) -> Limit {
        let places = |most: usize| Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS));
        Limit {
            bucket: options.rate.and_then(|rate| TokenBucket::new(rate, options.burst)),
            call_timeout: options.call_timeout,
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
            sleep(bucket.take()).await;
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
        let answer = timeout(self.call_timeout, call).await.map_err(|_| self.too_slow(operation));
        self.metrics.called(operation, answer.as_ref().map_or_else(Some, failure));
        answer
    }

    /// Whose limits these are.
    pub(crate) fn provider(&self) -> &str {
        self.metrics.provider()
    }

    fn places(&self, operation: Operation) -> Option<&Semaphore> {
        match operation {
            Operation::FindInstances | Operation::ListInstances => self.instance_places.as_ref(),
            Operation::ListRoutes | Operation::CreateRoute | Operation::DeleteRoute => self.route_places.as_ref(),
            _ => None,
        }
    }

    fn too_slow(&self, operation: Operation) -> Error {
        let message = format!("no answer within {:?}", self.call_timeout);
        Error::new(ErrorKind::Unavailable, operation.to_string(), message).context("provider", self.provider())
    }
}

impl TokenBucket {
    /// `None` for a rate that limits nothing because it is no rate.
    fn new(rate: f64, burst: u32) -> Option<TokenBucket> {
        let burst = f64::from(burst.max(1));
        let level = Mutex::new(Level { tokens: burst, at: Instant::now() });
        (rate.is_finite() && rate > 0.0).then_some(TokenBucket { rate, burst, level })
    }

    /// Takes a token; returns how long until it has come.
    fn take(&self) -> Duration {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let come = now.duration_since(level.at).as_secs_f64() * self.rate;
        level.tokens = (level.tokens + come).min(self.burst) - 1.0;
        level.at = now;
        Duration::try_from_secs_f64((-level.tokens / self.rate).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_then_the_rate_counts() {
        let bucket = TokenBucket::new(2.0, 3).unwrap();
        let waits: Vec<_> = (0..5).map(|_| bucket.take().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500, 1000]);
        tokio::time::advance(Duration::from_secs(60)).await;
        let waits: Vec<_> = (0..4).map(|_| bucket.take().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500], "a long rest fills the bucket no further than the burst");
    }

    #[test]
    fn a_rate_that_is_none_limits_nothing() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(TokenBucket::new(rate, 1).is_none(), "{rate}");
        }
    }
}
