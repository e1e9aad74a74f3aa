//! Dry run: logs writes instead of making them.

use std::fmt::Display;

use crate::layers::operation::Operation;

/// Whether the process runs in dry-run mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DryRun(pub(crate) bool);

impl DryRun {
    /// In a dry run, logs the write and returns `true`.
    pub(crate) fn skips(self, provider: &str, operation: Operation, what: &dyn Display) -> bool {
        self.log(provider, operation, what);
        self.0
    }

    /// In a dry run, logs the write.
    pub(crate) fn log(self, provider: &str, operation: Operation, what: &dyn Display) {
        if self.0 {
            tracing::info!(cloud = provider, op = operation.label(), "dry run, not done: {what}");
        }
    }
}
