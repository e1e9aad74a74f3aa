//! Errors in the configuration.

use std::fmt;
use std::path::PathBuf;

/// An error in the configuration, with its location and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// File; `None` for the command line and the environment.
    pub file: Option<PathBuf>,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// Key, flag or environment variable.
    pub field: Option<String>,
    /// Description of the error.
    pub message: String,
    /// Remedy.
    pub hint: Option<String>,
}

/// All errors in the configuration. As a value of `Err` it has at least one entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigError {
    /// Creates an error without a location.
    pub fn new(message: impl Into<String>) -> ConfigError {
        ConfigError { file: None, line: None, field: None, message: message.into(), hint: None }
    }

    /// Creates an error of the flag `--name`.
    pub fn flag(name: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::new(message).field(format!("--{name}"))
    }

    /// Creates an error in a file.
    pub fn file(path: impl Into<PathBuf>, line: Option<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError { file: Some(path.into()), line, ..ConfigError::new(message) }
    }

    /// Sets the key.
    pub fn field(mut self, field: impl Into<String>) -> ConfigError {
        self.field = Some(field.into());
        self
    }

    /// Sets the remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> ConfigError {
        self.hint = Some(hint.into());
        self
    }
}

impl ConfigErrors {
    /// Creates an empty list.
    pub fn new() -> ConfigErrors {
        ConfigErrors::default()
    }

    /// Adds an error.
    pub fn push(&mut self, error: ConfigError) {
        self.0.push(error);
    }

    /// Adds all errors of `other`.
    pub fn extend(&mut self, other: ConfigErrors) {
        self.0.extend(other.0);
    }

    /// Returns whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the errors.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> ConfigErrors {
        ConfigErrors(vec![error])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
