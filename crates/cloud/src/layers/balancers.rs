//! Questions about balancers: gathered, shared, and cut to the size that the provider likes best.
//!
//! ```text
//!  question ──► the questions that are gathering ──a moment later──► batches ──► observe, each in a task of its own
//!                  an equal wish shares its answer; another wish of the same balancer goes into another batch
//! ```
//!
//! A batch whose answer is too large is read again in halves, and later batches are smaller, until larger ones fit again.
//!
//! No answer is remembered: it is always as of after the question. A caller that stops waiting takes nobody else's
//! answer away, and a question that nobody waits for any more is not asked.

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
use tokio::time::sleep;

use crate::layers::operation::Operation;
use crate::layers::places::Places;
use crate::layers::read::into_batches;
use crate::{CloudProvider, Error, ErrorKind, LoadBalancers, Result};

const OPERATION: Operation = Operation::ObserveLoadBalancers;

/// Calls under way at once for one caller with a long list. Callers with one question each are limited by their number.
const AT_ONCE: usize = 8;

/// Observes the balancers of one provider.
pub(crate) struct Observer {
    provider: Arc<dyn CloudProvider>,
    places: Arc<Places>,
    gather: Duration,
    gathering: Mutex<Gathering>,
    /// Largest batch whose answer was not too large, as far as is known.
    fits: AtomicUsize,
}

type Answer = Result<Option<LoadBalancerState>>;

/// Questions that have not been asked yet, in the order in which they came.
#[derive(Default)]
struct Gathering {
    questions: Vec<Question>,
    by_key: HashMap<LoadBalancerKey, Vec<usize>>,
}

struct Question {
    desired: DesiredLoadBalancer,
    askers: Vec<oneshot::Sender<Answer>>,
}

impl Observer {
    pub(crate) fn new(provider: Arc<dyn CloudProvider>, places: Arc<Places>, gather: Duration) -> Arc<Observer> {
        Arc::new(Observer { provider, places, gather, gathering: Mutex::default(), fits: AtomicUsize::new(usize::MAX) })
    }

    /// One answer, asked for along with what others ask in the same moment if that spares calls.
    pub(crate) async fn observe(self: &Arc<Observer>, desired: &DesiredLoadBalancer) -> Answer {
        let (_, batch) = self.balancers()?;
        if batch > 1 {
            return answer(self.gather(desired)).await;
        }
        let alone = self.observe_all(std::slice::from_ref(desired)).await.pop();
        alone.unwrap_or_else(|| Err(outcome_unknown()))
    }

    /// One answer per wish, in the same order.
    pub(crate) async fn observe_all(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Answer> {
        let batch = match self.balancers() {
            Ok((_, batch)) => batch,
            Err(error) => return wanted.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut gathered = Gathering::default();
        let asked: Vec<_> = wanted.iter().map(|desired| gathered.add(desired)).collect();
        stream::iter(gathered.into_batches(batch)).for_each_concurrent(AT_ONCE, |batch| self.read(batch)).await;
        join_all(asked.into_iter().map(answer)).await
    }

    fn gather(self: &Arc<Observer>, desired: &DesiredLoadBalancer) -> oneshot::Receiver<Answer> {
        let mut gathering = self.lock();
        if gathering.questions.is_empty() {
            tokio::spawn(Arc::clone(self).read_gathered());
        }
        gathering.add(desired)
    }

    /// Waits for more questions, and reads. A provider that panics over one batch leaves the others alone.
    async fn read_gathered(self: Arc<Observer>) {
        sleep(self.gather).await;
        let gathered = std::mem::take(&mut *self.lock());
        let size = self.balancers().map_or(1, |(_, batch)| batch);
        for batch in gathered.into_batches(size) {
            let observer = Arc::clone(&self);
            tokio::spawn(async move { observer.read(batch).await });
        }
    }

    /// Reads a batch, in halves if its answer is too large; one after the other, because both at once would take as much memory.
    async fn read(&self, batch: Vec<Question>) {
        let mut batches = vec![batch];
        while let Some(batch) = batches.pop() {
            let mut left = self.read_once(batch).await;
            let second = left.split_off(left.len().div_ceil(2));
            batches.extend([second, left].into_iter().filter(|half| !half.is_empty()));
        }
    }

    /// Returns the questions that are to be asked again in smaller batches.
    async fn read_once(&self, batch: Vec<Question>) -> Vec<Question> {
        let Ok((balancers, _)) = self.balancers() else { return Vec::new() };
        let wanted: Vec<_> = batch.iter().map(|question| question.desired.clone()).collect();
        let observed = self.places.run_each(OPERATION, batch.len(), balancers.observe(&wanted)).await;
        let (size, mut left) = (batch.len(), Vec::new());
        for (question, answer) in batch.into_iter().zip(observed) {
            match answer {
                Err(error) if size > 1 && error.is_too_large() => left.push(question),
                answer => question.settle(answer),
            }
        }
        self.learn(size, left.is_empty());
        left
    }

    /// Adapts the size of later batches: half of one that was too large, and one more than the largest that fits.
    fn learn(&self, size: usize, has_fit: bool) {
        if !has_fit {
            self.fits.fetch_min(size.div_ceil(2), Ordering::Relaxed);
        } else if size == self.fits.load(Ordering::Relaxed) {
            self.fits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The provider's load balancers, and how many to ask about at once.
    fn balancers(&self) -> Result<(&dyn LoadBalancers, usize)> {
        let batch = self.provider.capabilities().load_balancers.as_ref().map(|limits| limits.batch_observe.max(1));
        let batch = batch.map(|batch| batch.min(self.fits.load(Ordering::Relaxed)));
        let balancers = self.provider.load_balancers().zip(batch);
        balancers.ok_or_else(|| super::unsupported(&*self.provider, OPERATION, "load balancers"))
    }

    fn lock(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathering {
    /// Adds a question, or another asker to one that is there already.
    fn add(&mut self, desired: &DesiredLoadBalancer) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let places = self.by_key.entry(desired.key.clone()).or_default();
        let equal =
            places.iter().find(|at| self.questions.get(**at).is_some_and(|question| question.desired == *desired));
        match equal.and_then(|at| self.questions.get_mut(*at)) {
            Some(question) => question.askers.push(sender),
            None => {
                places.push(self.questions.len());
                self.questions.push(Question { desired: desired.clone(), askers: vec![sender] });
            }
        }
        receiver
    }

    /// Batches of at most `size`, none with two wishes of one balancer.
    fn into_batches(self, size: usize) -> Vec<Vec<Question>> {
        let wanted = self.questions.into_iter().filter(Question::is_wanted);
        into_batches(wanted, size, |question| question.desired.key.clone())
    }
}

impl Question {
    /// Somebody still waits for the answer.
    fn is_wanted(&self) -> bool {
        self.askers.iter().any(|asker| !asker.is_closed())
    }

    fn settle(mut self, answer: Answer) {
        let last = self.askers.pop();
        // Whoever has given up does not listen.
        self.askers.into_iter().for_each(|asker| drop(asker.send(answer.clone())));
        if let Some(last) = last {
            drop(last.send(answer));
        }
    }
}

async fn answer(asked: oneshot::Receiver<Answer>) -> Answer {
    asked.await.unwrap_or_else(|_| Err(outcome_unknown()))
}

fn outcome_unknown() -> Error {
    let message = "the observation ended without an answer; the log says why";
    Error::new(ErrorKind::Unexpected, OPERATION.to_string(), message)
}
