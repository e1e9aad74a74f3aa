//! What is being worked on: all that is logged, asked of a cloud or written to the API server meanwhile says so.

use std::fmt::Display;

use tracing::Span;
use tracing::field::{Empty, display};

/// One key in work.
pub(crate) fn sync(controller: &'static str, key: &dyn Display) -> Span {
    tracing::info_span!("sync", controller, %key, outcome = Empty, error = Empty)
}

/// One look at all there is.
pub(crate) fn pass(controller: &'static str) -> Span {
    tracing::info_span!("pass", controller)
}

/// How the work in hand ended.
pub(crate) fn ended(outcome: &'static str) {
    Span::current().record("outcome", outcome);
}

/// The same, and why.
pub(crate) fn failed(outcome: &'static str, error: &dyn Display) {
    let span = Span::current();
    span.record("outcome", outcome);
    span.record("error", display(error));
}
