//! Vagrant's machine index: which machines this user has created, in which folders (CL-1 to CL-8).
//!
//! Vagrant rewrites the file in place, with `index.lock` locked. The reader takes a shared lock without waiting for long, because a
//! long `vagrant up` must not stop the manager; without the lock, text that does not parse is read again. It writes nothing, and
//! does not create the lock file either.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind as IoErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bowline_cloud::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::identity::is_key;
use crate::machine::failure;

/// Attempts to take the lock, or to read text that parses.
const ATTEMPTS: u32 = 10;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum size of the index; a machine takes some 600 bytes.
const MAX_INDEX: u64 = 16 * 1024 * 1024;

/// Maximum size of an `id` file.
const MAX_ID: u64 = 4096;

/// Time after a change in which another change may have the same time stamp.
const SETTLED: Duration = Duration::from_secs(2);

/// Entries by key.
pub(super) type Entries = BTreeMap<String, Entry>;

/// Contents of the index.
#[derive(Deserialize)]
struct Contents {
    machines: Entries,
}

/// An entry of the index. Vagrant's state is only a cache, so it is not read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) provider: String,
    pub(super) local_data_path: PathBuf,
    pub(super) vagrantfile_path: Option<PathBuf>,
}

/// An index file, with its contents as of the last read.
pub(super) struct Index {
    home: PathBuf,
    last: Mutex<Option<Last>>,
}

struct Last {
    stamp: Stamp,
    entries: Arc<Entries>,
}

/// Properties of a file that change with its contents.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    size: u64,
    inode: u64,
    /// Whether the file is old enough that a later change has another time.
    is_settled: bool,
}

impl Index {
    pub(super) fn new(home: PathBuf) -> Index {
        Index { home, last: Mutex::default() }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.home.join("data/machine-index/index")
    }

    /// Returns all entries. Reads the file only if it has changed. Blocks the thread.
    pub(super) fn entries(&self) -> Result<Arc<Entries>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = match self.path().metadata() {
            Ok(metadata) => Stamp::of(&metadata),
            Err(error) if error.kind() == IoErrorKind::NotFound => return self.missing(last.is_some()),
            Err(error) => return Err(unreadable(&self.path(), &error)),
        };
        if let Some(last) = last.as_ref().filter(|last| stamp.is_settled && last.stamp == stamp) {
            return Ok(last.entries.clone());
        }
        let entries = Arc::new(self.read()?);
        *last = Some(Last { stamp, entries: entries.clone() });
        Ok(entries)
    }

    /// Returns no entries if Vagrant has not created a machine yet. A folder that Vagrant has not set up, such as the empty mount
    /// point of a volume, proves nothing, and neither does a file that has disappeared.
    fn missing(&self, was_there: bool) -> Result<Arc<Entries>> {
        let (home, path) = (self.home.display(), self.path());
        let message = match (self.home.join("data").is_dir(), was_there) {
            (true, false) => return Ok(Arc::default()),
            (true, true) => format!("{} has disappeared; fix: restore it from a backup", path.display()),
            (false, _) => format!("{home} is not a Vagrant home (it has no folder data); fix: set vagrantHome"),
        };
        Err(failure(ErrorKind::Unavailable, message))
    }

    fn read(&self) -> Result<Entries> {
        let mut outcome = self.attempt();
        for _ in 1..ATTEMPTS {
            if !outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unexpected) {
                break;
            }
            std::thread::sleep(PAUSE);
            outcome = self.attempt();
        }
        outcome
    }

    fn attempt(&self) -> Result<Entries> {
        let path = self.path();
        let _lock = lock(&path.with_extension("lock"));
        parse(&path, &read(&path, MAX_INDEX).map_err(|error| unreadable(&path, &error))?)
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_settled = SystemTime::now().duration_since(modified).is_ok_and(|age| age > SETTLED);
        Stamp { modified, size: metadata.len(), inode: inode(metadata), is_settled }
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

/// Takes the lock if it is free within a short time. The read goes on without it: text that is half written does not parse.
fn lock(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    for _ in 0..ATTEMPTS {
        match file.try_lock_shared() {
            Ok(()) => return Some(file),
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(std::fs::TryLockError::Error(_)) => return None,
        }
    }
    None
}

fn parse(path: &Path, text: &str) -> Result<Entries> {
    let corrupt = |reason: String| {
        let fix = "run vagrant global-status, which names the error";
        failure(ErrorKind::Unexpected, format!("{} is corrupt: {reason}; fix: {fix}", path.display()))
    };
    let contents: serde_json::Value = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
    let version = contents.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(1) {
        return Err(corrupt(format!("it has the version {version:?}, and Bowline knows version 1")));
    }
    let Contents { machines } = Contents::deserialize(contents).map_err(|error| corrupt(error.to_string()))?;
    match machines
        .iter()
        .find(|(key, entry)| !is_key(key) || !is_component(&entry.name) || !is_component(&entry.provider))
    {
        Some((key, entry)) => Err(corrupt(format!("the entry {key:?} of {:?} is invalid", entry.name))),
        None => Ok(machines.into_iter().map(|(key, entry)| (key.to_ascii_lowercase(), entry)).collect()),
    }
}

/// Returns whether the text can be the name of a file.
fn is_component(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\\', '\0'])
}

impl Entry {
    /// Returns the path of the file with the provider's own ID.
    pub(super) fn id_path(&self) -> PathBuf {
        self.local_data_path.join("machines").join(&self.name).join(&self.provider).join("id")
    }

    /// Reads the provider's own ID; `None` if the machine is not created. Blocks the thread.
    pub(super) fn read_id(&self) -> Result<Option<String>> {
        let path = self.id_path();
        match read(&path, MAX_ID) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|id| !id.is_empty())),
            Err(error) if matches!(error.kind(), IoErrorKind::NotFound | IoErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }
}

