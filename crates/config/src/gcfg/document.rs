//! A file as it is written: nothing is known yet of what its keys mean.

use std::path::{Path, PathBuf};

use super::syntax;
use crate::{ConfigFile, Problems};

/// A file in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    file: PathBuf,
    parts: Vec<Part>,
}

/// A section's head, and what stands below it. A section may be there several times; its parts belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The section's name, as written.
    pub(super) name: String,
    /// What is quoted behind it.
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
}

/// Without the value, which may be a credential.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key).field("line", &self.line).finish_non_exhaustive()
    }
}

impl Document {
    /// Reads the text, without the lines that cannot be read, which are the problems.
    pub(super) fn parse(file: &ConfigFile) -> (Document, Problems) {
        let (parts, problems) = syntax::parse(file.path(), file.text());
        (Document { file: file.path().to_owned(), parts }, problems)
    }

    /// Where it is.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Its parts, in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl Part {
    /// As it is written in a file: `[Name "own"]`.
    pub(super) fn head(&self) -> String {
        head(&self.name, self.own_name.as_deref())
    }
}

/// As it is written in a file.
pub(super) fn head(name: &str, own_name: Option<&str>) -> String {
    match own_name {
        None => format!("[{name}]"),
        Some(own) => format!("[{name} \"{}\"]", own.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}
