//! Errors of a sync, and what follows from them: when to retry, and what to show the user.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_core::Service;
use bowline_core::annotations::FieldError;
use bowline_core::service::{self, Condition, not_ready_condition};
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_kube::WriteError;
use jiff::Timestamp;

use super::state::Resource;

/// Error of a sync: the action that failed, and its cause.
#[derive(Debug)]
pub(crate) struct SyncError {
    pub(crate) action: Action,
    pub(crate) cause: Cause,
}

/// An action of a sync.
// upstream: the texts are those of its errors, which operators search for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
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

/// Cause of an error.
#[derive(Debug)]
pub(crate) enum Cause {
    /// A call to the cloud failed.
    Cloud(Error),
    /// A write to the API server failed.
    ApiServer(WriteError),
    /// The Service is invalid.
    InvalidService(Vec<FieldError>),
    /// The deletion policy keeps the load balancer.
    Protected,
    /// The annotations leave open whether the load balancer is to stay.
    UnclearPolicy(Vec<FieldError>),
}

/// Errors of a clean-up in several clouds.
#[derive(Default)]
pub(crate) struct CloudErrors(Vec<(Arc<str>, SyncError)>);

/// When a Service is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// With the back-off of the queue.
    Backoff,
    /// After this delay.
    After(Duration),
    /// When the Service or something that it depends on changes.
    OnChange,
}

impl SyncError {
    /// Error of a cloud call.
    pub(crate) fn cloud(action: Action) -> impl Fn(Error) -> SyncError {
        move |error| SyncError { action, cause: Cause::Cloud(error) }
    }

    /// Error of a write to the API server.
    pub(crate) fn api_server(action: Action) -> impl Fn(WriteError) -> SyncError {
        move |error| SyncError { action, cause: Cause::ApiServer(error) }
    }

    /// Error of a Service that is invalid.
    pub(crate) fn invalid_service(mistakes: Vec<FieldError>) -> SyncError {
        SyncError { action: Action::Ensure, cause: Cause::InvalidService(mistakes) }
    }

    /// When to retry.
    pub(crate) fn requeue(&self) -> Requeue {
        match &self.cause {
            Cause::Cloud(error) => match error.retry_advice() {
                Retry::Backoff => Requeue::Backoff,
                Retry::After(delay) => Requeue::After(delay),
                Retry::Never => Requeue::OnChange,
            },
            Cause::ApiServer(_) => Requeue::Backoff,
            Cause::InvalidService(_) | Cause::Protected | Cause::UnclearPolicy(_) => Requeue::OnChange,
        }
    }

    /// Whether this is no failure: the cloud is at work, or the process is stopping.
    pub(crate) fn is_benign(&self) -> bool {
        self.is_kind(ErrorKind::InProgress) || self.is_kind(ErrorKind::Cancelled)
    }

    /// Whether the cloud most likely returns the same error until a person changes something.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self.kind(), Some(ErrorKind::PermissionDenied | ErrorKind::QuotaExceeded | ErrorKind::InvalidConfig))
    }

    /// Whether the Service is deleted, or replaced by another one of the same name. The watch shows that in a moment; if it does
    /// not, the sync is retried.
    pub(crate) fn is_service_gone(&self) -> bool {
        matches!(&self.cause, Cause::ApiServer(WriteError::NotFound(_)))
    }

    /// Whether the cloud returned this kind of error.
    pub(crate) fn is_kind(&self, kind: ErrorKind) -> bool {
        self.kind() == Some(kind)
    }

    /// Kind of the cloud's error, if the cloud is the cause.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match &self.cause {
            Cause::Cloud(error) => Some(error.kind()),
            _ => None,
        }
    }

    /// CamelCase reason for conditions and metrics.
    pub(crate) fn reason(&self) -> String {
        match &self.cause {
            Cause::Cloud(error) => format!("{:?}", error.kind()),
            Cause::ApiServer(_) => "ApiServer".to_owned(),
            Cause::InvalidService(_) | Cause::UnclearPolicy(_) => "InvalidService".to_owned(),
            Cause::Protected => "Protected".to_owned(),
        }
    }

    /// Message with the advice for the user.
    pub(crate) fn message(&self) -> String {
        let (message, advice) = (self.to_string(), self.advice());
        if advice.is_empty() { message } else { format!("{}. {advice}", message.trim_end_matches('.')) }
    }

    /// Advice for the user.
    fn advice(&self) -> &'static str {
        match &self.cause {
            Cause::Cloud(error) => error.kind().advice(),
            Cause::ApiServer(WriteError::Rejected { code: 403, .. }) => {
                "Give the manager the right to patch services/status."
            }
            _ => "",
        }
    }

    /// Condition of a Service with this error that is retried after `delay`.
    pub(crate) fn condition(&self, delay: Option<Duration>, now: Timestamp) -> Condition {
        let message = self.message();
        let next = match delay {
            // The cloud is polled every few moments; a time in the condition would be a write each time.
            Some(_) if self.is_benign() => "It is checked again at the interval that the cloud advises.".to_owned(),
            Some(delay) => {
                let at = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
                format!("Next try at {}.", service::format_timestamp(at))
            }
            None if Resource::missing(self).is_some() => {
                "It is not retried until the missing resource is released.".to_owned()
            }
            None => "It is not retried until the Service or the nodes change.".to_owned(),
        };
        let end = if message.ends_with('.') { "" } else { "." };
        not_ready_condition(&self.reason(), format!("{message}{end} {next}"), now)
    }

    /// Whether the condition of the Service need not change for this error: a cloud that is at work on a load balancer is no reason
    /// to take back that it is ready, nor to write each of its steps.
    pub(crate) fn is_shown_by(&self, service: &Service) -> bool {
        let now = service.condition(LOAD_BALANCER_READY);
        self.is_benign() && now.is_some_and(|now| now.status == "True" || now.reason == self.reason())
    }
}

