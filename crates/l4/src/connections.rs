//! Open TCP connections of a frontend.
//!
//! The task of a connection only copies bytes: it has no timer and waits for no signal. A sweep over all connections a few times a
//! second ([`Connections::sweep`]) aborts the tasks whose idle timeout has expired or whose target was removed. This keeps an idle
//! connection small and a busy one fast.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Open connections of one frontend.
#[derive(Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Entry>,
    next: u64,
    closed: bool,
}

struct Entry {
    task: AbortHandle,
    progress: Arc<Progress>,
    /// Byte count at the last observed change, and the time of that observation.
    last_bytes: u64,
    last_change: Instant,
}

/// Progress of a connection, updated by its task.
pub(crate) struct Progress {
    bytes: AtomicU64,
    idle_timeout: Duration,
    began: Instant,
    /// Time at which a sweep last observed new bytes, in milliseconds after `began`.
    active: AtomicU64,
    /// Set once the connection is established; cancelled when its target is removed.
    closed: OnceLock<CancellationToken>,
}

impl Progress {
    /// Creates the progress of a connection that has no target yet.
    pub(crate) fn new(idle_timeout: Duration) -> Progress {
        let (bytes, active) = (AtomicU64::new(0), AtomicU64::new(0));
        Progress { bytes, idle_timeout, began: Instant::now(), active, closed: OnceLock::new() }
    }

    /// Returns the time since bytes were last observed.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        let active = Duration::from_millis(self.active.load(Ordering::Relaxed));
        now.saturating_duration_since(self.began).saturating_sub(active)
    }

    fn record_activity(&self, now: Instant) {
        let active = now.saturating_duration_since(self.began).as_millis();
        self.active.store(u64::try_from(active).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Marks the connection as established. It is closed when `closed` is cancelled.
    pub(crate) fn established(&self, closed: CancellationToken) {
        // Counts as activity, so that the idle timeout starts now and not before connecting.
        self.add_bytes(1);
        let _ = self.closed.set(closed);
    }

    /// Adds bytes copied in either direction.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Connections {
    /// Spawns and registers a task, unless [`close`](Connections::close) was called. `spawn` gets the number of the connection,
    /// with which the task has to [`remove`](Connections::remove) itself.
    pub(crate) fn insert(&self, progress: Arc<Progress>, spawn: impl FnOnce(u64) -> AbortHandle) {
        // Spawned under the lock, so that a task that ends at once removes itself after it was inserted, not before.
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.next += 1;
        let number = state.next;
        let entry = Entry { task: spawn(number), progress, last_bytes: 0, last_change: Instant::now() };
        state.open.insert(number, entry);
    }

    /// Removes the connection of this number.
    pub(crate) fn remove(&self, number: u64) {
        self.state().open.remove(&number);
    }

    /// Aborts connections whose idle timeout has expired or whose target was removed. Returns the number of idle timeouts.
    pub(crate) fn sweep(&self, now: Instant) -> u64 {
        let (mut idled, mut ended) = (0, Vec::new());
        self.state().open.retain(|_, entry| match entry.outcome(now) {
            Outcome::Keep => true,
            Outcome::Finished => false,
            outcome => {
                idled += u64::from(outcome == Outcome::IdleTimeout);
                ended.push(entry.task.clone());
                false
            }
        });
        abort(ended);
        idled
    }

    /// Aborts all connections, and rejects new ones.
    pub(crate) fn close(&self) {
        abort(self.close_all());
    }

    fn close_all(&self) -> Vec<AbortHandle> {
        let mut state = self.state();
        state.closed = true;
        state.open.drain().map(|(_, entry)| entry.task).collect()
    }

    /// Returns whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().open.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aborts the tasks. Must not run under the lock: if its runtime is gone, a task is dropped right here, and removes itself.
fn abort(tasks: Vec<AbortHandle>) {
    for task in tasks {
        task.abort();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Keep,
    IdleTimeout,
    TargetRemoved,
    /// The task was dropped before it ran.
    Finished,
}

impl Entry {
    fn outcome(&mut self, now: Instant) -> Outcome {
        if self.task.is_finished() {
            return Outcome::Finished;
        }
        let Some(closed) = self.progress.closed.get() else { return Outcome::Keep };
        if closed.is_cancelled() {
            return Outcome::TargetRemoved;
        }
        let bytes = self.progress.bytes.load(Ordering::Relaxed);
        if bytes != self.last_bytes {
            (self.last_bytes, self.last_change) = (bytes, now);
            self.progress.record_activity(now);
        }
        if now.duration_since(self.last_change) >= self.progress.idle_timeout {
            Outcome::IdleTimeout
        } else {
            Outcome::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    fn inserted(connections: &Arc<Connections>) -> (Arc<Progress>, CancellationToken) {
        let (progress, closed) = (Arc::new(Progress::new(IDLE)), CancellationToken::new());
        connections.insert(Arc::clone(&progress), |_| tokio::spawn(std::future::pending::<()>()).abort_handle());
        (progress, closed)
    }

    #[tokio::test(start_paused = true)]
    async fn an_active_connection_is_kept_and_an_idle_one_is_aborted() {
        let connections = Arc::new(Connections::default());
        let (busy, closed) = inserted(&connections);
        busy.established(closed.clone());
        assert_eq!(connections.sweep(Instant::now()), 0);
        tokio::time::advance(IDLE / 2).await;
        busy.add_bytes(1);
        assert_eq!(connections.sweep(Instant::now()), 0);
        tokio::time::advance(IDLE / 2).await;
        assert_eq!(connections.sweep(Instant::now()), 0);
        tokio::time::advance(IDLE / 2).await;
        assert_eq!(connections.sweep(Instant::now()), 1);
        assert!(connections.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_timeout_does_not_apply_while_connecting() {
        let connections = Arc::new(Connections::default());
        let _connecting = inserted(&connections);
        tokio::time::advance(IDLE * 3).await;
        assert_eq!(connections.sweep(Instant::now()), 0);
        assert!(!connections.is_empty());
    }

    #[tokio::test]
    async fn a_connection_of_a_removed_target_is_aborted_and_not_counted_as_idle() {
        let connections = Arc::new(Connections::default());
        let (progress, closed) = inserted(&connections);
        progress.established(closed.clone());
        closed.cancel();
        assert_eq!(connections.sweep(Instant::now()), 0);
        assert!(connections.is_empty());
    }
}
