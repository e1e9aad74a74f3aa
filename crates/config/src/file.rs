//! Configuration files, kept with their path so that every error can name file and line.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::{ConfigError, ConfigErrors, yaml};

/// Maximum size of a configuration file. A configuration is about a page of text; a larger file is the wrong one.
const MAX_SIZE: u64 = 1024 * 1024;

/// A configuration file and its text.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
}

/// Omits the text, which may contain credentials.
impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let bytes = read(path).map_err(|error| unreadable(path, &error))?;
        if bytes.len() as u64 > MAX_SIZE {
            let hint = "check the path: a configuration is about a page of text";
            return Err(ConfigError::file(path, None, "is larger than 1 MiB").hint(hint));
        }
        let text = String::from_utf8(bytes).map_err(|error| not_text(path, &error))?;
        Ok(ConfigFile { path: path.to_owned(), text })
    }

    /// Creates a configuration file from text in memory.
    pub fn from_text(path: impl Into<PathBuf>, text: impl Into<String>) -> ConfigFile {
        ConfigFile { path: path.into(), text: text.into() }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the text as YAML, which includes JSON. Errors have the line number. An empty file, or one with comments only, is an
    /// empty mapping, so that every key has its default.
    ///
    /// ```
    /// use bowline_config::ConfigFile;
    /// use std::collections::BTreeMap;
    ///
    /// let file = ConfigFile::from_text("local.yaml", "zone: harbour\nzone: quay\n");
    /// let errors = file.yaml::<BTreeMap<String, String>>().unwrap_err();
    /// assert!(errors.to_string().starts_with("local.yaml:2: zone: "));
    /// ```
    pub fn yaml<T: DeserializeOwned>(&self) -> Result<T, ConfigErrors> {
        yaml::read(&self.text).map_err(|error| {
            let located = ConfigError::file(&self.path, error.line, error.message);
            ConfigErrors::from(ConfigError { field: error.field, hint: error.hint, ..located })
        })
    }
}

/// Reads the file, up to one byte more than the maximum size.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let with_hint = |message: &str, hint: &str| ConfigError::file(path, None, message).hint(hint);
    match error.kind() {
        io::ErrorKind::NotFound if path.as_os_str().is_empty() => with_hint("the path is empty", "name a file"),
        io::ErrorKind::NotFound => with_hint("no such file", "check the path, and the volume mount of the pod"),
        io::ErrorKind::IsADirectory => with_hint("is a directory", "name a file in it"),
        io::ErrorKind::PermissionDenied => {
            with_hint("permission denied", "make it readable for the user of this process")
        }
        _ => ConfigError::file(path, None, format!("cannot be read: {error}")),
    }
}

fn not_text(path: &Path, error: &std::string::FromUtf8Error) -> ConfigError {
    let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
    let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
    ConfigError::file(path, Some(line), "is not UTF-8 text").hint("save it as UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Temporary file of one test, removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str, bytes: &[u8]) -> Scratch {
            let path = std::env::temp_dir().join(format!("bowline-config-{test}-{}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn the_whole_file_is_read() {
        let scratch = Scratch::new("whole", b"zone: harbour\n");
        assert_eq!(ConfigFile::read(&scratch.0).unwrap().text(), "zone: harbour\n");
    }

    #[test]
    fn an_unreadable_file_is_reported_with_its_path_and_a_hint() {
        let directory = std::env::temp_dir();
        let cases = [
            (directory.join("bowline-config-that-is-not-there"), "no such file; check the path"),
            (directory.clone(), "is a directory; name a file in it"),
            (PathBuf::new(), "the path is empty; name a file"),
        ];
        for (path, expected) in cases {
            let error = ConfigFile::read(&path).unwrap_err().to_string();
            assert!(error.starts_with(&*path.to_string_lossy()), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn invalid_utf8_is_reported_with_the_line() {
        let scratch = Scratch::new("binary", b"zone: harbour\nregion: \xff\n");
        let error = ConfigFile::read(&scratch.0).unwrap_err();
        assert_eq!((error.line, error.message.as_str()), (Some(2), "is not UTF-8 text"));
    }

    #[test]
    fn a_file_that_is_too_large_is_rejected() {
        let mut bytes = vec![b'#'; MAX_SIZE as usize];
        let largest = Scratch::new("largest", &bytes);
        assert!(ConfigFile::read(&largest.0).is_ok());
        bytes.push(b'#');
        let larger = Scratch::new("larger", &bytes);
        assert!(ConfigFile::read(&larger.0).unwrap_err().to_string().contains("larger than 1 MiB"));
    }
}
