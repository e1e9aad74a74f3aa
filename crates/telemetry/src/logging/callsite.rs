//! Source location and level of a log line.

use tracing::{Level, Metadata};

use super::AS_WRITTEN;

/// Source location and level of a log line, for its header.
pub(super) struct Callsite<'a> {
    pub(super) level: Level,
    /// Path of the source file.
    pub(super) path: &'a str,
    pub(super) line: u32,
    /// The message is written without quotes.
    pub(super) is_as_written: bool,
}

impl<'a> From<&Metadata<'a>> for Callsite<'a> {
    fn from(metadata: &Metadata<'a>) -> Callsite<'a> {
        Callsite {
            level: *metadata.level(),
            path: metadata.file().unwrap_or("???"),
            line: metadata.line().unwrap_or(1),
            is_as_written: metadata.target() == AS_WRITTEN,
        }
    }
}
