//! What is wrong, and is told once all is done that can be done in spite of it.

use bowline_cloud::{Error, ErrorKind, Retry};
use serde::{Deserialize, Serialize};

/// An error that can be written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    kind: ErrorKind,
    pub(crate) retry: Retry,
    operation: String,
    /// With all that helps to find the cause.
    pub(crate) message: String,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let (kind, retry, operation) = (error.kind(), error.retry_advice(), error.operation().to_owned());
        let whole = error.to_string();
        let message = whole.strip_prefix(&format!("{operation}: ")).unwrap_or(&whole).to_owned();
        Problem { kind, retry, operation, message }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        let Problem { kind, retry, operation, message } = problem;
        Error::new(kind, operation, message).retry(retry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_error_says_the_same_after_it_was_written_down() {
        for retry in [Retry::Never, Retry::Backoff, Retry::After(Duration::from_secs(7))] {
            let error =
                Error::new(ErrorKind::Unavailable, "look", "HTTP 503").retry(retry).context("certificate", "c1");
            let written = serde_json::to_value(Problem::from(error.clone())).unwrap();
            let read = Error::from(serde_json::from_value::<Problem>(written).unwrap());
            assert_eq!(read.to_string(), error.to_string());
            assert_eq!((read.kind(), read.retry_advice()), (error.kind(), error.retry_advice()));
        }
    }
}
