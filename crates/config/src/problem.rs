//! What is wrong, where, and what would be right.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, or `None` for the command line.
    pub file: Option<PathBuf>,
    /// The line in it, from 1.
    pub line: Option<usize>,
    /// The key or flag.
    pub field: Option<String>,
    /// What is wrong with it.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

/// All that is wrong, to be told at once. As an error it has at least one entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigError {
    /// A problem whose message says itself what it is about.
    pub fn new(message: impl Into<String>) -> ConfigError {
        ConfigError { file: None, line: None, field: None, message: message.into(), hint: None }
    }

    /// A problem with this flag.
    pub fn flag(name: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::new(message).field(format!("--{name}"))
    }

    /// A problem in this file.
    pub fn file(path: impl Into<PathBuf>, line: Option<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError { file: Some(path.into()), line, ..ConfigError::new(message) }
    }

    /// With the key that it is about.
    pub fn field(mut self, field: impl Into<String>) -> ConfigError {
        self.field = Some(field.into());
        self
    }

    /// With what would be right.
    pub fn hint(mut self, hint: impl Into<String>) -> ConfigError {
        self.hint = Some(hint.into());
        self
    }
}

impl ConfigErrors {
    /// None yet.
    pub fn new() -> ConfigErrors {
        ConfigErrors::default()
    }

    /// One more.
    pub fn push(&mut self, problem: ConfigError) {
        self.0.push(problem);
    }

    /// All of `other`, too.
    pub fn extend(&mut self, other: ConfigErrors) {
        self.0.extend(other.0);
    }

    /// Nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(problem: ConfigError) -> ConfigErrors {
        ConfigErrors(vec![problem])
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
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
