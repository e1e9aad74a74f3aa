//! State file, from which an agent is restored after a restart.
//!
//! The file is written to a temporary file and renamed, so a reader sees the old state or the new one. An unreadable file is an
//! error with its position, and never an empty state: the agent would release all addresses.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{State, Stored};

/// A state file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state file {path} {message}", path = path.display())]
pub struct StateError {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong, and how to fix it.
    pub message: String,
}

/// The state file of an agent. It is locked while this exists.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Locks and reads the file; the default state if there is none.
    pub(crate) fn open(path: &Path) -> Result<(StateFile, State), StateError> {
        let error = |message: String| StateError { path: path.to_owned(), message };
        let directory = directory(path);
        let hint = "create the directory, and make it writable for the user of the agent";
        std::fs::create_dir_all(directory)
            .map_err(|cause| error(format!("needs the directory {}: {cause}; {hint}", directory.display())))?;
        let lock = File::create(with_suffix(path, "lock"))
            .map_err(|cause| error(format!("cannot be locked: {cause}; {hint}")))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(error("is in use by another agent; stop it, or set another stateFile".to_owned()));
            }
            Err(TryLockError::Error(cause)) => return Err(error(format!("cannot be locked: {cause}"))),
        }
        let state = load(path).map_err(error)?;
        Ok((StateFile { path: path.to_owned(), _lock: lock }, state))
    }

    /// Replaces the content. After an error, the old content stays.
    pub(crate) fn save(&self, state: &State) -> Result<(), StateError> {
        self.replace(&self.path, state)
    }

    /// Keeps a copy of a state that is going to be replaced by that of another agent. Returns its path.
    pub(crate) fn keep(&self, state: &State) -> Result<PathBuf, StateError> {
        let path = with_suffix(&self.path, "discarded");
        self.replace(&path, state)?;
        Ok(path)
    }

    fn replace(&self, path: &Path, state: &State) -> Result<(), StateError> {
        let failed = |error: io::Error| {
            let message = format!("cannot be written: {error}; check the disk and its permissions");
            StateError { path: path.to_owned(), message }
        };
        let text = serde_json::to_vec_pretty(&Stored::from(state)).map_err(|error| failed(error.into()))?;
        replace(path, &text).map_err(failed)
    }
}

fn load(path: &Path) -> Result<State, String> {
    let fix = "restore it from a copy, or move it away to start without any load balancer";
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::default()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    // The error of serde_json ends in "at line 3 column 7".
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| {
        let peers = "with a peer, the agent then copies the state of that";
        format!("is damaged: {error}; {fix} ({peers})")
    })?;
    stored.restore().map_err(|message| format!("{message}; {fix}"))
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, "new");
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    // Otherwise the rename may reach the disk before the data, and a power failure leaves an empty file.
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    // And the rename itself is in the directory.
    File::open(directory(path))?.sync_all()
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Path in the same directory, so that a rename is atomic.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use crate::testing::records::{Random, json_of};

    #[test]
    fn a_state_survives_a_restart() {
        let scratch = Scratch::new();
        let path = scratch.path().join("deep/state.json");
        let (file, empty) = StateFile::open(&path).unwrap();
        assert_eq!(json_of(&empty), json_of(&State::default()));
        let state = Random::new(3).state(100);
        file.save(&state).unwrap();
        let locked = StateFile::open(&path).unwrap_err();
        assert!(locked.message.starts_with("is in use by another agent"), "{locked}");
        drop(file);
        let (_, restored) = StateFile::open(&path).unwrap();
        assert_eq!(json_of(&restored), json_of(&state));
    }

    #[test]
    fn a_damaged_file_is_an_error_with_its_position_and_stays_as_it_is() {
        let scratch = Scratch::new();
        let path = scratch.path().join("state.json");
        let (file, _) = StateFile::open(&path).unwrap();
        file.save(&Random::new(3).state(100)).unwrap();
        drop(file);
        let good = std::fs::read_to_string(&path).unwrap();
        let half = &good[..good.len() / 2];
        let duplicate = good.replacen("ip-0002", "ip-0001", 1);
        let table = [
            ("", "at line 1 column 0"),
            (half, "at line "),
            ("{}", "missing field `format` at line 1"),
            ("\0\0\0", "at line 1 column 1"),
            (&good.replacen("\"format\": 1", "\"format\": 2", 1), "has format 2"),
            (&good.replacen("\"format\"", "\"fmt\"", 1), "unknown field `fmt`"),
            (&duplicate, "duplicate"),
        ];
        for (text, expected) in table {
            std::fs::write(&path, text).unwrap();
            let error = StateFile::open(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("move it away"), "{expected}: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_failed_write_keeps_the_old_content() {
        let scratch = Scratch::new();
        let path = scratch.path().join("state.json");
        let (file, _) = StateFile::open(&path).unwrap();
        file.save(&Random::new(3).state(10)).unwrap();
        let before = std::fs::read(&path).unwrap();
        // A directory at the path of the temporary file makes the write fail, even for root.
        std::fs::create_dir(scratch.path().join("state.json.new")).unwrap();
        let error = file.save(&Random::new(4).state(10)).unwrap_err().to_string();
        assert!(error.contains("cannot be written") && error.contains("check the disk"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
