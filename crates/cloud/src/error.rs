//! Error type of the provider contract: a kind to branch on, retry advice, and context for operators.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use bowline_core::{ErrorKind, Retry};
use bowline_core::{Operation, PlanError, Step};

/// Result of a cloud operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed cloud operation. Cheap to clone, because one failed read may be the result of many lookups.
#[derive(Debug, Clone)]
pub struct Error(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    retry: Retry,
    operation: String,
    message: String,
    status: Option<u16>,
    code: Option<String>,
    outcome_unknown: bool,
    too_large: bool,
    known_state: Option<KnownState>,
    pending: Option<Operation>,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// State of a machine that is known although reading its details failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownState {
    /// The machine exists and is not known to be stopped.
    Running,
    /// The machine exists and is powered off, suspended or the like.
    Stopped,
}

impl Error {
    /// Creates an error with the default retry advice of its kind.
    pub fn new(kind: ErrorKind, operation: impl Into<String>, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            retry: kind.default_retry(),
            operation: operation.into(),
            message: truncate(message.into()),
            status: None,
            code: None,
            outcome_unknown: false,
            too_large: false,
            known_state: None,
            pending: None,
            context: Vec::new(),
            source: None,
        }))
    }

    /// Creates the error for an HTTP status, for clouds whose response bodies say nothing more specific.
    ///
    /// The message contains the beginning of `body` on one line. `retry_after` is the value of the `Retry-After` header.
    pub fn from_status(operation: impl Into<String>, status: u16, body: &str, retry_after: Option<Duration>) -> Error {
        let kind = match status {
            // Some OpenStack services answer 413 for "too many requests".
            413 if retry_after.is_some() => ErrorKind::RateLimited,
            status => kind_of_status(status),
        };
        let mut error = Error::new(kind, operation, status_message(status, body)).with_status(status);
        // Without Retry-After, the response may come from a gateway while the service behind it is still working.
        if matches!(status, 408 | 500 | 502..=506 | 508..=599) && retry_after.is_none() {
            error = error.outcome_unknown();
        }
        match retry_after {
            Some(delay) if kind.is_transient() => error.retry(Retry::After(delay)),
            _ => error,
        }
    }

    /// Sets the HTTP status of the cloud's response.
    pub fn with_status(mut self, status: u16) -> Error {
        Arc::make_mut(&mut self.0).status = Some(status);
        self
    }

    /// Sets the cloud's own code of the error, such as `DependencyViolation`.
    pub fn with_code(mut self, code: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).code = Some(code.into());
        self
    }

    /// Marks the outcome as unknown: the request was sent, and the cloud may have executed it or may still do so.
    pub fn outcome_unknown(self) -> Error {
        self.set_outcome_unknown(true)
    }

    /// Marks the outcome as known: the cloud itself responded, whatever the HTTP status is.
    pub fn outcome_known(self) -> Error {
        self.set_outcome_unknown(false)
    }

    fn set_outcome_unknown(mut self, outcome_unknown: bool) -> Error {
        Arc::make_mut(&mut self.0).outcome_unknown = outcome_unknown;
        self
    }

    /// Marks the request as not executed: the error comes from a read that precedes it.
    pub fn not_executed(self) -> Error {
        self.set_outcome_unknown(false)
    }

    /// Marks the response as larger than the client accepts.
    pub fn too_large(mut self) -> Error {
        Arc::make_mut(&mut self.0).too_large = true;
        self
    }

    /// Replaces the name of the operation.
    pub fn during(mut self, operation: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).operation = operation.into();
        self
    }

    /// Limits the retry delay to a range that callers can follow: a delay of years would never end, and a delay of zero would be a
    /// busy loop.
    pub(crate) fn with_bounded_retry(self) -> Error {
        match self.retry_advice() {
            Retry::After(Duration::ZERO) => self.retry(Retry::Backoff),
            Retry::After(delay) if delay > MAX_DELAY => self.retry(Retry::After(MAX_DELAY)),
            _ => self,
        }
    }

    /// Creates an `InProgress` error: the cloud is still working on this operation, so nothing was written and nothing can be
    /// planned. The layers set the poll interval, and fail after the operation's deadline.
    pub fn pending(operation: Operation, task: impl Into<String>) -> Error {
        let pause = operation.poll_interval.pause(1);
        let mut error =
            Error::new(ErrorKind::InProgress, task, operation.description.as_str()).retry(Retry::After(pause));
        Arc::make_mut(&mut error.0).pending = Some(operation);
        error
    }

    /// Replaces the retry advice.
    pub fn retry(mut self, retry: Retry) -> Error {
        Arc::make_mut(&mut self.0).retry = retry;
        self
    }

    /// Records that the machine exists although its details, such as addresses from another service, could not be read. The Node
    /// waits for the details as after any other failure, but the machine counts as existing when Nodes are deleted.
    pub fn with_known_state(mut self, state: KnownState) -> Error {
        Arc::make_mut(&mut self.0).known_state = Some(state);
        self
    }

    /// Adds a detail that helps to find the cause: a request ID, a region, the object.
    pub fn context(mut self, key: &'static str, value: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).context.push((key, value.into()));
        self
    }

    /// Sets the source error.
    pub fn source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Returns the value of a context pair.
    pub fn context_value(&self, key: &str) -> Option<&str> {
        self.0.context.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// Returns the kind, which callers branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the object of the operation does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// Returns whether the plan continues without this step: the step is dispensable, and the cloud refuses it.
    pub fn allows_skipping<C>(&self, step: &Step<C>) -> bool {
        step.best_effort.is_some() && self.kind().is_rejection()
    }

    /// Converts the error to an error of a plan, with which the sync fails after all steps are applied; `subject` is the kind of
    /// resource that it concerns.
    pub fn to_plan_error(&self, subject: &str) -> PlanError {
        let whole = self.to_string();
        let message = whole.strip_prefix(&format!("{}: ", self.operation())).unwrap_or(&whole).to_owned();
        let (kind, retry, operation) = (self.kind(), self.retry_advice(), self.operation().to_owned());
        PlanError { subject: subject.to_owned(), kind, retry, operation, message }
    }

    /// Returns when to retry.
    pub fn retry_advice(&self) -> Retry {
        self.0.retry
    }

    /// Returns the HTTP status of the cloud's response, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// Returns the cloud's own code of the error, if its response had one. Only the provider of that cloud branches on it.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Returns whether the request was sent and its outcome is unknown. A write that is not idempotent must not be repeated then.
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// Returns whether the response or the request was larger than the client or the cloud accepts. A smaller batch may succeed.
    pub fn is_too_large(&self) -> bool {
        let is_refused = self.status() == Some(413) && self.kind() != ErrorKind::RateLimited;
        self.0.too_large || is_refused
    }

    /// Returns the operation that the cloud is still working on, if that is the cause.
    pub fn pending_operation(&self) -> Option<&Operation> {
        self.0.pending.as_ref()
    }

    /// Returns the known state of the machine, see [`with_known_state`](Error::with_known_state).
    pub fn known_state(&self) -> Option<KnownState> {
        self.0.known_state
    }

    /// Returns the name of the failed operation.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// Returns the message without operation and context.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

/// Kind of an HTTP status. A redirect or a success has no kind of its own: it is unexpected.
fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        400 | 422 => ErrorKind::InvalidConfig,
        401 => ErrorKind::Unauthenticated,
        402 | 507 => ErrorKind::QuotaExceeded,
        403 => ErrorKind::PermissionDenied,
        404 | 410 => ErrorKind::NotFound,
        405 | 501 => ErrorKind::Unsupported,
        409 | 412 | 423 => ErrorKind::Conflict,
        429 => ErrorKind::RateLimited,
        408 | 425 | 500..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Unexpected,
    }
}

