//! Observation of load balancers: combines concurrent requests into batches of the provider's preferred size.
//!
//! ```text
//!  request ──► pending requests ──none arrives for a batch window──► batches ──► observe, each in a task of its own
//!                 equal requests share a result; different desired states of one load balancer are in different batches
//! ```
//!
//! Many Services that begin together, such as all of them in a periodic refresh, take longer than one window to ask. Each request
//! therefore extends the wait, up to [`MAX_WINDOWS`] windows, so that a cloud that shows all load balancers in one listing is
//! listed once.
//!
//! If the response to a batch is too large, the batch is split in halves, and later batches are smaller until larger ones fit
//! again.
//!
//! No result is cached: every observation starts after its request. A caller that stops waiting does not affect other callers, and
//! a request without waiting callers is dropped.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState};
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::layers::concurrency::ConcurrencyLimits;
use crate::layers::operation::Operation;
use crate::layers::read::into_batches;
use crate::{CloudProvider, Error, ErrorKind, LoadBalancers, Result};

const OPERATION: Operation = Operation::ObserveLoadBalancers;

/// Maximum number of concurrent calls for one caller with a long list. Callers with one request each are limited by their number.
const MAX_CONCURRENT: usize = 8;

/// Maximum number of batch windows for which requests are collected. A steady stream of requests must not delay the first one.
const MAX_WINDOWS: u32 = 20;

/// Observes the load balancers of one provider.
pub(crate) struct Observer {
    provider: Arc<dyn CloudProvider>,
    limits: Arc<ConcurrencyLimits>,
    batch_window: Duration,
    pending: Mutex<PendingRequests>,
    /// Largest batch size known to fit into a response.
    max_batch: AtomicUsize,
}

type Observed = Result<Option<LoadBalancerState>>;

/// Requests that have not been sent, in order of arrival.
#[derive(Default)]
struct PendingRequests {
    requests: Vec<Request>,
    by_key: HashMap<LoadBalancerKey, Vec<usize>>,
    last_arrival: Option<Instant>,
}

struct Request {
    desired: DesiredLoadBalancer,
    callers: Vec<oneshot::Sender<Observed>>,
}

impl Observer {
    pub(crate) fn new(
        provider: Arc<dyn CloudProvider>,
        limits: Arc<ConcurrencyLimits>,
        batch_window: Duration,
    ) -> Arc<Observer> {
        Arc::new(Observer {
            provider,
            limits,
            batch_window,
            pending: Mutex::default(),
            max_batch: AtomicUsize::new(usize::MAX),
        })
    }

    /// Observes one load balancer, in one batch with concurrent requests if the provider prefers batches.
    pub(crate) async fn observe(self: &Arc<Observer>, desired: &DesiredLoadBalancer) -> Observed {
        let (_, batch) = self.load_balancers()?;
        if batch > 1 {
            return receive(self.enqueue(desired)).await;
        }
        let alone = self.observe_all(std::slice::from_ref(desired)).await.pop();
        alone.unwrap_or_else(|| Err(no_result()))
    }

