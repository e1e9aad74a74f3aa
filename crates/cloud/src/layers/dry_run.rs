//! Writes are printed, not made.

use std::fmt::Display;

use crate::layers::operation::Operation;

/// Whether writes are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DryRun(pub(crate) bool);

impl DryRun {
    /// In a dry run, says what would be done, and that it is not to be done.
    pub(crate) fn skips(self, provider: &str, operation: Operation, what: &dyn Display) -> bool {
        self.print(provider, operation, what);
        self.0
    }

    /// In a dry run, says what would be done.
    pub(crate) fn print(self, provider: &str, operation: Operation, what: &dyn Display) {
        if self.0 {
            tracing::info!(cloud = provider, op = operation.label(), "dry run, not done: {what}");
        }
    }
}
