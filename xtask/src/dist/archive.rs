//! Reproducible tar archives: sorted entries, owned by root, with one time.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, bail};
use flate2::{Compression, GzBuilder};

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path, without a slash at its end.
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) kind: Kind,
}

/// Type and content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File(Vec<u8>),
    /// A symbolic link, with its target.
    Link(String),
}

const BLOCK: usize = 512;

impl Entry {
    pub(super) fn file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), mode, kind: Kind::File(content.into()) }
    }

    pub(super) fn folder(path: impl Into<String>, mode: u32) -> Entry {
        Entry { path: path.into(), mode, kind: Kind::Folder }
    }

    /// Formats the header in the format of POSIX (ustar).
    fn header(&self, time: u64) -> anyhow::Result<[u8; BLOCK]> {
        let (kind, size, target) = match &self.kind {
            Kind::Folder => (b"5", 0, ""),
            Kind::File(content) => (b"0", content.len(), ""),
            Kind::Link(target) => (b"2", 0, target.as_str()),
        };
        let path = if self.kind == Kind::Folder { format!("{}/", self.path) } else { self.path.clone() };
        let mut header = [0; BLOCK];
        put(&mut header, 0, 100, path.as_bytes())?;
        put(&mut header, 100, 8, format!("{:07o}", self.mode).as_bytes())?;
        put(&mut header, 108, 8, b"0000000")?;
        put(&mut header, 116, 8, b"0000000")?;
        put(&mut header, 124, 12, format!("{size:011o}").as_bytes())?;
        put(&mut header, 136, 12, format!("{time:011o}").as_bytes())?;
        put(&mut header, 148, 8, b"        ")?;
        put(&mut header, 156, 1, kind)?;
        put(&mut header, 157, 100, target.as_bytes())?;
        put(&mut header, 257, 8, b"ustar\x0000")?;
        put(&mut header, 265, 32, b"root")?;
        put(&mut header, 297, 32, b"root")?;
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        put(&mut header, 148, 8, format!("{sum:06o}\0 ").as_bytes())?;
        Ok(header)
    }
}

/// Writes a field of the header.
fn put(header: &mut [u8; BLOCK], start: usize, length: usize, value: &[u8]) -> anyhow::Result<()> {
    let field = header.get_mut(start..start + length).and_then(|field| field.get_mut(..value.len()));
    let field = field.with_context(|| format!("{} does not fit into a tar header", String::from_utf8_lossy(value)))?;
    field.copy_from_slice(value);
    Ok(())
}

/// Returns an archive with the entries and the folders above them, sorted by path.
pub(super) fn tar(entries: &[Entry], time: u64) -> anyhow::Result<Vec<u8>> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        for (end, _) in entry.path.match_indices('/') {
            let folder = entry.path.get(..end).unwrap_or_default();
            sorted.entry(folder.to_owned()).or_insert_with(|| Entry::folder(folder, 0o755));
        }
        sorted.insert(entry.path.clone(), entry.clone());
    }
    let mut archive = Vec::new();
    for entry in sorted.values() {
        archive.extend_from_slice(&entry.header(time)?);
        if let Kind::File(content) = &entry.kind {
            archive.extend_from_slice(content);
            archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        }
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    Ok(archive)
}

/// Returns a compressed archive.
pub(super) fn tar_gz(entries: &[Entry], time: u64) -> anyhow::Result<Vec<u8>> {
    Ok(gzip(&tar(entries, time)?)?)
}

/// Compresses without a time or a file name.
pub(super) fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    writer.write_all(content)?;
    writer.finish()
}

/// Moves entries below a folder.
pub(super) fn below(folder: &str, entries: Vec<Entry>) -> Vec<Entry> {
    entries.into_iter().map(|entry| Entry { path: format!("{folder}/{}", entry.path), ..entry }).collect()
}

/// Reads the entries below a folder of the file system. Modes are normalised, because they depend on the umask.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    read_below(folder, "", &mut entries)?;
    Ok(entries)
}

fn read_below(folder: &Path, prefix: &str, entries: &mut Vec<Entry>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let (entry, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let Some(name) = entry.to_str() else { bail!("{}: the name is not UTF-8", path.display()) };
        let name = format!("{prefix}{name}");
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            let target = fs::read_link(&path)?.to_string_lossy().into_owned();
            entries.push(Entry { path: name, mode: 0o777, kind: Kind::Link(target) });
        } else if metadata.is_dir() {
            entries.push(Entry::folder(&name, normal_mode(&metadata, 0o755)));
            read_below(&path, &format!("{name}/"), entries)?;
        } else {
            entries.push(Entry::file(&name, normal_mode(&metadata, 0o644), fs::read(&path)?));
        }
    }
    Ok(())
}

#[cfg(unix)]
fn normal_mode(metadata: &fs::Metadata, usual: u32) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = metadata.permissions().mode();
    let is_shared = mode & 0o1000 != 0;
    if is_shared {
        0o1777
    } else if mode & 0o100 != 0 {
        0o755
    } else {
        usual
    }
}

#[cfg(not(unix))]
fn normal_mode(_: &fs::Metadata, usual: u32) -> u32 {
    usual
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_entries_does_not_matter_and_folders_are_added() {
        let entries = [Entry::file("b/c", 0o644, "x"), Entry::file("a", 0o755, "")];
        let reversed = [entries[1].clone(), entries[0].clone()];
        let archive = tar(&entries, 1).unwrap();
        assert_eq!(archive, tar(&reversed, 1).unwrap());
        // Three headers, one block of content, two empty blocks.
        assert_eq!(archive.len(), 6 * BLOCK);
        assert_ne!(archive, tar(&entries, 2).unwrap());
    }

    #[test]
    fn a_path_that_does_not_fit_is_an_error() {
        let error = tar(&[Entry::file("a".repeat(101), 0o644, "")], 0).unwrap_err();
        assert!(error.to_string().contains("does not fit"), "{error}");
    }
}
