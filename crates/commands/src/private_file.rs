//! Files that only their owner may read.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Creates a file with this text, which no other user may ever read; fails if there is one.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}
