//! The file in which a cloud survives a restart.
//!
//! It is written whole, beside the old one, and then put in its place: a reader sees the old state or the new one. What
//! cannot be read is an error that says where; it is never taken for a cloud without machines.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cloud::{CloudError, Machine};
use crate::fleet::Fleet;

/// The form that this program writes and reads.
const VERSION: u32 = 1;

/// Counting from higher than this would run out of numbers.
const HIGHEST: u64 = u64::MAX / 2;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Snapshot<M> {
    version: u32,
    last_id: u64,
    machines: Vec<M>,
}

/// The machines in the file; none if there is no file yet.
pub(crate) fn load(path: &Path) -> Result<Fleet, CloudError> {
    let broken = |message: String| CloudError::Snapshot(path.to_owned(), message);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Fleet::default()),
        Err(error) => return Err(broken(format!("cannot be read: {error}"))),
    };
    let snapshot = parse(&bytes).map_err(broken)?;
    Fleet::restore(snapshot.machines, snapshot.last_id).map_err(|error| broken(format!("is broken: {error}")))
}

fn parse(bytes: &[u8]) -> Result<Snapshot<Machine>, String> {
    // The error of serde_json ends in "at line 3 column 7".
    let snapshot: Snapshot<Machine> =
        serde_json::from_slice(bytes).map_err(|error| format!("is broken: {error}; mend it, or move it away"))?;
    if snapshot.version != VERSION {
        return Err(format!("has version {}, and this program reads version {VERSION}", snapshot.version));
    }
    if snapshot.last_id > HIGHEST {
        return Err(format!("is broken: lastId {} is too high", snapshot.last_id));
    }
    Ok(snapshot)
}

/// Puts these machines in the file.
pub(crate) fn save(path: &Path, fleet: &Fleet) -> Result<(), CloudError> {
    let failed = |error: std::io::Error| CloudError::Snapshot(path.to_owned(), format!("cannot be written: {error}"));
    let machines = fleet.iter().map(|machine| &**machine).collect();
    let snapshot = Snapshot::<&Machine> { version: VERSION, last_id: fleet.last(), machines };
    let text = serde_json::to_vec_pretty(&snapshot).map_err(|error| failed(error.into()))?;
    replace(path, &text).map_err(failed)
}

fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let beside = beside(path);
    let mut file = File::create(&beside)?;
    file.write_all(text)?;
    // Without this the new name may reach the disk before the bytes do, and a power cut leaves an empty file.
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// In the same directory, because only there renaming replaces.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}
