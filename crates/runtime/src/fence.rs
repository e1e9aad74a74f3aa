//! The fence: rejects writes of a process that is no longer the leader.
//!
//! A process notices the loss of its lease late: after a pause, or while it cannot reach the API server, it would continue with
//! writes in progress. Leadership is therefore a time limit and not an event: each renewal of a lease permits writes until an
//! instant, and every write checks that this instant has not passed. The instant comes before another process may take over the
//! lease, by the difference between lease duration and renew deadline.
//!
//! ```text
//!  lease renewed ──► Term::extend(until) ──► Fence::check() before every write to the cluster and to a cloud
//!  lease lost    ──► Term::end()          ─┘
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::time::Instant;

tokio::task_local! {
    static CURRENT: Fence;
}

/// Error of a write that the fence rejects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this process does not hold the lease {0} and must not write")]
pub struct Fenced(pub String);

/// Permits writes only while all required leases are held. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Fence(Arc<Mutex<Vec<State>>>);

/// Time limit of one lease. Writes are rejected until it is first extended and after it is dropped.
#[derive(Debug)]
pub struct Term {
    fence: Fence,
    index: usize,
}

#[derive(Debug)]
struct State {
    lease: String,
    /// `None` before the first renewal and after the end.
    until: Option<Instant>,
}

impl Fence {
    /// Creates a fence without any lease, which permits all writes.
    pub fn open() -> Fence {
        Fence::default()
    }

    /// Requires this lease from now on.
    pub fn term(&self, lease: impl Into<String>) -> Term {
        self.add(lease.into(), None)
    }

    /// Requires this lease from now on. It is already held until this instant, so writes in progress continue.
    pub fn term_until(&self, lease: impl Into<String>, until: Instant) -> Term {
        self.add(lease.into(), Some(until))
    }

    fn add(&self, lease: String, until: Option<Instant>) -> Term {
        let mut terms = self.terms();
        terms.push(State { lease, until });
        Term { fence: self.clone(), index: terms.len() - 1 }
    }

    /// Checks that a write is permitted now. Call it as late as possible.
    pub fn check(&self) -> Result<(), Fenced> {
        let now = Instant::now();
        match self.terms().iter().find(|term| term.until.is_none_or(|until| now >= until)) {
            None => Ok(()),
            Some(term) => Err(Fenced(term.lease.clone())),
        }
    }

    /// Runs `work` while the fence is open. The fence is checked before every poll, so that work in progress does not continue
    /// after the process was suspended or a lease was lost.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, Fenced> {
        let mut work = std::pin::pin!(CURRENT.scope(self.clone(), work));
        std::future::poll_fn(|context| match self.check() {
            Ok(()) => work.as_mut().poll(context).map(Ok),
            Err(fenced) => Poll::Ready(Err(fenced)),
        })
        .await
    }

    /// Returns the fence that [guards](Fence::guard) the current work. Tasks that this work spawns must be guarded by it, too, if
    /// they write.
    pub fn current() -> Option<Fence> {
        CURRENT.try_with(Fence::clone).ok()
    }

    fn terms(&self) -> std::sync::MutexGuard<'_, Vec<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Term {
    /// Records a renewal of the lease: writes are permitted until this instant.
    pub fn extend(&self, until: Instant) {
        self.set(Some(until));
    }

    /// Records that the lease was lost or released.
    pub fn end(&self) {
        self.set(None);
    }

    fn set(&self, until: Option<Instant>) {
        if let Some(term) = self.fence.terms().get_mut(self.index) {
            term.until = until;
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fenced(lease: &str) -> Result<(), Fenced> {
        Err(Fenced(lease.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_lease_writes_are_permitted() {
        assert_eq!(Fence::open().check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_permitted_until_the_last_renewal_expires() {
        let fence = Fence::open();
        let term = fence.term("main");
        assert_eq!(fence.check(), fenced("main"));
        term.extend(Instant::now() + 10 * SECOND);
        advance(9 * SECOND).await;
        assert_eq!(fence.clone().check(), Ok(()));
        term.extend(Instant::now() + 10 * SECOND);
        advance(9 * SECOND).await;
        assert_eq!(fence.check(), Ok(()));
        advance(SECOND).await;
        assert_eq!(fence.check(), fenced("main"), "it expires without an event");
    }

    #[tokio::test(start_paused = true)]
    async fn guarded_work_stops_when_the_lease_expires() {
        let fence = Fence::open();
        let term = fence.term("main");
        term.extend(Instant::now() + 10 * SECOND);
        assert_eq!(fence.guard(async { 7 }).await, Ok(7));
        let mut steps = 0;
        let work = async {
            loop {
                steps += 1;
                tokio::time::sleep(4 * SECOND).await;
            }
        };
        let ended: Result<(), _> = fence.guard(work).await;
        assert_eq!((ended, steps), (fenced("main"), 3), "at 0, 4 and 8 seconds, and not at 12");
    }

    #[tokio::test(start_paused = true)]
    async fn all_leases_are_required_and_a_dropped_one_is_lost() {
        let fence = Fence::open();
        let (main, migration) = (fence.term("main"), fence.term("migration"));
        main.extend(Instant::now() + SECOND);
        assert_eq!(fence.check(), fenced("migration"));
        migration.extend(Instant::now() + SECOND);
        assert_eq!(fence.check(), Ok(()));
        drop(main);
        assert_eq!(fence.check(), fenced("main"));
    }

    #[tokio::test(start_paused = true)]
    async fn requiring_a_held_lease_does_not_interrupt_writes() {
        let fence = Fence::open();
        let _second = fence.term_until("second", Instant::now() + SECOND);
        assert_eq!(fence.check(), Ok(()));
        advance(SECOND).await;
        assert_eq!(fence.check(), fenced("second"));
    }
}