fn read(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if length as u64 > limit { Err(io::Error::other(format!("larger than {limit} bytes"))) } else { Ok(text) }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    let (kind, fix) = match error.kind() {
        IoErrorKind::PermissionDenied => (ErrorKind::PermissionDenied, "run Bowline as the user that runs Vagrant"),
        IoErrorKind::InvalidData => (ErrorKind::Unexpected, "run vagrant global-status, which names the error"),
        _ => (ErrorKind::Unavailable, "check vagrantHome, and that its disk is mounted"),
    };
    failure(kind, format!("{} cannot be read: {error}; fix: {fix}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn entry(more: &str) -> String {
        format!(
            r#"{{"version":1,"machines":{{"{KEY}":{{"local_data_path":"/p/.vagrant","name":"node-c2-1","provider":"virtualbox",
                "state":"running","vagrantfile_name":null,"vagrantfile_path":"/p","updated_at":null,"extra_data":{{}}{more}}}}}}}"#
        )
    }

    fn parsed(text: &str) -> Result<Entries> {
        parse(Path::new("index"), text)
    }

    // CL-3
    #[test]
    fn unknown_keys_are_ignored() {
        let entries = parsed(
            &entry(r#","architecture":"amd64","vagrantfile_name":["a","b"]"#)
                .replace(r#""vagrantfile_name":null,"#, ""),
        )
        .unwrap();
        let expected = Entry {
            name: "node-c2-1".to_owned(),
            provider: "virtualbox".to_owned(),
            local_data_path: "/p/.vagrant".into(),
            vagrantfile_path: Some("/p".into()),
        };
        assert_eq!(entries, Entries::from([(KEY.to_owned(), expected)]));
        assert_eq!(entries[KEY].id_path(), Path::new("/p/.vagrant/machines/node-c2-1/virtualbox/id"));
        assert_eq!(parsed(r#"{"version":1,"machines":{}}"#).unwrap().len(), 0);
    }

    // CL-4, CL-5: never "no machines".
    #[test]
    fn another_version_and_broken_text_are_errors() {
        let good = entry("");
        let cases = [
            "",
            "{}",
            "[]",
            "null",
            r#"{"version":1}"#,
            r#"{"version":2,"machines":{}}"#,
            r#"{"version":"1","machines":{}}"#,
            r#"{"machines":{}}"#,
            r#"{"version":1,"machines":null}"#,
            r#"{"version":1,"machines":{"x":{}}}"#,
            &good[..good.len() / 2],
            &good.replace("node-c2-1", "../../etc"),
            &good.replace("node-c2-1", ""),
            &good.replace(KEY, "key"),
        ]
        .map(str::to_owned);
        for text in cases {
            let error = parsed(&text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unexpected, "{text}");
            assert!(error.to_string().contains("corrupt"), "{error}");
        }
    }
}
