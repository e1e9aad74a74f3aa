//! A configuration as it is written: what its keys mean is not known here.

use std::path::PathBuf;

/// A file in its parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Document {
    /// Where it is; `None` without a file.
    pub(super) file: Option<PathBuf>,
    /// Its parts, in order.
    pub(super) parts: Vec<Part>,
}

/// A section's head, and what stands below it. A section may be there several times; its parts belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The section's name, as written.
    pub(super) name: String,
    /// The name of its own.
    pub(super) own_name: Option<String>,
    /// The line of its head, from 1.
    pub(super) line: usize,
    /// What stands below it, in order.
    pub(super) entries: Vec<Entry>,
}

/// A key, with its value if it has one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key, as written.
    pub(super) key: String,
    /// Without quotes and escapes; `None` for a key alone.
    pub(super) value: Option<String>,
    /// Its line, from 1.
    pub(super) line: usize,
    /// The form of the value.
    pub(super) shape: Shape,
}

/// The form of a value, where the format has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A value of any type: gcfg has no other.
    Plain,
    /// A text that cannot be a number or a boolean, because it is quoted.
    Quoted,
    /// An item of a list, or an empty list if there is no value.
    Item,
    /// A mapping where a value is expected.
    Mapping,
}

/// Without the value, which may be a credential.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key).field("line", &self.line).finish_non_exhaustive()
    }
}
