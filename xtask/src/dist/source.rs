//! Sources of a release: the tracked files, the version, the commit and its time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::archive::{self, Entry};

/// Sources of a release.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) root: PathBuf,
    pub(super) version: String,
    /// Commit; empty outside of a Git checkout.
    pub(super) commit: String,
    /// Time of all files, in seconds since 1970: `SOURCE_DATE_EPOCH`, or that of the commit.
    pub(super) time: u64,
    /// Architecture of this machine, as OCI and Debian call it.
    pub(super) architecture: &'static str,
}

impl Source {
    pub(super) fn read(root: &Path) -> anyhow::Result<Source> {
        let commit = git(root, &["rev-parse", "HEAD"]).unwrap_or_default();
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(time) => time,
            Err(_) => git(root, &["log", "-1", "--format=%ct"]).unwrap_or_else(|_| "0".to_owned()),
        };
        Ok(Source {
            root: root.to_owned(),
            version: version(root)?,
            commit,
            time: time.trim().parse().context("SOURCE_DATE_EPOCH: expected seconds since 1970")?,
            architecture: architecture()?,
        })
    }

    /// Returns the time as RFC 3339.
    pub(super) fn timestamp(&self) -> anyhow::Result<String> {
        Ok(jiff::Timestamp::from_second(i64::try_from(self.time)?)?.to_string())
    }

    /// Reads a file of the sources.
    pub(super) fn text(&self, path: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// Reads a folder of the sources.
    pub(super) fn folder(&self, path: &str) -> anyhow::Result<Vec<Entry>> {
        archive::read(&self.root.join(path))
    }

    /// Copies the files of the working tree, without ignored ones, to another folder.
    pub(super) fn copy_to(&self, folder: &Path) -> anyhow::Result<Source> {
        let files = git(&self.root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        for file in files.split('\0').filter(|file| !file.is_empty() && self.root.join(file).exists()) {
            let (from, to) = (self.root.join(file), folder.join(file));
            to.parent().map(fs::create_dir_all).transpose()?;
            fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
        }
        Ok(Source { root: folder.to_owned(), ..self.clone() })
    }
}

/// Reads the version of the workspace.
fn version(root: &Path) -> anyhow::Result<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = ")).map(|text| text.trim_matches('"'));
    version.map(str::to_owned).context("Cargo.toml has no version")
}

fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("unknown architecture {other}"),
    }
}

/// Runs Git in a folder and returns what it prints.
fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Sets the permissions of a file.
#[cfg(unix)]
pub(super) fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[cfg(not(unix))]
pub(super) fn set_mode(_: &Path, _: u32) -> anyhow::Result<()> {
    Ok(())
}
