//! The threads that carry traffic.
//!
//! Each has a single-threaded runtime of its own, so that a connection is carried on one thread, without anything being
//! handed about. All threads accept from all listeners. As the one that happens to wake first takes what there is, a thread
//! that has more to carry than another gives what it accepts to that one. Without threads of its own, a data plane carries
//! traffic on the runtime on which it was made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How many connections more than another a worker may carry before it gives some away: that costs a little.
const SLACK: usize = 4;

/// All that carry traffic. Their threads end when this is dropped.
pub(crate) struct Workers {
    crew: Arc<[Worker]>,
    _stop: DropGuard,
}

/// One that carries traffic.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) runtime: Handle,
    load: Arc<AtomicUsize>,
}

/// A connection that a worker carries, for as long as this lives.
pub(crate) struct Load(Arc<AtomicUsize>);

impl Workers {
    /// So many threads; with 0, or if none can be started, `home` carries the traffic.
    pub(crate) fn start(threads: usize, home: &Handle) -> Workers {
        let stop = CancellationToken::new();
        let mut runtimes: Vec<Handle> = (0..threads).map_while(|_| start_one(stop.clone())).collect();
        if runtimes.is_empty() {
            runtimes.push(home.clone());
        }
        Workers { crew: runtimes.into_iter().map(Worker::new).collect(), _stop: stop.drop_guard() }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &Arc<[Worker]> {
        &self.crew
    }

    /// The same one for the same number.
    pub(crate) fn one(&self, number: usize) -> Option<&Worker> {
        self.crew.get(number.checked_rem(self.crew.len())?)
    }
}

impl Worker {
    fn new(runtime: Handle) -> Worker {
        Worker { runtime, load: Arc::default() }
    }

    /// Who is to carry what this one accepted: itself, unless another one of the crew carries much less.
    pub(crate) fn or_lighter<'a>(&'a self, crew: &'a [Worker]) -> &'a Worker {
        let lightest = crew.iter().min_by_key(|worker| worker.load());
        lightest.filter(|lightest| lightest.load() + SLACK < self.load()).unwrap_or(self)
    }

    /// It carries one more.
    pub(crate) fn carry(&self) -> Load {
        self.load.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(&self.load))
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Worker) -> bool {
        Arc::ptr_eq(&self.load, &other.load)
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start_one(stop: CancellationToken) -> Option<Handle> {
    let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("l4".to_owned());
        thread.spawn(move || runtime.block_on(stop.cancelled()))?;
        Ok(handle)
    });
    started.inspect_err(|error| tracing::warn!(%error, "cannot start a thread for traffic")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_carries_much_more_gives_to_the_one_that_carries_least() {
        let crew: Vec<Worker> = (0..3).map(|_| Worker::new(Handle::current())).collect();
        let mut carried: Vec<Load> = (0..SLACK).map(|_| crew[0].carry()).collect();
        assert!(crew[0].or_lighter(&crew).is(&crew[0]));
        carried.push(crew[0].carry());
        carried.push(crew[1].carry());
        assert!(crew[0].or_lighter(&crew).is(&crew[2]));
        carried.clear();
        assert!(crew[0].or_lighter(&crew).is(&crew[0]));
    }
}
