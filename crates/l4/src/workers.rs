//! Worker threads for traffic.
//!
//! Each worker has its own single-threaded runtime, so that a connection stays on one thread without synchronisation. All workers
//! accept from all listeners. Because the worker that wakes first accepts, a worker with more connections than another hands
//! accepted connections over to that one. Without worker threads, a data plane handles traffic on the runtime on which it was
//! created.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum difference in connections between two workers before new connections are handed over, which has a cost.
const MAX_IMBALANCE: usize = 4;

/// All workers. Dropping it stops their threads.
pub(crate) struct Workers {
    workers: Arc<[Worker]>,
    _stop: DropGuard,
}

/// A runtime that handles traffic.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) runtime: Handle,
    load: Arc<AtomicUsize>,
}

/// Counts a connection of a worker until dropped.
pub(crate) struct LoadGuard(Arc<AtomicUsize>);

impl Workers {
    /// Starts `threads` workers; with 0, or if none can be started, `fallback` is the only worker.
    pub(crate) fn start(threads: usize, fallback: &Handle) -> Workers {
        let stop = CancellationToken::new();
        let mut runtimes: Vec<Handle> = (0..threads).map_while(|_| start_worker(stop.clone())).collect();
        if runtimes.is_empty() {
            runtimes.push(fallback.clone());
        }
        Workers { workers: runtimes.into_iter().map(Worker::new).collect(), _stop: stop.drop_guard() }
    }

    /// Returns all workers.
    pub(crate) fn all(&self) -> &Arc<[Worker]> {
        &self.workers
    }

    /// Returns a worker by number; the same for the same number.
    pub(crate) fn by_number(&self, number: usize) -> Option<&Worker> {
        self.workers.get(number.checked_rem(self.workers.len())?)
    }
}

impl Worker {
    fn new(runtime: Handle) -> Worker {
        Worker { runtime, load: Arc::default() }
    }

    /// Returns the worker for a connection that this worker accepted: itself, unless another one has many fewer connections.
    pub(crate) fn or_least_loaded<'a>(&'a self, workers: &'a [Worker]) -> &'a Worker {
        let lightest = workers.iter().min_by_key(|worker| worker.load());
        lightest.filter(|lightest| lightest.load() + MAX_IMBALANCE < self.load()).unwrap_or(self)
    }

    /// Counts one more connection.
    pub(crate) fn assign(&self) -> LoadGuard {
        self.load.fetch_add(1, Ordering::Relaxed);
        LoadGuard(Arc::clone(&self.load))
    }

    /// Returns whether both are the same worker.
    pub(crate) fn is_same(&self, other: &Worker) -> bool {
        Arc::ptr_eq(&self.load, &other.load)
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start_worker(stop: CancellationToken) -> Option<Handle> {
    let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("l4".to_owned());
        thread.spawn(move || runtime.block_on(stop.cancelled()))?;
        Ok(handle)
    });
    started.inspect_err(|error| tracing::warn!(%error, "cannot start a worker thread")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_with_many_more_connections_hands_over_to_the_least_loaded() {
        let workers: Vec<Worker> = (0..3).map(|_| Worker::new(Handle::current())).collect();
        let mut assigned: Vec<LoadGuard> = (0..MAX_IMBALANCE).map(|_| workers[0].assign()).collect();
        assert!(workers[0].or_least_loaded(&workers).is_same(&workers[0]));
        assigned.push(workers[0].assign());
        assigned.push(workers[1].assign());
        assert!(workers[0].or_least_loaded(&workers).is_same(&workers[2]));
        assigned.clear();
        assert!(workers[0].or_least_loaded(&workers).is_same(&workers[0]));
    }
}
