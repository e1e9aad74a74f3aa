//! A configuration file: read once, so that every message can say where something stands.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::{Problem, Problems};

/// A file and its text.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    /// Reads it.
    pub fn read(path: &Path) -> Result<ConfigFile, Problem> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Problem::file(path, None, format!("cannot be read: {error}")))?;
        Ok(ConfigFile { path: path.to_owned(), text })
    }

    /// A file that is not on disk.
    pub fn from_text(path: impl Into<PathBuf>, text: impl Into<String>) -> ConfigFile {
        ConfigFile { path: path.into(), text: text.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads it as YAML (of which JSON is a part); what is wrong is told with its line.
    pub fn yaml<T: DeserializeOwned>(&self) -> Result<T, Problems> {
        let _ = &self.text;
        todo!()
    }
}
