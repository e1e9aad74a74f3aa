//! What keeps a process that no longer leads from changing anything.
//!
//! Losing a lease is noticed late: a process that was paused, or that could not reach the API server, goes on where it was,
//! with writes half made. So leading is not an event but a time: each renewal of a lease lets the process write up to an
//! instant, and whoever is about to send something asks whether that instant has passed. The holder's instant comes before
//! the one at which others may take over, by the difference of renew deadline and lease duration.
//!
//! ```text
//!  lease renewed ──► Term::extend(until) ──► Fence::check() in front of every write to the cluster and to a cloud
//!  lease lost    ──► Term::end()          ─┘
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::time::Instant;

tokio::task_local! {
    static CURRENT: Fence;
}

/// Nothing may be written any more, or not yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this process does not hold the lease {0}, and must not change anything")]
pub struct Fenced(pub String);

/// Whether this process may change anything. Clones are the same fence.
#[derive(Debug, Clone, Default)]
pub struct Fence(Arc<Mutex<Vec<State>>>);

/// The right to write that one lease gives, a little at a time. While it was never extended, or once it is dropped, nothing
/// may be written.
#[derive(Debug)]
pub struct Term {
    fence: Fence,
    place: usize,
}

#[derive(Debug)]
struct State {
    lease: String,
    /// `None` before the first renewal, and after the end.
    until: Option<Instant>,
}

impl Fence {
    /// Without any lease: everything may be written.
    pub fn open() -> Fence {
        Fence::default()
    }

    /// From now on this lease is needed, too.
    pub fn term(&self, lease: impl Into<String>) -> Term {
        self.add(lease.into(), None)
    }

    /// From now on this lease is needed, too, and it is held up to this instant: nobody who writes is disturbed.
    pub fn term_until(&self, lease: impl Into<String>, until: Instant) -> Term {
        self.add(lease.into(), Some(until))
    }

    fn add(&self, lease: String, until: Option<Instant>) -> Term {
        let mut terms = self.terms();
        terms.push(State { lease, until });
        Term { fence: self.clone(), place: terms.len() - 1 }
    }

    /// Whether something may be written at this moment. To be asked as late as possible.
    pub fn check(&self) -> Result<(), Fenced> {
        let now = Instant::now();
        match self.terms().iter().find(|term| term.until.is_none_or(|until| now >= until)) {
            None => Ok(()),
            Some(term) => Err(Fenced(term.lease.clone())),
        }
    }

    /// Runs `work` for as long as the fence is open: it is asked again each time before `work` goes on, so that what was in
    /// hand while the process stood still, or while a lease was lost, does not take another step.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, Fenced> {
        let mut work = std::pin::pin!(CURRENT.scope(self.clone(), work));
        std::future::poll_fn(|context| match self.check() {
            Ok(()) => work.as_mut().poll(context).map(Ok),
            Err(fenced) => Poll::Ready(Err(fenced)),
        })
        .await
    }

    /// The fence that [guards](Fence::guard) the work that runs now. Tasks that this work spawns are to be guarded by it, too, if
    /// they write.
    pub fn current() -> Option<Fence> {
        CURRENT.try_with(Fence::clone).ok()
    }

    fn terms(&self) -> std::sync::MutexGuard<'_, Vec<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Term {
    /// The lease was renewed: writing is right up to this instant.
    pub fn extend(&self, until: Instant) {
        self.set(Some(until));
    }

    /// The lease is lost or given back.
    pub fn end(&self) {
        self.set(None);
    }

    fn set(&self, until: Option<Instant>) {
        if let Some(term) = self.fence.terms().get_mut(self.place) {
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
    async fn without_a_lease_everything_may_be_written() {
        assert_eq!(Fence::open().check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn writing_is_right_for_as_long_as_the_last_renewal_says() {
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
        assert_eq!(fence.check(), fenced("main"), "nobody had to notice");
    }

    #[tokio::test(start_paused = true)]
    async fn work_in_hand_takes_no_further_step_when_the_time_is_over() {
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
    async fn every_lease_is_needed_and_one_that_is_dropped_is_lost() {
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
    async fn a_lease_that_is_held_when_it_becomes_needed_disturbs_nobody() {
        let fence = Fence::open();
        let _second = fence.term_until("second", Instant::now() + SECOND);
        assert_eq!(fence.check(), Ok(()));
        advance(SECOND).await;
        assert_eq!(fence.check(), fenced("second"));
    }
}
