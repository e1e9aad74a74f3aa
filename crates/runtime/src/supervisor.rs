//! The tasks of a process. None may end on its own: half a manager that looks alive is worse than none.

use std::time::Duration;

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
pub struct Supervisor {
    shutdown: Shutdown,
}

impl Supervisor {
    /// No tasks yet; all of them are to end at this wish.
    pub fn new(shutdown: Shutdown) -> Supervisor {
        Supervisor { shutdown }
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
        let _ = (name, task);
        todo!()
    }

    /// Waits until shutdown is requested, or a task ends before that; then requests shutdown and gives all tasks
    /// `patience` to finish what they have in hand. The first failure is returned, the others are logged.
    pub async fn run(self, patience: Duration) -> Result<(), TaskFailure> {
        let _ = patience;
        todo!()
    }
}