/// Maximum delay that a cloud can request. A request for hours is usually a mistake, and nothing would end the delay before the
/// process ends; a cloud that means it requests it again.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// Maximum length of a message. Quoted parts may be of any length.
const MAX_MESSAGE_BYTES: usize = 600;

fn truncate(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
    message
}

/// Maximum number of characters of a response body in a message.
const BODY_CHARS: usize = 200;

/// Returns the status and the beginning of the body, on one line.
fn status_message(status: u16, body: &str) -> String {
    let words: Vec<_> =
        body.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(BODY_CHARS) {
        _ if line.is_empty() => format!("HTTP {status}"),
        Some((end, _)) => format!("HTTP {status}: {}…", line.get(..end).unwrap_or_default()),
        None => format!("HTTP {status}: {line}"),
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Error {
        Error::new(error.kind, error.operation, error.message).retry(error.retry)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_truncated() {
        let error = Error::new(ErrorKind::Unexpected, "find", "🚢".repeat(10_000));
        assert!(error.message().len() <= MAX_MESSAGE_BYTES + '…'.len_utf8() && error.message().ends_with('…'));
    }

    #[test]
    fn each_http_status_has_a_kind() {
        use ErrorKind::*;
        let table = [
            (200, Unexpected),
            (304, Unexpected),
            (400, InvalidConfig),
            (401, Unauthenticated),
            (402, QuotaExceeded),
            (403, PermissionDenied),
            (404, NotFound),
            (405, Unsupported),
            (408, Unavailable),
            (409, Conflict),
            (410, NotFound),
            (412, Conflict),
            (413, Unexpected),
            (418, Unexpected),
            (422, InvalidConfig),
            (423, Conflict),
            (425, Unavailable),
            (429, RateLimited),
            (500, Unavailable),
            (501, Unsupported),
            (502, Unavailable),
            (503, Unavailable),
            (504, Unavailable),
            (507, QuotaExceeded),
            (599, Unavailable),
            (0, Unexpected),
            (65535, Unexpected),
        ];
        for (status, kind) in table {
            assert_eq!(Error::from_status("get server", status, "", None).kind(), kind, "{status}");
        }
    }

    #[test]
    fn retry_after_applies_to_transient_errors_only() {
        let delay = Duration::from_secs(30);
        let table = [
            (429, Retry::After(delay)),
            (503, Retry::After(delay)),
            (413, Retry::After(delay)),
            (401, Retry::Backoff),
            (400, Retry::Never),
        ];
        for (status, advice) in table {
            assert_eq!(Error::from_status("get server", status, "", Some(delay)).retry_advice(), advice, "{status}");
        }
    }

    #[test]
    fn a_message_shows_the_beginning_of_the_body_on_one_line() {
        let text = |body: &str| Error::from_status("get server", 500, body, None).to_string();
        assert_eq!(text(""), "get server: HTTP 500");
        assert_eq!(text(" {\n  \"error\":\t\u{1b}[31mbad\n} "), "get server: HTTP 500: { \"error\": [31mbad }");
        let long = text(&"ä".repeat(1000));
        assert_eq!(long, format!("get server: HTTP 500: {}…", "ä".repeat(BODY_CHARS)));
    }

    #[test]
    fn an_error_displays_operation_message_and_context() {
        let source = std::io::Error::other("connection reset");
        let error = Error::new(ErrorKind::Unavailable, "list servers", "no answer")
            .context("region", "R1")
            .context("request", "42")
            .source(source);
        assert_eq!(error.to_string(), "list servers: no answer (region=R1, request=42)");
        assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some("connection reset".to_owned()));
        assert_eq!((error.operation(), error.message()), ("list servers", "no answer"));
    }

    #[test]
    fn a_plan_error_converts_back_to_the_error() {
        for retry in [Retry::Never, Retry::Backoff, Retry::After(Duration::from_secs(7))] {
            let error =
                Error::new(ErrorKind::Unavailable, "list", "HTTP 503").retry(retry).context("certificate", "c1");
            let plan_error = error.to_plan_error("certificate");
            assert_eq!(plan_error.to_string(), "certificate: not possible: HTTP 503 (certificate=c1)");
            let again = Error::from(plan_error);
            assert_eq!(again.to_string(), error.to_string());
            assert_eq!((again.kind(), again.retry_advice()), (error.kind(), error.retry_advice()));
        }
    }

    #[test]
    fn changing_a_clone_does_not_change_the_original() {
        let error = Error::new(ErrorKind::RateLimited, "get", "busy");
        let later = error.clone().retry(Retry::After(Duration::from_secs(1))).context("key", "value");
        assert_eq!(error.retry_advice(), Retry::Backoff);
        let known = later.clone().with_known_state(KnownState::Stopped).context("more", "words");
        assert_eq!((later.known_state(), known.known_state()), (None, Some(KnownState::Stopped)));
        assert_eq!((error.to_string().as_str(), later.to_string().as_str()), ("get: busy", "get: busy (key=value)"));
    }
}
