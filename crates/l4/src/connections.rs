//! The open TCP connections of a frontend, so that they can be ended from outside.
//!
//! A connection's task does nothing but wait for bytes and move them: it has no timer and waits for no signal. Whether it
//! idles too long, or its target or listener is gone, is found out by one sweep over all connections a few times a second
//! ([`Connections::sweep`]), which ends the tasks it has to. This keeps an idle connection small and a busy one quick.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The open connections of one frontend.
#[derive(Default)]
pub(crate) struct Connections {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    open: HashMap<u64, Entry>,
    next: u64,
    closed: bool,
}

struct Entry {
    task: AbortHandle,
    progress: Arc<Progress>,
    /// The bytes that had moved when something last had changed, and when that was seen.
    seen: u64,
    since: Instant,
}

/// What the task of a connection tells about it.
pub(crate) struct Progress {
    moved: AtomicU64,
    idle_timeout: Duration,
    began: Instant,
    /// Milliseconds after the beginning at which a sweep last found that bytes had moved.
    active: AtomicU64,
    /// Set once the connection stands: is cancelled when its target is gone.
    closed: OnceLock<CancellationToken>,
}

impl Progress {
    /// Of a connection that has no target yet.
    pub(crate) fn new(idle_timeout: Duration) -> Progress {
        let (moved, active) = (AtomicU64::new(0), AtomicU64::new(0));
        Progress { moved, idle_timeout, began: Instant::now(), active, closed: OnceLock::new() }
    }

    /// How long nothing has moved.
    pub(crate) fn silent(&self, now: Instant) -> Duration {
        let active = Duration::from_millis(self.active.load(Ordering::Relaxed));
        now.saturating_duration_since(self.began).saturating_sub(active)
    }

    fn note_activity(&self, now: Instant) {
        let active = now.saturating_duration_since(self.began).as_millis();
        self.active.store(u64::try_from(active).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The connection stands, until it idles too long or this is cancelled.
    pub(crate) fn established(&self, closed: CancellationToken) {
        // Counts as something that happened, so that the time to connect is not taken for idling.
        self.moved(1);
        let _ = self.closed.set(closed);
    }

    /// So many bytes went on, either way.
    pub(crate) fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Connections {
    /// Enters the task that `spawn` starts, unless all were closed. It is handed its number, with which it has to
    /// [`leave`](Connections::leave).
    pub(crate) fn enter(&self, progress: Arc<Progress>, spawn: impl FnOnce(u64) -> AbortHandle) {
        // Started under the lock: a task that ends at once then leaves after it was entered, not before.
        let mut inside = self.inside();
        if inside.closed {
            return;
        }
        inside.next += 1;
        let number = inside.next;
        let entry = Entry { task: spawn(number), progress, seen: 0, since: Instant::now() };
        inside.open.insert(number, entry);
    }

    /// The task of this number has ended.
    pub(crate) fn leave(&self, number: u64) {
        self.inside().open.remove(&number);
    }

    /// Ends those that idled too long or whose target is gone. Tells how many idled.
    pub(crate) fn sweep(&self, now: Instant) -> u64 {
        let (mut idled, mut ended) = (0, Vec::new());
        self.inside().open.retain(|_, entry| match entry.verdict(now) {
            Verdict::Stays => true,
            Verdict::Ended => false,
            verdict => {
                idled += u64::from(verdict == Verdict::Idled);
                ended.push(entry.task.clone());
                false
            }
        });
        end(ended);
        idled
    }

    /// Ends all, also those that were about to come.
    pub(crate) fn close(&self) {
        end(self.close_inside());
    }

    fn close_inside(&self) -> Vec<AbortHandle> {
        let mut inside = self.inside();
        inside.closed = true;
        inside.open.drain().map(|(_, entry)| entry.task).collect()
    }

    /// Whether none is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.inside().open.is_empty()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Not under the lock: if its runtime is gone, a task may be dropped here and now, and leaves as it is dropped.
fn end(tasks: Vec<AbortHandle>) {
    for task in tasks {
        task.abort();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stays,
    Idled,
    TargetGone,
    /// Its task was dropped before it ran.
    Ended,
}

impl Entry {
    fn verdict(&mut self, now: Instant) -> Verdict {
        if self.task.is_finished() {
            return Verdict::Ended;
        }
        let Some(closed) = self.progress.closed.get() else { return Verdict::Stays };
        if closed.is_cancelled() {
            return Verdict::TargetGone;
        }
        let moved = self.progress.moved.load(Ordering::Relaxed);
        if moved != self.seen {
            (self.seen, self.since) = (moved, now);
            self.progress.note_activity(now);
        }
        if now.duration_since(self.since) >= self.progress.idle_timeout { Verdict::Idled } else { Verdict::Stays }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    fn entered(connections: &Arc<Connections>) -> (Arc<Progress>, CancellationToken) {
        let (progress, closed) = (Arc::new(Progress::new(IDLE)), CancellationToken::new());
        connections.enter(Arc::clone(&progress), |_| tokio::spawn(std::future::pending::<()>()).abort_handle());
        (progress, closed)
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_moves_bytes_stays_and_one_that_idles_is_ended() {
        let connections = Arc::new(Connections::default());
        let (busy, closed) = entered(&connections);
        busy.established(closed.clone());
        assert_eq!(connections.sweep(Instant::now()), 0);
        tokio::time::advance(IDLE / 2).await;
        busy.moved(1);
        assert_eq!(connections.sweep(Instant::now()), 0);
        tokio::time::advance(IDLE / 2).await;
        assert_eq!(connections.sweep(Instant::now()), 0);
        tokio::time::advance(IDLE / 2).await;
        assert_eq!(connections.sweep(Instant::now()), 1);
        assert!(connections.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_still_connecting_does_not_idle() {
        let connections = Arc::new(Connections::default());
        let _connecting = entered(&connections);
        tokio::time::advance(IDLE * 3).await;
        assert_eq!(connections.sweep(Instant::now()), 0);
        assert!(!connections.is_empty());
    }

    #[tokio::test]
    async fn one_whose_target_is_gone_is_ended_and_has_not_idled() {
        let connections = Arc::new(Connections::default());
        let (progress, closed) = entered(&connections);
        progress.established(closed.clone());
        closed.cancel();
        assert_eq!(connections.sweep(Instant::now()), 0);
        assert!(connections.is_empty());
    }
}
