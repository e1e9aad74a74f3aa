//! Why a pass did not get through, and what follows from that.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_core::annotations::Mistake;
use bowline_kube::WriteError;

/// What was being done, and what kept it from being done.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) task: Task,
    pub(crate) cause: Cause,
}

/// What was being done.
// upstream: the words are those of its errors, which people look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    AddFinalizer,
    Ensure,
    UpdateTargets,
    CheckBeforeCleanup,
    ConfirmDeletion,
    Delete,
    RemoveAnnotations,
    RemoveFinalizer,
    UpdateStatus,
}

/// What is in the way.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The cloud.
    Cloud(Error),
    /// The API server.
    Cluster(WriteError),
    /// What the user wrote.
    Mistakes(Vec<Mistake>),
    /// The user's wish that the balancer stays.
    Protected,
    /// The user's annotations leave it open whether the balancer is to stay.
    UnclearPolicy(Vec<Mistake>),
}

/// Clouds in which a clean-up has failed, each with its cause.
#[derive(Default)]
pub(crate) struct Failures(Vec<(Arc<str>, Trouble)>);

/// When there is another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Later and later.
    Backoff,
    /// After this long.
    After(Duration),
    /// When something has changed.
    Rest,
}

impl Trouble {
    /// With the cloud.
    pub(crate) fn cloud(task: Task) -> impl Fn(Error) -> Trouble {
        move |error| Trouble { task, cause: Cause::Cloud(error) }
    }

    /// With the API server.
    pub(crate) fn cluster(task: Task) -> impl Fn(WriteError) -> Trouble {
        move |error| Trouble { task, cause: Cause::Cluster(error) }
    }

    /// When there is another try.
    pub(crate) fn next(&self) -> Next {
        match &self.cause {
            Cause::Cloud(error) => match error.retry_advice() {
                Retry::Backoff => Next::Backoff,
                Retry::After(delay) => Next::After(delay),
                Retry::Never => Next::Rest,
            },
            Cause::Cluster(_) => Next::Backoff,
            Cause::Mistakes(_) | Cause::Protected | Cause::UnclearPolicy(_) => Next::Rest,
        }
    }

    /// Nothing is wrong: the cloud is at work, or we are stopping.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_kind(ErrorKind::InProgress) || self.is_kind(ErrorKind::Cancelled)
    }

    /// The cloud will most likely give the same answer until a person changes something.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self.kind(), Some(ErrorKind::PermissionDenied | ErrorKind::QuotaExceeded | ErrorKind::InvalidConfig))
    }

    /// The Service is gone, or is another one of the same name. The store hears of it in a moment; if it does not, there is
    /// another try.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.cause, Cause::Cluster(WriteError::NotFound(_)))
    }

    /// The cloud says this.
    pub(crate) fn is_kind(&self, kind: ErrorKind) -> bool {
        self.kind() == Some(kind)
    }

    /// What the cloud says, if it is the cloud that is in the way.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match &self.cause {
            Cause::Cloud(error) => Some(error.kind()),
            _ => None,
        }
    }

    /// A CamelCase word for programs.
    pub(crate) fn reason(&self) -> String {
        match &self.cause {
            Cause::Cloud(error) => format!("{:?}", error.kind()),
            Cause::Cluster(_) => "ApiServer".to_owned(),
            Cause::Mistakes(_) | Cause::UnclearPolicy(_) => "InvalidService".to_owned(),
            Cause::Protected => "Protected".to_owned(),
        }
    }

    /// What is in the way, and what a person can do about it.
    pub(crate) fn message(&self) -> String {
        let advice = self.advice();
        format!("{self}{}{advice}", if advice.is_empty() { "" } else { ". " })
    }

    /// What a person can do.
    fn advice(&self) -> &'static str {
        match &self.cause {
            Cause::Cloud(error) => error.kind().advice(),
            Cause::Cluster(WriteError::Rejected { code: 403, .. }) => {
                "Give the manager the right to patch services/status."
            }
            _ => "",
        }
    }
}

impl Failures {
    /// Adds the failure of one cloud. Any other failure, of the API server for one, is returned: it ends the sync.
    pub(crate) fn add(&mut self, cloud: &Arc<str>, trouble: Trouble) -> Result<(), Trouble> {
        if !matches!(trouble.cause, Cause::Cloud(_)) || trouble.is_kind(ErrorKind::Cancelled) {
            return Err(trouble);
        }
        self.0.push((cloud.clone(), trouble));
        Ok(())
    }

    /// Returns one failure for all: the first that is more than a cloud at work. If there was a choice, of `clouds` clouds, it names
    /// those that failed. Clouds that are at work are polled when they advise, whatever is wrong with the others.
    pub(crate) fn into_result(self, clouds: usize) -> Result<(), Trouble> {
        let delays = self.0.iter().filter_map(|(_, trouble)| match trouble.next() {
            Next::After(delay) if trouble.is_calm() => Some(delay),
            _ => None,
        });
        let soonest = delays.min();
        let names = self.0.iter().map(|(cloud, _)| &**cloud).collect::<Vec<_>>().join(", ");
        let (calm, wrong): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|(_, trouble)| trouble.is_calm());
        let Some((_, Trouble { task, cause })) = wrong.into_iter().chain(calm).next() else { return Ok(()) };
        let cause = match cause {
            Cause::Cloud(error) if clouds > 1 => {
                let error = error.context("waiting for cloud", names);
                Cause::Cloud(soonest.into_iter().fold(error, |error, delay| error.retry(Retry::After(delay))))
            }
            cause => cause,
        };
        Err(Trouble { task, cause })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.task {
            Task::AddFinalizer => "failed to add load balancer cleanup finalizer: ",
            Task::Ensure => "failed to ensure load balancer: ",
            Task::UpdateTargets => "failed to update load balancer with new hosts: ",
            Task::CheckBeforeCleanup => "failed to check if load balancer exists before cleanup: ",
            Task::Delete => "failed to delete load balancer: ",
            Task::ConfirmDeletion => "failed to check if the service is really gone: ",
            Task::RemoveAnnotations => "failed to remove what leads to the load balancer from the annotations: ",
            Task::RemoveFinalizer => "failed to remove load balancer cleanup finalizer: ",
            Task::UpdateStatus => "failed to update load balancer status: ",
        })?;
        write!(f, "{}", self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |mistakes: &[Mistake]| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        match self {
            Cause::Cloud(error) => error.fmt(f),
            Cause::Cluster(error) => error.fmt(f),
            Cause::Mistakes(mistakes) => f.write_str(&list(mistakes)),
            Cause::Protected => f.write_str(
                "the annotation bowline.dev/policy: protect keeps it; set it to delete or retain to let the Service go",
            ),
            Cause::UnclearPolicy(mistakes) => {
                write!(f, "nothing is deleted until it is clear what is wanted: {}", list(mistakes))
            }
        }
    }
}