    /// Observes several load balancers. Returns one result each, in the same order.
    pub(crate) async fn observe_all(&self, desired: &[DesiredLoadBalancer]) -> Vec<Observed> {
        let batch = match self.load_balancers() {
            Ok((_, batch)) => batch,
            Err(error) => return desired.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut requests = PendingRequests::default();
        let receivers: Vec<_> = desired.iter().map(|desired| requests.add(desired)).collect();
        stream::iter(requests.into_batches(batch)).for_each_concurrent(MAX_CONCURRENT, |batch| self.send(batch)).await;
        join_all(receivers.into_iter().map(receive)).await
    }

    fn enqueue(self: &Arc<Observer>, desired: &DesiredLoadBalancer) -> oneshot::Receiver<Observed> {
        let mut pending = self.lock();
        if pending.requests.is_empty() {
            tokio::spawn(Arc::clone(self).send_pending());
        }
        pending.add(desired)
    }

    /// Waits for the end of the batch window, and sends the pending requests. A provider that panics fails only one batch.
    async fn send_pending(self: Arc<Observer>) {
        self.end_of_window().await;
        let requests = std::mem::take(&mut *self.lock());
        let size = self.load_balancers().map_or(1, |(_, batch)| batch);
        for batch in requests.into_batches(size) {
            let observer = Arc::clone(&self);
            tokio::spawn(async move { observer.send(batch).await });
        }
    }

    /// Waits until no request has arrived for a batch window.
    async fn end_of_window(&self) {
        let latest = Instant::now() + self.batch_window * MAX_WINDOWS;
        loop {
            let last = self.lock().last_arrival;
            let end = last.map_or(latest, |last| latest.min(last + self.batch_window));
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Sends a batch, in halves if the response is too large: sequentially, because both at once would take as much memory.
    async fn send(&self, batch: Vec<Request>) {
        let mut batches = vec![batch];
        while let Some(batch) = batches.pop() {
            let mut left = self.send_once(batch).await;
            let second = left.split_off(left.len().div_ceil(2));
            batches.extend([second, left].into_iter().filter(|half| !half.is_empty()));
        }
    }

    /// Sends a batch once. Returns the requests to send again in smaller batches.
    async fn send_once(&self, batch: Vec<Request>) -> Vec<Request> {
        let Ok((load_balancers, _)) = self.load_balancers() else { return Vec::new() };
        let desired: Vec<_> = batch.iter().map(|request| request.desired.clone()).collect();
        let observed = self.limits.run_each(OPERATION, batch.len(), load_balancers.observe(&desired)).await;
        let (size, mut left) = (batch.len(), Vec::new());
        for (request, result) in batch.into_iter().zip(observed) {
            match result {
                Err(error) if size > 1 && error.is_too_large() => left.push(request),
                result => request.complete(result),
            }
        }
        self.adapt_batch_size(size, left.is_empty());
        left
    }

    /// Adapts the size of later batches: half of one that was too large, or one more than the largest that fits.
    fn adapt_batch_size(&self, size: usize, has_fit: bool) {
        if !has_fit {
            self.max_batch.fetch_min(size.div_ceil(2), Ordering::Relaxed);
        } else if size == self.max_batch.load(Ordering::Relaxed) {
            self.max_batch.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the provider's load balancers and the batch size.
    fn load_balancers(&self) -> Result<(&dyn LoadBalancers, usize)> {
        let batch = self.provider.capabilities().load_balancers.as_ref().map(|limits| limits.batch_observe.max(1));
        let batch = batch.map(|batch| batch.min(self.max_batch.load(Ordering::Relaxed)));
        let load_balancers = self.provider.load_balancers().zip(batch);
        load_balancers.ok_or_else(|| super::unsupported(&*self.provider, OPERATION, "load balancers"))
    }

    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingRequests {
    /// Adds a request, or another caller to an equal one.
    fn add(&mut self, desired: &DesiredLoadBalancer) -> oneshot::Receiver<Observed> {
        let (sender, receiver) = oneshot::channel();
        self.last_arrival = Some(Instant::now());
        let indexes = self.by_key.entry(desired.key.clone()).or_default();
        let equal =
            indexes.iter().find(|index| self.requests.get(**index).is_some_and(|request| request.desired == *desired));
        match equal.and_then(|index| self.requests.get_mut(*index)) {
            Some(request) => request.callers.push(sender),
            None => {
                indexes.push(self.requests.len());
                self.requests.push(Request { desired: desired.clone(), callers: vec![sender] });
            }
        }
        receiver
    }

    /// Splits the requests into batches of at most `size`, none with two desired states of one load balancer.
    fn into_batches(self, size: usize) -> Vec<Vec<Request>> {
        let awaited = self.requests.into_iter().filter(Request::has_callers);
        into_batches(awaited, size, |request| request.desired.key.clone())
    }
}

impl Request {
    /// Returns whether a caller still waits for the result.
    fn has_callers(&self) -> bool {
        self.callers.iter().any(|caller| !caller.is_closed())
    }

    fn complete(mut self, result: Observed) {
        let last = self.callers.pop();
        // Sending fails if the caller has stopped waiting.
        self.callers.into_iter().for_each(|caller| drop(caller.send(result.clone())));
        if let Some(last) = last {
            drop(last.send(result));
        }
    }
}

async fn receive(receiver: oneshot::Receiver<Observed>) -> Observed {
    receiver.await.unwrap_or_else(|_| Err(no_result()))
}

fn no_result() -> Error {
    let message = "the observation ended without a result; see the log";
    Error::new(ErrorKind::Unexpected, OPERATION.to_string(), message)
}
