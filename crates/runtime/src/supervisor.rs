//! Supervisor of the long-lived tasks of a process. None may end on its own: a manager that runs only in part is worse than none.

use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use crate::Shutdown;

/// Failure of a supervised task.
#[derive(Debug, thiserror::Error)]
pub enum TaskFailure {
    /// The task returned before shutdown was requested.
    #[error("the task {0} ended before shutdown was requested")]
    Ended(&'static str),
    /// The task returned an error.
    #[error("the task {0} failed: {1}")]
    Failed(&'static str, String),
    /// The task panicked.
    #[error("the task {0} panicked: {1}")]
    Panicked(&'static str, String),
    /// The task did not end within the grace period of the shutdown.
    #[error("the task {0} did not end within {1:?}")]
    Stuck(&'static str, Duration),
}

/// Starts tasks and supervises them.
///
/// Panics are caught only if they unwind. A program built with `panic = "abort"` exits at once.
pub struct Supervisor {
    shutdown: Shutdown,
    tasks: JoinSet<Result<(), String>>,
    /// Running tasks, in the order in which they were started.
    running: Vec<(Id, &'static str)>,
}

/// Result of a finished task.
type End = Result<(Id, Result<(), String>), JoinError>;

impl Supervisor {
    /// Creates a supervisor without tasks; `shutdown` ends all of them.
    pub fn new(shutdown: Shutdown) -> Supervisor {
        Supervisor { shutdown, tasks: JoinSet::new(), running: Vec::new() }
    }

    /// Returns the shutdown signal of the tasks.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts a task that runs until shutdown is requested.
    pub fn spawn<F, E>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send + 'static,
    {
        let handle = self.tasks.spawn(async move { task.await.map_err(|error| error.to_string()) });
        self.running.push((handle.id(), name));
    }

    /// Runs until shutdown is requested or a task ends. Then requests shutdown, and waits up to `grace_period` for all tasks to
    /// finish. Returns the first failure and logs the rest. A task that fails during shutdown is a failure, too, because it may
    /// have left work undone.
    pub async fn run(mut self, grace_period: Duration) -> Result<(), TaskFailure> {
        let mut failures = Failures::default();
        if let Some(end) = self.first_end().await {
            failures.record(self.failure_of(end));
        }
        self.shutdown.request();
        self.wind_down(grace_period, &mut failures).await;
        failures.0.map_or(Ok(()), Err)
    }

    /// Waits for the first task that ends before shutdown is requested.
    async fn first_end(&mut self) -> Option<End> {
        let shutdown = self.shutdown.clone();
        if self.tasks.is_empty() {
            shutdown.requested().await;
        }
        shutdown.or(self.tasks.join_next_with_id()).await.flatten()
    }

    async fn wind_down(&mut self, grace_period: Duration, failures: &mut Failures) {
        // A grace period beyond the range of the clock never ends.
        let deadline = Instant::now().checked_add(grace_period);
        while let Some(end) = self.end_before(deadline).await {
            failures.record(self.failure_of(end));
        }
        // A task that never yields cannot be aborted, so this does not wait for it.
        self.tasks.abort_all();
        for (_, name) in self.running.drain(..) {
            failures.record(Some(TaskFailure::Stuck(name, grace_period)));
        }
    }

    /// Waits for the next task that ends before the deadline; `None` if all have ended.
    async fn end_before(&mut self, deadline: Option<Instant>) -> Option<End> {
        match deadline {
            Some(deadline) => timeout_at(deadline, self.tasks.join_next_with_id()).await.ok().flatten(),
            None => self.tasks.join_next_with_id().await,
        }
    }

    /// Returns the failure of a finished task, if it failed.
    fn failure_of(&mut self, end: End) -> Option<TaskFailure> {
        let name = self.remove(end.as_ref().map_or_else(JoinError::id, |(id, _)| *id));
        match end {
            Ok((_, Ok(()))) if self.shutdown.is_requested() => None,
            Ok((_, Ok(()))) => Some(TaskFailure::Ended(name)),
            Ok((_, Err(error))) => Some(TaskFailure::Failed(name, error)),
            Err(error) => Some(match error.try_into_panic() {
                Ok(payload) => TaskFailure::Panicked(name, panic_message(payload.as_ref())),
                Err(_cancelled) => TaskFailure::Ended(name),
            }),
        }
    }

    /// Removes a task from the list of running tasks, and returns its name.
    fn remove(&mut self, id: Id) -> &'static str {
        let index = self.running.iter().position(|(running, _)| *running == id);
        index.map_or("unknown", |index| self.running.remove(index).1)
    }
}

/// The first failure; further ones are only logged.
#[derive(Default)]
struct Failures(Option<TaskFailure>);

impl Failures {
    fn record(&mut self, failure: Option<TaskFailure>) {
        match failure {
            Some(failure) if self.0.is_some() => {
                tracing::error!(error = %failure, "another task failed during shutdown")
            }
            Some(failure) => self.0 = Some(failure),
            None => {}
        }
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::time::{sleep, timeout};

    use super::*;

    const GRACE_PERIOD: Duration = Duration::from_secs(10);

    /// A supervisor with one task that ends one second after shutdown was requested.
    fn with_a_good_task() -> Supervisor {
        let mut supervisor = Supervisor::new(Shutdown::new());
        let shutdown = supervisor.shutdown().clone();
        supervisor.spawn("good", async move {
            shutdown.requested().await;
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(())
        });
        supervisor
    }

    async fn failure(supervisor: Supervisor) -> String {
        let shutdown = supervisor.shutdown().clone();
        let failure = supervisor.run(GRACE_PERIOD).await.unwrap_err();
        assert!(shutdown.is_requested(), "shutdown must be requested for the other tasks");
        failure.to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_end_at_shutdown_are_no_failure() {
        let (supervisor, start) = (with_a_good_task(), Instant::now());
        let shutdown = supervisor.shutdown().clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(5)).await;
            shutdown.request();
        });
        supervisor.run(GRACE_PERIOD).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_early_stops_all_tasks() {
        let mut supervisor = with_a_good_task();
        supervisor.spawn("short", async { Ok::<_, Infallible>(()) });
        assert_eq!(failure(supervisor).await, "the task short ended before shutdown was requested");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_stops_all_tasks() {
        let mut supervisor = with_a_good_task();
        supervisor.spawn("watch", async { Err("no route to host") });
        assert_eq!(failure(supervisor).await, "the task watch failed: no route to host");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_stops_all_tasks() {
        let mut supervisor = with_a_good_task();
        supervisor.spawn::<_, Infallible>("text", async { panic!("out of range") });
        assert_eq!(failure(supervisor).await, "the task text panicked: out of range");
        let mut supervisor = with_a_good_task();
        supervisor.spawn::<_, Infallible>("format", async { panic!("out of range: {}", 7) });
        assert_eq!(failure(supervisor).await, "the task format panicked: out of range: 7");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_exceeds_the_grace_period_is_aborted_and_named() {
        let (mut supervisor, start) = (with_a_good_task(), Instant::now());
        let (alive, mut dropped) = tokio::sync::oneshot::channel::<()>();
        supervisor.spawn("stuck", async move {
            let _alive = alive;
            std::future::pending::<Result<(), Infallible>>().await
        });
        supervisor.shutdown().request();
        let failure = failure(supervisor).await;
        assert_eq!(failure, "the task stuck did not end within 10s");
        assert_eq!(start.elapsed(), GRACE_PERIOD);
        assert!((&mut dropped).await.is_err(), "the task was dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_is_returned() {
        let mut supervisor = with_a_good_task();
        let shutdown = supervisor.shutdown().clone();
        supervisor.spawn("second", async move {
            shutdown.requested().await;
            Err("because of the first")
        });
        supervisor.spawn("first", async { Err("the cause") });
        assert_eq!(failure(supervisor).await, "the task first failed: the cause");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_during_shutdown_is_returned() {
        let mut supervisor = with_a_good_task();
        let shutdown = supervisor.shutdown().clone();
        supervisor.spawn("lease", async move {
            shutdown.requested().await;
            Err("cannot release the lease")
        });
        supervisor.shutdown().request();
        assert_eq!(failure(supervisor).await, "the task lease failed: cannot release the lease");
    }

    #[tokio::test(start_paused = true)]
    async fn without_tasks_it_waits_for_shutdown() {
        let supervisor = Supervisor::new(Shutdown::new());
        let shutdown = supervisor.shutdown().clone();
        let mut run = Box::pin(supervisor.run(Duration::MAX));
        assert!(timeout(Duration::from_secs(60), &mut run).await.is_err());
        shutdown.request();
        run.await.unwrap();
    }
}
