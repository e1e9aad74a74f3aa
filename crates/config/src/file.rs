//! A configuration file: read once, so that every message can say where something stands.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::{ConfigError, ConfigErrors, yaml};

/// The largest file that is read. A provider's configuration is a page of text; what is larger is the wrong file.
const LARGEST: u64 = 1024 * 1024;

/// A file and its text.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
}

/// Without the text, in which there may be credentials.
impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads it.
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let bytes = read(path).map_err(|error| unreadable(path, &error))?;
        if bytes.len() as u64 > LARGEST {
            let hint = "name a configuration, which is a page of text";
            return Err(ConfigError::file(path, None, "is larger than 1 MiB").hint(hint));
        }
        let text = String::from_utf8(bytes).map_err(|error| not_text(path, &error))?;
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

    /// Reads it as YAML (of which JSON is a part); what is wrong is told with its line. A file with nothing in it, or
    /// with comments only, is an empty mapping, so that every key has its default.
    ///
    /// ```
    /// use bowline_config::ConfigFile;
    /// use std::collections::BTreeMap;
    ///
    /// let file = ConfigFile::from_text("local.yaml", "zone: harbour\nzone: quay\n");
    /// let problems = file.yaml::<BTreeMap<String, String>>().unwrap_err();
    /// assert!(problems.to_string().starts_with("local.yaml:2: zone: "));
    /// ```
    pub fn yaml<T: DeserializeOwned>(&self) -> Result<T, ConfigErrors> {
        yaml::read(&self.text).map_err(|wrong| {
            let problem = ConfigError::file(&self.path, wrong.line, wrong.message);
            ConfigErrors::from(ConfigError { field: wrong.field, hint: wrong.hint, ..problem })
        })
    }
}

/// The file, or one byte more than may be read of it.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let problem = |message: &str, hint: &str| ConfigError::file(path, None, message).hint(hint);
    match error.kind() {
        io::ErrorKind::NotFound if path.as_os_str().is_empty() => problem("the path is empty", "name a file"),
        io::ErrorKind::NotFound => problem("there is no such file", "check the path, and the mount in the pod"),
        io::ErrorKind::IsADirectory => problem("is a folder", "name a file in it"),
        io::ErrorKind::PermissionDenied => problem("may not be read", "let the user that runs this read it"),
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

    /// A path of this test's own, removed when it ends.
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
    fn a_file_is_read_whole() {
        let scratch = Scratch::new("whole", b"zone: harbour\n");
        assert_eq!(ConfigFile::read(&scratch.0).unwrap().text(), "zone: harbour\n");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_its_path_and_a_way_out() {
        let folder = std::env::temp_dir();
        let cases = [
            (folder.join("bowline-config-that-is-not-there"), "there is no such file; check the path"),
            (folder.clone(), "is a folder; name a file in it"),
            (PathBuf::new(), "the path is empty; name a file"),
        ];
        for (path, says) in cases {
            let problem = ConfigFile::read(&path).unwrap_err().to_string();
            assert!(problem.starts_with(&*path.to_string_lossy()), "{problem}");
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn a_file_that_is_not_text_is_told_with_the_line() {
        let scratch = Scratch::new("binary", b"zone: harbour\nregion: \xff\n");
        let problem = ConfigFile::read(&scratch.0).unwrap_err();
        assert_eq!((problem.line, problem.message.as_str()), (Some(2), "is not UTF-8 text"));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let mut bytes = vec![b'#'; LARGEST as usize];
        let largest = Scratch::new("largest", &bytes);
        assert!(ConfigFile::read(&largest.0).is_ok());
        bytes.push(b'#');
        let larger = Scratch::new("larger", &bytes);
        assert!(ConfigFile::read(&larger.0).unwrap_err().to_string().contains("larger than 1 MiB"));
    }
}
