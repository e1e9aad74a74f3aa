//! Files that only the file owner can read.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Creates a file that no other user can read at any time; fails if it exists.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}
