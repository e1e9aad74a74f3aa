//! Where in the program a line comes from.

use tracing::{Level, Metadata};

use super::AS_WRITTEN;

/// What a line says of itself before it says anything else.
pub(super) struct Place<'a> {
    pub(super) level: Level,
    /// Of the source file.
    pub(super) path: &'a str,
    pub(super) line: u32,
    /// The message gets no quotes.
    pub(super) is_as_written: bool,
}

impl<'a> From<&Metadata<'a>> for Place<'a> {
    fn from(metadata: &Metadata<'a>) -> Place<'a> {
        Place {
            level: *metadata.level(),
            path: metadata.file().unwrap_or("???"),
            line: metadata.line().unwrap_or(1),
            is_as_written: metadata.target() == AS_WRITTEN,
        }
    }
}
