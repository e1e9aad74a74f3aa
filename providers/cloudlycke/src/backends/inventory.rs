//! Machines of a YAML file, for hosts that no other backend can read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind as IoErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bowline_cloud::{Call, Calls, Effect, Error, ErrorKind, Result};
use bowline_config::ConfigFile;
use serde::Deserialize;

use super::{Backend, Machine, Standing};
use crate::identity::{Names, normalized};
use crate::machine::{Candidate, Details, failure};

/// A file with machines.
pub(crate) struct Inventory {
    path: PathBuf,
    calls: Calls,
}

/// A read of the file, in the call layer.
const READ: Call = Call { service: "inventory", name: "read_inventory", effect: Effect::Read, limited: false };

/// Contents of the file. The list is required: an empty file describes no machine, and proves none gone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    machines: Vec<Entry>,
}

/// A machine in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    /// Name of the Node.
    name: String,
    /// ID, without the prefix. Default: the convention of the demonstration, or the name.
    id: Option<String>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    external_addresses: Vec<IpAddr>,
    cpus: Option<u64>,
    #[serde(rename = "memoryMiB")]
    memory_mib: Option<u64>,
    instance_type: Option<String>,
    zone: Option<String>,
    region: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default = "running")]
    state: String,
}

fn running() -> String {
    "running".to_owned()
}

impl Inventory {
    pub(crate) fn new(path: PathBuf, calls: &Calls) -> Inventory {
        Inventory { path, calls: calls.clone() }
    }

    /// Reads the file on a thread for blocking work.
    async fn read(&self) -> Result<Vec<Entry>> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        read.map_err(|error| failure(ErrorKind::Unexpected, format!("the reading task failed: {error}")))?
    }
}

#[async_trait]
impl Backend for Inventory {
    async fn survey(&self) -> Result<Vec<Machine>> {
        let machine = |mut entry: Entry| {
            let (name, configured) = (std::mem::take(&mut entry.name), entry.id.take());
            let names = Names { name, configured, ..Names::default() };
            Machine { names, standing: Standing::Listed { running: true }, details: Some(details(entry)) }
        };
        Ok(self.calls.make(READ, || self.read()).await?.into_iter().map(machine).collect())
    }

    async fn about(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![("inventory", self.path.display().to_string())])
    }
}

fn read(path: &Path) -> Result<Vec<Entry>> {
    let file = ConfigFile::read(path).map_err(|error| {
        let is_denied = std::fs::File::open(path).is_err_and(|error| error.kind() == IoErrorKind::PermissionDenied);
        failure(if is_denied { ErrorKind::PermissionDenied } else { ErrorKind::Unavailable }, error.to_string())
    })?;
    let contents: Contents = file.yaml().map_err(|errors| failure(ErrorKind::Unexpected, errors.to_string()))?;
    validate(path, &contents.machines)?;
    Ok(contents.machines)
}

/// Rejects a list that proves nothing, and IDs that mean two machines. Two machines may have one name: a lookup of it fails.
fn validate(path: &Path, machines: &[Entry]) -> Result<()> {
    let path = path.display();
    if machines.is_empty() {
        let message = format!("{path} lists no machine at all, which does not prove that any is gone");
        return Err(failure(ErrorKind::Unexpected, message));
    }
    let mut ids = BTreeSet::new();
    for machine in machines {
        let invalid = |message: &str| invalid(&path, &machine.name, message);
        if machine.name.is_empty() || machine.id.as_ref().is_some_and(|id| normalized(id).is_none()) {
            return Err(invalid("name and id need at least one character, without blanks and /"));
        }
        if machine.id.as_ref().is_some_and(|id| !ids.insert(id)) {
            return Err(invalid("another machine has the same id"));
        }
        if machine.cpus.is_some() != machine.memory_mib.is_some() {
            return Err(invalid("write cpus and memoryMiB, or none of them"));
        }
    }
    Ok(())
}

fn invalid(path: &impl std::fmt::Display, name: &str, message: &str) -> Error {
    failure(ErrorKind::Unexpected, format!("{path}: machine {name:?}: {message}"))
}

fn details(entry: Entry) -> Details {
    let addresses = entry.addresses.into_iter().map(|address| Candidate { address, is_default: true });
    Details {
        state: entry.state,
        memory_mib: entry.memory_mib,
        cpus: entry.cpus,
        addresses: addresses.collect(),
        external: entry.external_addresses,
        zone: entry.zone,
        region: entry.region,
        instance_type: entry.instance_type,
        labels: entry.labels,
    }
}
