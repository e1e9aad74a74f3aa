//! Tracing spans of syncs: log lines, cloud calls and API server writes of a sync carry its controller and key.

use std::fmt::Display;

use tracing::Span;
use tracing::field::{Empty, display};

/// Span of the sync of one key.
pub(crate) fn sync(controller: &'static str, key: &dyn Display) -> Span {
    tracing::info_span!("sync", controller, %key, outcome = Empty, error = Empty)
}

/// Span of the sync of several keys.
pub(crate) fn batch(controller: &'static str) -> Span {
    tracing::info_span!("batch", controller)
}

/// Records the outcome of the current sync.
pub(crate) fn ended(outcome: &'static str) {
    Span::current().record("outcome", outcome);
}

/// Records the outcome of the current sync with its error.
pub(crate) fn failed(outcome: &'static str, error: &dyn Display) {
    let span = Span::current();
    span.record("outcome", outcome);
    span.record("error", display(error));
}
