//! Writing the kubeconfig: it holds a private key, so nobody else may read it, and clients poll for it, so it appears
//! whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::BadInput;

/// Refuses a place where the file cannot be written, before anything is started for it.
pub(crate) fn check(path: &Path) -> Result<(), BadInput> {
    let folder = folder_of(path);
    if path.file_name().is_none() || path.is_dir() {
        return Err(BadInput(format!(
            "--kubeconfig {}: this is a folder; name a file to write, such as {}",
            path.display(),
            path.join("bowline.kubeconfig").display()
        )));
    }
    if !folder.is_dir() {
        return Err(BadInput(format!(
            "--kubeconfig {}: the folder {} does not exist; make it first, or name a file elsewhere",
            path.display(),
            folder.display()
        )));
    }
    Ok(())
}

/// Puts `text` at `path`, replacing what was there.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let draft = draft_of(path);
    let written = write_private(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The error that matters is the one above; a left-over draft is only untidy.
        let _ = fs::remove_file(&draft);
    }
    written.with_context(|| format!("cannot write the kubeconfig to {}", path.display()))
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// A name beside `path`, so that the rename stays within one file system, and of this process only.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder_of(path).join(format!(".{name}.{}", std::process::id()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, removed when it ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("bowline-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_file_is_replaced_and_nothing_else_is_left() {
        let scratch = Scratch::new("replaced");
        let path = scratch.0.join("kc");
        write(&path, "old and longer").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = Scratch::new("owner");
        let path = scratch.0.join("kc");
        fs::write(&path, "readable by all").unwrap();
        write(&path, "secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_place_that_cannot_work_is_refused_with_a_way_out() {
        let scratch = Scratch::new("refused");
        let missing = scratch.0.join("missing/kc");
        assert!(check(&missing).unwrap_err().to_string().contains("does not exist; make it first"));
        assert!(check(&scratch.0).unwrap_err().to_string().contains("this is a folder"));
        assert!(check(Path::new("kc-in-the-current-folder")).is_ok());
    }
}
