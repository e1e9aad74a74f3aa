//! The one error of the contract: a kind to branch on, advice on retrying, and what a person needs to know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The outcome of asking a cloud.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a cloud. Cheap to clone, because one failed read may be the answer to many questions.
#[derive(Debug, Clone)]
pub struct Error(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    retry: Retry,
    operation: String,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What callers branch on. Nothing branches on the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// What the operation was about does not exist. For instances this is an answer
    /// ([`Gone`](bowline_core::InstanceState::Gone)), not an error; as an error it says that something *needed* is missing.
    NotFound,
    /// A thing of that name exists and is not ours.
    AlreadyExists,
    /// Somebody changed it meanwhile; look again.
    Conflict,
    /// The cloud wants fewer calls.
    RateLimited,
    /// The account may have no more of these.
    QuotaExceeded,
    /// The credentials are missing, wrong or expired.
    Unauthenticated,
    /// The credentials are right and do not suffice.
    PermissionDenied,
    /// The configuration or an annotation is wrong.
    InvalidConfig,
    /// The cloud, or this provider, cannot do that at all.
    Unsupported,
    /// Somebody else does this here; that is a success without a result.
    ImplementedElsewhere,
    /// It is being done and takes a while.
    InProgress,
    /// The cloud does not answer, or answers that it is broken.
    Unavailable,
    /// We stopped waiting, because we are stopping.
    Cancelled,
    /// The cloud answered something that we do not understand. Never taken for "there is none".
    Unexpected,
}

/// When trying again makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Later and later.
    Backoff,
    /// The cloud said when.
    After(Duration),
    /// Only after something has changed: the object, the configuration, the account.
    Never,
}

impl Error {
    /// An error of this kind, with the advice that suits the kind.
    pub fn new(kind: ErrorKind, operation: impl Into<String>, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            retry: kind.default_retry(),
            operation: operation.into(),
            message: message.into(),
            context: Vec::new(),
            source: None,
        }))
    }

    /// With other advice.
    pub fn retry(mut self, retry: Retry) -> Error {
        Arc::make_mut(&mut self.0).retry = retry;
        self
    }

    /// With a fact that helps to find the cause: a request ID, a region, the object.
    pub fn context(mut self, key: &'static str, value: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).context.push((key, value.into()));
        self
    }

    /// With the error below.
    pub fn source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// What callers branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// When trying again makes sense.
    pub fn retry_advice(&self) -> Retry {
        self.0.retry
    }

    /// What was being done.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// What happened, without operation and context.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl ErrorKind {
    /// As a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not_found",
            ErrorKind::AlreadyExists => "already_exists",
            ErrorKind::Conflict => "conflict",
            ErrorKind::RateLimited => "rate_limited",
            ErrorKind::QuotaExceeded => "quota_exceeded",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::InvalidConfig => "invalid_config",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::ImplementedElsewhere => "implemented_elsewhere",
            ErrorKind::InProgress => "in_progress",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Unexpected => "unexpected",
        }
    }

    /// What is advised unless the provider knows better.
    fn default_retry(self) -> Retry {
        match self {
            ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::RateLimited
            | ErrorKind::QuotaExceeded
            | ErrorKind::Unauthenticated
            | ErrorKind::PermissionDenied
            | ErrorKind::InProgress
            | ErrorKind::Unavailable
            | ErrorKind::Unexpected => Retry::Backoff,
            ErrorKind::AlreadyExists
            | ErrorKind::InvalidConfig
            | ErrorKind::Unsupported
            | ErrorKind::ImplementedElsewhere
            | ErrorKind::Cancelled => Retry::Never,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)?;
        for (index, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { " (" } else { ", " })?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
