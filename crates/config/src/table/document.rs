//! Parsed configuration file, independent of its declaration.

use std::path::PathBuf;

/// A parsed file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Document {
    /// Path; `None` without a file.
    pub(super) file: Option<PathBuf>,
    /// Parts, in their order in the file.
    pub(super) parts: Vec<Part>,
}

/// A section header and the entries below it. A section may appear several times; its parts are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Name of the section, as written.
    pub(super) name: String,
    /// Subsection name.
    pub(super) subsection: Option<String>,
    /// Line of the header, from 1.
    pub(super) line: usize,
    /// Entries, in their order in the file.
    pub(super) entries: Vec<Entry>,
}

/// A key, with its value if it has one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Key, as written.
    pub(super) key: String,
    /// Value without quotes and escapes; `None` for a key without a value.
    pub(super) value: Option<String>,
    /// Line, from 1.
    pub(super) line: usize,
    /// Type of the value in the file.
    pub(super) shape: Shape,
}

/// Type of a value in the file, for formats that have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A plain scalar of any type; all values in gcfg.
    Plain,
    /// A quoted string, which cannot be a number or a boolean.
    Quoted,
    /// An item of a list, or an empty list if there is no value.
    Item,
    /// A mapping where a value is expected.
    Mapping,
}

/// Omits the value, which may be a credential.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key).field("line", &self.line).finish_non_exhaustive()
    }
}
