//! The token of the owner of a local cloud, in a file that only its owner may read: one line, as curl takes it with `-H @FILE`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::private_file;

/// The line, up to the token.
const HEAD: &str = "Authorization: Bearer ";

/// A token in its file, which goes with the value.
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    /// Puts the token there. A file that holds something else is left alone.
    pub(crate) fn write(path: PathBuf, token: &str) -> anyhow::Result<TokenFile> {
        let shown = path.display().to_string();
        let written = || {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                make_folder(folder)?;
            }
            remove_old(&path)?;
            private_file::create(&path, &format!("{HEAD}{token}\n"))
        };
        written().with_context(|| {
            format!("cannot write the token of the cloud's owner to {shown} (--owner-token-file names another place)")
        })?;
        Ok(TokenFile(path))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // The token is void already; what stays is only untidy.
        let _ = fs::remove_file(&self.0);
    }
}

/// The token in a file, with or without the rest of its line.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let line = text.trim();
    Ok(line.strip_prefix(HEAD).unwrap_or(line).to_owned())
}

/// Where the token of the cloud at `HOST:PORT` is unless a flag says otherwise: in a folder of the user who runs it.
pub(crate) fn usual_path(address: &str) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").map(|home| home.join(".cache"));
    let folder = variable("XDG_RUNTIME_DIR").or_else(home).unwrap_or_else(std::env::temp_dir);
    let address = address.replace("localhost", "127.0.0.1").replace([':', '[', ']'], "-");
    folder.join("bowline").join(format!("cloud-{address}.token"))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Removes what an earlier run left.
fn remove_old(path: &Path) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.is_empty() || text.starts_with(HEAD) => fs::remove_file(path),
        Ok(_) => Err(io::Error::other("there is a file of something else; name another one, or remove it first")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_is_read_back_goes_with_its_owner_and_replaces_nothing_else() {
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
