//! Slow states: a change is accepted at once and done later.

use std::time::Duration;

use tokio::time::Instant;

/// How long a cloud works on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// It is done when the cloud is asked the next time.
    Instantly,
    /// It takes this long.
    Taking(Duration),
    /// It ends when the test says so.
    UntilTold,
}

/// The changes that a cloud works on.
#[derive(Debug, Clone)]
pub struct Jobs<T> {
    jobs: Vec<Job<T>>,
    failures: u64,
}

/// A change that a cloud works on.
#[derive(Debug, Clone)]
pub struct Job<T> {
    /// The change.
    pub change: T,
    /// It ends badly.
    pub fails: bool,
    /// When it is done; `None` if the test says so.
    due: Option<Instant>,
    /// It is never done, as happens when a worker loses it.
    lost: bool,
}

impl<T> Default for Jobs<T> {
    fn default() -> Jobs<T> {
        Jobs { jobs: Vec::new(), failures: 0 }
    }
}

impl<T> Jobs<T> {
    /// Begins a change.
    pub fn begin(&mut self, change: T, work: Work) {
        let due = match work {
            Work::Instantly => Some(Instant::now()),
            Work::Taking(time) => Some(Instant::now() + time),
            Work::UntilTold => None,
        };
        let fails = self.failures > 0;
        self.failures = self.failures.saturating_sub(1);
        self.jobs.push(Job { change, fails, due, lost: false });
    }

    /// This many of the next changes fail.
    pub fn fail_next(&mut self, changes: u64) {
        self.failures = changes;
    }

    /// The last change of this kind is never done.
    pub fn lose(&mut self, is_meant: impl Fn(&T) -> bool) {
        if let Some(job) = self.jobs.iter_mut().rfind(|job| is_meant(&job.change)) {
            job.lost = true;
        }
    }

    /// Takes out all that are done by now.
    pub fn due(&mut self) -> Vec<Job<T>> {
        let now = Instant::now();
        self.take(|job| job.due.is_some_and(|due| due <= now))
    }

    /// Takes out all, but for those that were lost.
    pub fn all(&mut self) -> Vec<Job<T>> {
        self.take(|_| true)
    }

    fn take(&mut self, is_over: impl Fn(&Job<T>) -> bool) -> Vec<Job<T>> {
        let jobs = std::mem::take(&mut self.jobs);
        let (over, going) = jobs.into_iter().partition(|job| !job.lost && is_over(job));
        self.jobs = going;
        over
    }
}
