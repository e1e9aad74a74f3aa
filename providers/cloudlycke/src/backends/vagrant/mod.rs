//! Machines of Vagrant: its index and `id` files, and the hypervisor of the machines (CL-1 to CL-12).
//!
//! Vagrant is never started. Any command that loads a machine removes its records if the hypervisor does not know it at that moment.
//!
//! A machine exists if it is in the index, its `id` file has an ID, and the hypervisor knows that ID. It is gone if the index has no
//! such machine, or the hypervisor reports that it does not exist. Everything else is an error.

mod index;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result};

use self::index::{Entry, Index};
use super::{Backend, Machine, Standing};
use crate::hypervisors::{Cached, Hypervisor, Roster};
use crate::identity::Names;
use crate::machine::{Details, failure, named};

/// Machines of a Vagrant home.
pub(crate) struct Vagrant {
    index: Arc<Index>,
    /// Folder of the project; `None` for all.
    project: Option<PathBuf>,
    /// Name of the provider in Vagrant.
    provider: String,
    cached: Cached,
    /// Names of machines whose addresses are in the configuration.
    addressed: Vec<String>,
}

/// An entry of the index with its `id` file.
struct Read {
    key: String,
    entry: Entry,
    id: Result<Option<String>>,
}

impl Vagrant {
    pub(crate) fn new(
        home: PathBuf,
        project: Option<PathBuf>,
        provider: &str,
        hypervisor: Arc<dyn Hypervisor>,
        addressed: Vec<String>,
    ) -> Vagrant {
        let (index, cached) = (Arc::new(Index::new(home)), Cached::new(hypervisor));
        Vagrant { index, project, provider: provider.to_owned(), cached, addressed }
    }

    /// Reads the index and the `id` files on a thread for blocking work.
    async fn read(&self) -> Result<Vec<Read>> {
        let index = self.index.clone();
        let read = move || -> Result<Vec<Read>> {
            let entries = index.entries()?;
            let read =
                |(key, entry): (&String, &Entry)| Read { id: entry.read_id(), key: key.clone(), entry: entry.clone() };
            Ok(entries.iter().map(read).collect())
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| failure(ErrorKind::Unexpected, format!("the reading task failed: {error}")))?
    }

    fn machine(&self, read: Read, roster: &Roster) -> Machine {
        let Read { key, entry, id } = read;
        let own = id.as_ref().ok().cloned().flatten().map(|id| id.to_ascii_lowercase());
        let names = Names { name: entry.name.clone(), configured: None, key: Some(key), own: own.clone() };
        let standing = match (self.outside(&entry, &names), id, own) {
            (Some(error), ..) | (None, Err(error), _) => Standing::Unclear(error),
            (None, Ok(_), None) => Standing::Unclear(not_created(&entry, &names)),
            (None, Ok(_), Some(id)) if !self.cached.hypervisor.is_id(&id) => {
                Standing::Unclear(invalid_id(&entry, &names))
            }
            (None, Ok(_), Some(id)) => match roster.machines.get(&id) {
                Some(listed) => Standing::Listed { running: listed.running },
                None => Standing::Unlisted,
            },
        };
        Machine { names, standing, details: None }
    }

    /// Returns the error for a machine of another project or provider: it exists, and it is not one of these.
    fn outside(&self, entry: &Entry, names: &Names) -> Option<Error> {
        let machine = named(names);
        let message = match &self.project {
            Some(project) if entry.vagrantfile_path.as_ref() != Some(project) => {
                let other = entry.vagrantfile_path.clone().unwrap_or_default();
                format!("{machine} belongs to the project {}; fix: set project, or leave it out", other.display())
            }
            _ if entry.provider != self.provider => {
                format!("{machine} is one of the provider {}; fix: set provider", entry.provider)
            }
            _ => return None,
        };
        Some(failure(ErrorKind::InvalidConfig, message))
    }
}

#[async_trait]
impl Backend for Vagrant {
    async fn survey(&self) -> Result<Vec<Machine>> {
        let read = self.read().await?;
        let is_own = |read: &&Read| read.entry.provider == self.provider && matches!(read.id, Ok(Some(_)));
        let created = read.iter().filter(is_own).count();
        let roster = self.cached.hypervisor.roster().await?;
        if created > 0 && roster.machines.is_empty() {
            return Err(knows_nothing(&self.provider, created));
        }
        let machines: Vec<_> = read.into_iter().map(|read| self.machine(read, &roster)).collect();
        self.cached.retain(|id| machines.iter().any(|machine| machine.names.own.as_deref() == Some(id)));
        Ok(machines)
    }

    async fn describe(&self, machine: &Machine) -> Result<Option<Details>> {
        let Some(id) = machine.names.own.as_deref() else { return Ok(None) };
        let Standing::Listed { running } = machine.standing else { return self.cached.confirm(id).await };
        self.cached.describe(id, running, !self.addressed.contains(&machine.names.name)).await
    }

    fn is_new(&self, machine: &Machine) -> bool {
        machine.names.own.as_deref().is_some_and(|id| self.cached.is_new(id))
    }

    async fn about(&self) -> Result<Vec<(&'static str, String)>> {
        let version = self.cached.hypervisor.version().await?;
        Ok(vec![("index", self.index.path().display().to_string()), ("hypervisor", version)])
    }
}

/// Error if the hypervisor lists no machine at all: it is about to start, or has another user's machines.
fn knows_nothing(provider: &str, created: usize) -> Error {
    let message = format!(
        "{provider} lists no machine at all, and {created} of Vagrant's machines have an ID; fix: wait until it has started, \
         and run Bowline as the user that owns the machines"
    );
    failure(ErrorKind::Unexpected, message)
}

fn not_created(entry: &Entry, names: &Names) -> Error {
    let message = format!(
        "{} is in Vagrant's index and not created: {} is missing or empty; fix: vagrant up, or vagrant global-status --prune",
        named(names),
        entry.id_path().display()
    );
    failure(ErrorKind::Unavailable, message)
}

fn invalid_id(entry: &Entry, names: &Names) -> Error {
    let message = format!("{}: {} does not contain a valid ID", named(names), entry.id_path().display());
    failure(ErrorKind::Unexpected, message)
}
