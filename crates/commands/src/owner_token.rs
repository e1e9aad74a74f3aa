//! File with the owner's token of a local cloud, readable by the file owner only: one line, as `curl -H @FILE` expects.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::private_file;

/// Text before the token.
const PREFIX: &str = "Authorization: Bearer ";

/// Directory of the tokens in the user's directory for run-time files.
const DIRECTORY: &str = "bowline";

/// A token file, deleted on drop, together with the directory of [`default_path`] if that is empty.
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    /// Writes the token. A file with other contents is not replaced.
    pub(crate) fn write(path: PathBuf, token: &str) -> anyhow::Result<TokenFile> {
        let shown = path.display().to_string();
        let write = || {
            if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
                create_directory(directory)?;
            }
            remove_old(&path)?;
            private_file::create(&path, &format!("{PREFIX}{token}\n"))
        };
        write().with_context(|| {
            format!("cannot write the owner token of the cloud to {shown}; set --owner-token-file to use another path")
        })?;
        Ok(TokenFile(path))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // The token is already invalid; a leftover file is harmless.
        let _ = fs::remove_file(&self.0);
        // Succeeds only for an empty directory.
        let own = self.0.parent().filter(|directory| directory.file_name().is_some_and(|name| name == DIRECTORY));
        let _ = own.map(fs::remove_dir);
    }
}

/// Reads the token from a file, with or without its prefix.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let line = text.trim();
    Ok(line.strip_prefix(PREFIX).unwrap_or(line).to_owned())
}

/// Default path for the token of the cloud at `HOST:PORT`: in a directory of the user.
pub(crate) fn default_path(address: &str) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").map(|home| home.join(".cache"));
    let directory = variable("XDG_RUNTIME_DIR").or_else(home).unwrap_or_else(std::env::temp_dir);
    let address = address.replace("localhost", "127.0.0.1").replace([':', '[', ']'], "-");
    directory.join(DIRECTORY).join(format!("cloud-{address}.token"))
}

fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Removes the file of an earlier run.
fn remove_old(path: &Path) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.is_empty() || text.starts_with(PREFIX) => fs::remove_file(path),
        Ok(_) => Err(io::Error::other(
            "the existing file is not a token file; specify another path, or remove the file first",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_deleted_on_drop_and_replaces_no_other_file() {
        let folder = std::env::temp_dir().join(format!("bowline-owner-{}", std::process::id()));
        let path = folder.join("a/token");
        let file = TokenFile::write(path.clone(), "s3cr3t").unwrap();
        assert_eq!(read(&path).unwrap(), "s3cr3t");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::metadata(folder.join("a")).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let again = TokenFile::write(path.clone(), "other").unwrap();
        assert_eq!(read(&path).unwrap(), "other");
        drop((file, again));
        assert!(!path.exists());
        fs::write(&path, "notes of mine").unwrap();
        assert!(TokenFile::write(path.clone(), "s3cr3t").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes of mine");
        fs::remove_dir_all(&folder).unwrap();
    }
}
