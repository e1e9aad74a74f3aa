//! The one error of the contract: a kind to branch on, advice on retrying, and what a person needs to know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use bowline_core::{ErrorKind, Retry};
use bowline_core::{Operation, PlanError, Step};

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
    status: Option<u16>,
    outcome_unknown: bool,
    too_large: bool,
    seen: Option<KnownState>,
    pending: Option<Operation>,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What is certain of a machine although more was asked about it, and that could not be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownState {
    /// It exists and is not known to be stopped.
    Running,
    /// It exists and is powered off, suspended or the like.
    Stopped,
}

impl Error {
    /// An error of this kind, with the advice that suits the kind.
    pub fn new(kind: ErrorKind, operation: impl Into<String>, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            retry: kind.default_retry(),
            operation: operation.into(),
            message: bounded(message.into()),
            status: None,
            outcome_unknown: false,
            too_large: false,
            seen: None,
            pending: None,
            context: Vec::new(),
            source: None,
        }))
    }

    /// What a cloud's HTTP answer with this status means, unless the cloud says it better in its body.
    ///
    /// `body` is shown to people, cut to a line; `retry_after` is what the header of that name asked for.
    pub fn from_status(operation: impl Into<String>, status: u16, body: &str, retry_after: Option<Duration>) -> Error {
        let kind = match status {
            // Some OpenStack services say "too many requests" like this.
            413 if retry_after.is_some() => ErrorKind::RateLimited,
            status => kind_of_status(status),
        };
        let mut error = Error::new(kind, operation, status_message(status, body)).with_status(status);
        // Without advice when to come back, it may be a gateway that answers for a service that is still at work.
        if matches!(status, 408 | 500 | 502..=506 | 508..=599) && retry_after.is_none() {
            error = error.outcome_unknown();
        }
        match retry_after {
            Some(desired) if kind.is_transient() => error.retry(Retry::After(desired)),
            _ => error,
        }
    }

    /// With the HTTP status of the cloud's answer.
    pub fn with_status(mut self, status: u16) -> Error {
        Arc::make_mut(&mut self.0).status = Some(status);
        self
    }

    /// The request was sent and its outcome is unknown: the cloud may have executed it, or may still do so.
    pub fn outcome_unknown(self) -> Error {
        self.set_unanswered(true)
    }

    /// Marks the outcome of the call as known: the cloud has answered, whatever the HTTP status is.
    pub fn answered(self) -> Error {
        self.set_unanswered(false)
    }

    fn set_unanswered(mut self, outcome_unknown: bool) -> Error {
        Arc::make_mut(&mut self.0).outcome_unknown = outcome_unknown;
        self
    }

    /// The error is that of a read before the request, so the outcome is known: nothing was executed.
    pub fn executed_nothing(mut self) -> Error {
        Arc::make_mut(&mut self.0).outcome_unknown = false;
        self
    }

    /// The answer is larger than the client takes.
    pub fn too_large(mut self) -> Error {
        Arc::make_mut(&mut self.0).too_large = true;
        self
    }

    /// With another name for what was being done.
    pub fn during(mut self, operation: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).operation = operation.into();
        self
    }

    /// The same error with advice that a caller can follow: one that puts an object aside for years would never see it again,
    /// and one that comes back at once would do nothing else.
    pub(crate) fn within_reason(self) -> Error {
        match self.retry_advice() {
            Retry::After(Duration::ZERO) => self.retry(Retry::Backoff),
            Retry::After(pause) if pause > LONGEST_PAUSE => self.retry(Retry::After(LONGEST_PAUSE)),
            _ => self,
        }
    }

    /// The cloud is at work on this operation, so nothing was written and nothing can be planned. The layers pace the polls,
    /// and give up after the operation's deadline.
    pub fn pending(operation: Operation, task: impl Into<String>) -> Error {
        let pause = operation.pacing.pause(1);
        let mut error = Error::new(ErrorKind::InProgress, task, operation.what.as_str()).retry(Retry::After(pause));
        Arc::make_mut(&mut error.0).pending = Some(operation);
        error
    }

    /// With other advice.
    pub fn retry(mut self, retry: Retry) -> Error {
        Arc::make_mut(&mut self.0).retry = retry;
        self
    }

    /// The cloud has told that the machine exists; what failed is to learn the rest: its addresses, say, which another service
    /// has. Its Node waits for the rest as after every failure, and yet it counts as seen where Nodes are to be deleted.
    pub fn with_known_state(mut self, seen: KnownState) -> Error {
        Arc::make_mut(&mut self.0).seen = Some(seen);
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

    /// What the operation was about does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// The plan goes on without this step: it can be done without, and the cloud refuses it.
    pub fn leaves_out<C>(&self, step: &Step<C>) -> bool {
        step.dispensable.is_some() && self.kind().is_refusal()
    }

    /// The problem of a plan that fails with this error once its steps are applied; `subject` is the kind of thing that it is
    /// about.
    pub fn about(&self, subject: &str) -> PlanError {
        let whole = self.to_string();
        let message = whole.strip_prefix(&format!("{}: ", self.operation())).unwrap_or(&whole).to_owned();
        let (kind, retry, operation) = (self.kind(), self.retry_advice(), self.operation().to_owned());
        PlanError { subject: subject.to_owned(), kind, retry, operation, message }
    }

    /// When trying again makes sense.
    pub fn retry_advice(&self) -> Retry {
        self.0.retry
    }

    /// HTTP status of the cloud's answer, if it answered.
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The request was sent and its outcome is unknown. A write that is not idempotent must not be repeated then.
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// The answer or the request was larger than the client or the cloud takes. A smaller batch may succeed.
    pub fn is_too_large(&self) -> bool {
        let is_refused = self.status() == Some(413) && self.kind() != ErrorKind::RateLimited;
        self.0.too_large || is_refused
    }

    /// The operation that the cloud is at work on, if the error says so.
    pub fn pending_operation(&self) -> Option<&Operation> {
        self.0.pending.as_ref()
    }

    /// What is certain of the machine all the same, if anything.
    pub fn seen(&self) -> Option<KnownState> {
        self.0.seen
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

/// What an HTTP status says. Neither a redirect nor a success is an error that we understand.
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

/// Longest pause that a cloud can ask for. One that asks for hours has made a mistake as a rule, and nothing would end the pause
/// before the process ends; a cloud that means it says so again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The longest message. What it quotes may be of any length.
const MESSAGE_BYTES: usize = 600;

fn bounded(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
        message.push('…');
    }
    message
}

/// How much of an answer's body a message shows.
const BODY_CHARS: usize = 200;

/// The status and the beginning of the body, on one line.
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
    fn from(problem: PlanError) -> Error {
        Error::new(problem.kind, problem.operation, problem.message).retry(problem.retry)
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
    fn a_message_that_quotes_something_long_is_cut() {
        let error = Error::new(ErrorKind::Unexpected, "find", "🚢".repeat(10_000));
        assert!(error.message().len() <= MESSAGE_BYTES + '…'.len_utf8() && error.message().ends_with('…'));
    }

    #[test]
    fn each_http_status_has_its_kind() {
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
    fn a_wish_to_be_left_alone_counts_for_a_cloud_that_is_busy_or_broken_alone() {
        let desired = Duration::from_secs(30);
        let table = [
            (429, Retry::After(desired)),
            (503, Retry::After(desired)),
            (413, Retry::After(desired)),
            (401, Retry::Backoff),
            (400, Retry::Never),
        ];
        for (status, advice) in table {
            assert_eq!(Error::from_status("get server", status, "", Some(desired)).retry_advice(), advice, "{status}");
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
    fn an_error_tells_what_was_done_what_happened_and_its_context() {
        let below = std::io::Error::other("connection reset");
        let error = Error::new(ErrorKind::Unavailable, "list servers", "no answer")
            .context("region", "R1")
            .context("request", "42")
            .source(below);
        assert_eq!(error.to_string(), "list servers: no answer (region=R1, request=42)");
        assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some("connection reset".to_owned()));
        assert_eq!((error.operation(), error.message()), ("list servers", "no answer"));
    }

    #[test]
    fn a_problem_becomes_the_error_that_it_was_made_of() {
        for retry in [Retry::Never, Retry::Backoff, Retry::After(Duration::from_secs(7))] {
            let error =
                Error::new(ErrorKind::Unavailable, "look", "HTTP 503").retry(retry).context("certificate", "c1");
            let problem = error.about("certificate");
            assert_eq!(problem.to_string(), "certificate: not possible: HTTP 503 (certificate=c1)");
            let again = Error::from(problem);
            assert_eq!(again.to_string(), error.to_string());
            assert_eq!((again.kind(), again.retry_advice()), (error.kind(), error.retry_advice()));
        }
    }

    #[test]
    fn changing_a_clone_leaves_the_other_as_it_was() {
        let error = Error::new(ErrorKind::RateLimited, "get", "busy");
        let later = error.clone().retry(Retry::After(Duration::from_secs(1))).context("key", "value");
        assert_eq!(error.retry_advice(), Retry::Backoff);
        let seen = later.clone().with_known_state(KnownState::Stopped).context("more", "words");
        assert_eq!((later.seen(), seen.seen()), (None, Some(KnownState::Stopped)));
        assert_eq!((error.to_string().as_str(), later.to_string().as_str()), ("get: busy", "get: busy (key=value)"));
    }
}
