//! Asynchronous changes: the cloud accepts a change at once and completes it later.

use std::time::Duration;

use tokio::time::Instant;

/// Duration of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The change is complete at the next request.
    Instantly,
    /// The change takes this long.
    Taking(Duration),
    /// The change ends when the test calls [`Jobs::all`].
    Manual,
}

/// Changes in progress.
#[derive(Debug, Clone)]
pub struct Jobs<T> {
    jobs: Vec<Job<T>>,
    failures: u64,
}

/// A change in progress.
#[derive(Debug, Clone)]
pub struct Job<T> {
    /// Change.
    pub change: T,
    /// Whether the change fails in the end.
    pub fails: bool,
    /// End of the change; `None` if the test ends it.
    due: Option<Instant>,
    /// Whether the change never ends, as when a worker of the cloud loses it.
    lost: bool,
}

impl<T> Default for Jobs<T> {
    fn default() -> Jobs<T> {
        Jobs { jobs: Vec::new(), failures: 0 }
    }
}

impl<T> Jobs<T> {
    /// Starts a change.
    pub fn begin(&mut self, change: T, work: Work) {
        let due = match work {
            Work::Instantly => Some(Instant::now()),
            Work::Taking(time) => Some(Instant::now() + time),
            Work::Manual => None,
        };
        let fails = self.failures > 0;
        self.failures = self.failures.saturating_sub(1);
        self.jobs.push(Job { change, fails, due, lost: false });
    }

    /// Makes this many of the next changes fail.
    pub fn fail_next(&mut self, changes: u64) {
        self.failures = changes;
    }

    /// Makes the last matching change never end.
    pub fn lose(&mut self, matches: impl Fn(&T) -> bool) {
        if let Some(job) = self.jobs.iter_mut().rfind(|job| matches(&job.change)) {
            job.lost = true;
        }
    }

    /// Removes and returns the changes that are due.
    pub fn due(&mut self) -> Vec<Job<T>> {
        let now = Instant::now();
        self.take(|job| job.due.is_some_and(|due| due <= now))
    }

    /// Removes and returns all changes, except lost ones.
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