impl CloudErrors {
    /// Adds the error of one cloud. Any other error, of the API server for one, is returned: it ends the sync.
    pub(crate) fn add(&mut self, cloud: &Arc<str>, error: SyncError) -> Result<(), SyncError> {
        if !matches!(error.cause, Cause::Cloud(_)) || error.is_kind(ErrorKind::Cancelled) {
            return Err(error);
        }
        self.0.push((cloud.clone(), error));
        Ok(())
    }

    /// Returns one error for all: the first that is more than a cloud at work. If there were several `clouds`, it names those that
    /// failed. Clouds that are at work are polled when they advise, whatever the errors of the others are.
    pub(crate) fn into_result(self, clouds: usize) -> Result<(), SyncError> {
        let delays = self.0.iter().filter_map(|(_, error)| match error.requeue() {
            Requeue::After(delay) if error.is_benign() => Some(delay),
            _ => None,
        });
        let soonest = delays.min();
        let names = self.0.iter().map(|(cloud, _)| &**cloud).collect::<Vec<_>>().join(", ");
        let (benign, failed): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|(_, error)| error.is_benign());
        let Some((_, SyncError { action, cause })) = failed.into_iter().chain(benign).next() else { return Ok(()) };
        let cause = match cause {
            Cause::Cloud(error) if clouds > 1 => {
                let error = error.context("waiting for cloud", names);
                Cause::Cloud(soonest.into_iter().fold(error, |error, delay| error.retry(Retry::After(delay))))
            }
            cause => cause,
        };
        Err(SyncError { action, cause })
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            Action::AddFinalizer => "failed to add load balancer cleanup finalizer: ",
            Action::Ensure => "failed to ensure load balancer: ",
            Action::UpdateTargets => "failed to update load balancer with new hosts: ",
            Action::CheckBeforeCleanup => "failed to check if load balancer exists before cleanup: ",
            Action::Delete => "failed to delete load balancer: ",
            Action::ConfirmDeletion => "failed to check if the service is really gone: ",
            Action::RemoveAnnotations => "failed to remove the annotations that identify the load balancer: ",
            Action::RemoveFinalizer => "failed to remove load balancer cleanup finalizer: ",
            Action::UpdateStatus => "failed to update load balancer status: ",
        })?;
        write!(f, "{}", self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |mistakes: &[FieldError]| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        match self {
            Cause::Cloud(error) => error.fmt(f),
            Cause::ApiServer(error) => error.fmt(f),
            Cause::InvalidService(mistakes) => f.write_str(&list(mistakes)),
            Cause::Protected => f.write_str(
                "the annotation bowline.dev/policy: protect keeps it; set it to delete or retain to let the Service go",
            ),
            Cause::UnclearPolicy(mistakes) => {
                write!(f, "nothing is deleted until it is clear what is wanted: {}", list(mistakes))
            }
        }
    }
}
