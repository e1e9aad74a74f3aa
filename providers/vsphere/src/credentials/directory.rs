//! Directory with credentials, such as a mounted Secret: each file is a key.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// Largest size of a file; that of a whole Secret.
const MAX_SIZE: u64 = 1024 * 1024;

/// Files of a directory.
#[derive(Default)]
pub(super) struct Files {
    /// Names and contents, sorted by name.
    pub(super) values: Vec<(String, Vec<u8>)>,
    /// Files that cannot be read.
    pub(super) errors: Vec<String>,
}

/// Reads all files of a directory.
pub(super) fn read(directory: &Path) -> io::Result<Files> {
    let mut files = Files::default();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match file(&path) {
            Ok(Some(bytes)) => files.values.push((name.into_owned(), bytes)),
            Ok(None) => tracing::debug!(path = %path.display(), "Skipping parse of directory"),
            Err(error) => files.errors.push(format!("Cannot read file {name:?}: {error}")),
        }
    }
    files.values.sort();
    files.errors.sort();
    Ok(files)
}

/// Reads a file; `None` if it is a directory, such as the target of the link `..data` in a mounted Secret.
fn file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_SIZE).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
