//! Writes are printed, not made.

use std::fmt::Display;

use crate::layers::operation::Operation;

/// Whether writes are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DryRun(pub(crate) bool);

impl DryRun {
    /// In a dry run, says what would be done, and that it is not to be done.
    pub(crate) fn skips(self, provider: &str, operation: Operation, what: &dyn Display) -> bool {
        if self.0 {
            tracing::info!(provider, op = operation.label(), "dry run, not done: {what}");
        }
        self.0
    }
}
