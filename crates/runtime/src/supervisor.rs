//! The tasks of a process. None may end on its own: half a manager that looks alive is worse than none.

use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use crate::Shutdown;

/// A task that ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum TaskFailure {
    /// It returned.
    #[error("the task {0} ended by itself")]
    Ended(&'static str),
    /// It failed.
    #[error("the task {0} failed: {1}")]
    Failed(&'static str, String),
    /// It panicked.
    #[error("the task {0} panicked: {1}")]
    Panicked(&'static str, String),
    /// It did not end in time when asked to.
    #[error("the task {0} did not end within {1:?}")]
    Stuck(&'static str, Duration),
}

/// Starts tasks and watches over them.
///
/// A panic is caught here only where panics unwind. A program built to abort on panic ends at once, which is loud, too.
pub struct Supervisor {
    shutdown: Shutdown,
    tasks: JoinSet<Result<(), String>>,
    /// Those not ended yet, in the order in which they were started.
    running: Vec<(Id, &'static str)>,
}

/// How a task ended, or how it could not.
type End = Result<(Id, Result<(), String>), JoinError>;

impl Supervisor {
    /// No tasks yet; all of them are to end at this wish.
    pub fn new(shutdown: Shutdown) -> Supervisor {
        Supervisor { shutdown, tasks: JoinSet::new(), running: Vec::new() }
    }

    /// The wish that its tasks end at.
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

    /// Waits until shutdown is requested, or a task ends before that; then requests shutdown and gives all tasks
    /// `patience` to finish what they have in hand. The first failure is returned, the others are logged. A task that
    /// fails while it shuts down is a failure, too: it may have left something undone.
    pub async fn run(mut self, patience: Duration) -> Result<(), TaskFailure> {
        let mut failures = Failures::default();
        if let Some(end) = self.first_end().await {
            failures.note(self.judge(end));
        }
        self.shutdown.request();
        self.wind_down(patience, &mut failures).await;
        failures.0.map_or(Ok(()), Err)
    }

    /// The first task that ends before shutdown is requested.
    async fn first_end(&mut self) -> Option<End> {
        let shutdown = self.shutdown.clone();
        if self.tasks.is_empty() {
            shutdown.requested().await;
        }
        shutdown.or(self.tasks.join_next_with_id()).await.flatten()
    }

    async fn wind_down(&mut self, patience: Duration, failures: &mut Failures) {
        // Patience that no clock can hold does not run out.
        let deadline = Instant::now().checked_add(patience);
        while let Some(end) = self.end_before(deadline).await {
            failures.note(self.judge(end));
        }
        // A task that never yields cannot be ended from here, so nobody waits for that.
        self.tasks.abort_all();
        for (_, name) in self.running.drain(..) {
            failures.note(Some(TaskFailure::Stuck(name, patience)));
        }
    }

    /// The next task that ends in time; nothing if all have ended.
    async fn end_before(&mut self, deadline: Option<Instant>) -> Option<End> {
        match deadline {
            Some(deadline) => timeout_at(deadline, self.tasks.join_next_with_id()).await.ok().flatten(),
            None => self.tasks.join_next_with_id().await,
        }
    }

    /// What was wrong with this end, if anything.
    fn judge(&mut self, end: End) -> Option<TaskFailure> {
        let name = self.ended(end.as_ref().map_or_else(JoinError::id, |(id, _)| *id));
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

    /// Takes a task off the list of those running.
    fn ended(&mut self, id: Id) -> &'static str {
        let place = self.running.iter().position(|(running, _)| *running == id);
        place.map_or("unknown", |place| self.running.remove(place).1)
    }
}

/// The first failure; those after it are only logged.
#[derive(Default)]
struct Failures(Option<TaskFailure>);

impl Failures {
    fn note(&mut self, failure: Option<TaskFailure>) {
        match failure {
            Some(failure) if self.0.is_some() => {
                tracing::error!(error = %failure, "a further task failed during shutdown")
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

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A supervisor with one task that behaves: it ends a second after it is asked to.
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
        let failure = supervisor.run(PATIENCE).await.unwrap_err();
        assert!(shutdown.is_requested(), "the others must be asked to end");
        failure.to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_end_when_asked_to_are_well() {
        let (supervisor, start) = (with_a_good_task(), Instant::now());
        let shutdown = supervisor.shutdown().clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(5)).await;
            shutdown.request();
        });
        supervisor.run(PATIENCE).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_takes_all_down() {
        let mut supervisor = with_a_good_task();
        supervisor.spawn("short", async { Ok::<_, Infallible>(()) });
        assert_eq!(failure(supervisor).await, "the task short ended by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_takes_all_down() {
        let mut supervisor = with_a_good_task();
        supervisor.spawn("watch", async { Err("no route to host") });
        assert_eq!(failure(supervisor).await, "the task watch failed: no route to host");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_takes_all_down() {
        let mut supervisor = with_a_good_task();
        supervisor.spawn::<_, Infallible>("text", async { panic!("out of range") });
        assert_eq!(failure(supervisor).await, "the task text panicked: out of range");
        let mut supervisor = with_a_good_task();
        supervisor.spawn::<_, Infallible>("format", async { panic!("out of range: {}", 7) });
        assert_eq!(failure(supervisor).await, "the task format panicked: out of range: 7");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_end_when_asked_to_is_aborted_and_named() {
        let (mut supervisor, start) = (with_a_good_task(), Instant::now());
        let (alive, mut dropped) = tokio::sync::oneshot::channel::<()>();
        supervisor.spawn("deaf", async move {
            let _alive = alive;
            std::future::pending::<Result<(), Infallible>>().await
        });
        supervisor.shutdown().request();
        let failure = failure(supervisor).await;
        assert_eq!(failure, "the task deaf did not end within 10s");
        assert_eq!(start.elapsed(), PATIENCE);
        assert!((&mut dropped).await.is_err(), "the task is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_is_the_one_returned() {
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
    async fn a_failure_while_shutting_down_is_a_failure() {
        let mut supervisor = with_a_good_task();
        let shutdown = supervisor.shutdown().clone();
        supervisor.spawn("lease", async move {
            shutdown.requested().await;
            Err("could not give the lease back")
        });
        supervisor.shutdown().request();
        assert_eq!(failure(supervisor).await, "the task lease failed: could not give the lease back");
    }

    #[tokio::test(start_paused = true)]
    async fn without_tasks_it_waits_for_the_wish() {
        let supervisor = Supervisor::new(Shutdown::new());
        let shutdown = supervisor.shutdown().clone();
        let mut run = Box::pin(supervisor.run(Duration::MAX));
        assert!(timeout(Duration::from_secs(60), &mut run).await.is_err());
        shutdown.request();
        run.await.unwrap();
    }
}
