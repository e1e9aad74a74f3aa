//! Lookup of machines in all vCenters at once.
//!
//! ```text
//!  wanted ──► references from the last listing: read ──► the same UUID: found
//!     │ others
//!     ├─ few: search index ──────────► hits: read
//!     ▼ not found, many, or no listing so far
//!  listings of all datacenters ──────► hits
//!     ▼ not found, and named after an address
//!  search index ─────────────────────► hits: read │ nowhere, and nothing doubtful: gone
//! ```
//!
//! The search index may be behind the inventory, so only listings prove that a machine is gone. Hits of all vCenters are compared:
//! two machines that match equally well are an error, and so is one by its name while the vCenter that may know its UUID is down.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::hits::{Hit, Lookup};
use super::known::Reference;
use super::wanted::Wanted;
use super::{FIND, MachineUuid};
use crate::Vsphere;
use crate::soap::ManagedObject;
use crate::vcenter::{Machine, Reading, Tree, Vcenter};

/// Time limit of a lookup in one vCenter, for up to a thousand machines.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Time for which other vCenters are waited for when every machine was found.
const GRACE: Duration = Duration::from_secs(1);

/// Returns the time limit of a lookup of this many machines in one vCenter.
pub(crate) fn time_limit(machines: usize) -> Duration {
    let thousands = u32::try_from(machines / 1000).unwrap_or(u32::MAX);
    TIME_LIMIT.saturating_add(Duration::from_secs(10).saturating_mul(thousands))
}

/// A machine that was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Index of its vCenter.
    pub vcenter: usize,
    pub machine: Machine,
    /// Its ancestors, if zones depend on them.
    pub tree: Arc<Tree>,
}

// ---- lookup

impl Vsphere {
    /// Finds machines; `None` for one that certainly does not exist.
    pub(super) async fn search(&self, wanted: &[Wanted]) -> Vec<Result<Option<Found>>> {
        let lookups = wanted.iter().map(Lookup::new).collect();
        let mut search = Search { lookups, down: vec![None; self.vcenters.len()] };
        self.read_known(&mut search).await;
        self.search_index(&mut search).await;
        self.search_listings(&mut search).await;
        self.search_addresses(&mut search).await;
        search.lookups.iter().for_each(|lookup| self.remember(lookup));
        let identity = |hit: &Hit| self.identity(&hit.reference());
        search.lookups.into_iter().map(|lookup| lookup.finish(identity)).collect()
    }

    fn remember(&self, lookup: &Lookup<'_>) {
        if let Some(uuid) = lookup.wanted.uuid() {
            lookup.stale.iter().for_each(|reference| self.known.remove(uuid, reference));
        }
        if let Some(hit) = lookup.only_hit()
            && let Some(uuid) = MachineUuid::parse(&hit.found.machine.uuid)
        {
            self.known.insert(&uuid, hit.reference());
        }
    }

    /// Returns server and object: two entries of the configuration may mean the same vCenter.
    fn identity(&self, reference: &Reference) -> (String, ManagedObject) {
        let server = self.vcenters.get(reference.vcenter).map(Vcenter::identity).unwrap_or_default();
        (server, reference.object.clone())
    }

    /// Makes reads in several vCenters at once, and passes each outcome to `add` as it arrives. A vCenter that does not answer
    /// delays the others only while machines are missing.
    pub(super) async fn in_parallel<'a, T>(
        &self,
        search: &mut Search<'a>,
        reads: impl IntoIterator<Item = impl Future<Output = (usize, Result<T>)>>,
        mut add: impl FnMut(&mut Search<'a>, usize, Result<T>),
    ) {
        let mut reads: FuturesUnordered<_> = reads.into_iter().collect();
        let mut deadline = None;
        loop {
            let next = match deadline {
                Some(deadline) => timeout_at(deadline, reads.next()).await.unwrap_or_default(),
                None => reads.next().await,
            };
            let Some((vcenter, outcome)) = next else { return };
            if let (Err(error), Some(down)) = (&outcome, search.down.get_mut(vcenter))
                && !is_of_one_object(error)
            {
                *down = Some(error.clone());
            }
            add(search, vcenter, outcome);
            if deadline.is_none() && !search.lookups.iter().any(Lookup::is_open) {
                deadline = Some(Instant::now() + GRACE);
            }
        }
    }

    /// Returns the vCenters that have not failed during this search, with their indexes.
    pub(super) fn working(&self, search: &Search<'_>) -> Vec<(usize, &Vcenter)> {
        let vcenters = self.vcenters.iter().zip(&search.down).enumerate();
        vcenters.filter(|(_, (_, down))| down.is_none()).map(|(index, (vcenter, _))| (index, vcenter)).collect()
    }
}

/// Returns whether an error is about one object, so that the vCenter can answer other calls.
fn is_of_one_object(error: &Error) -> bool {
    let is_of_vcenter = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unauthenticated);
    !is_of_vcenter && error.context_value("object").is_some()
}

/// A lookup of several machines.
pub(super) struct Search<'a> {
    pub lookups: Vec<Lookup<'a>>,
    /// Failure of each vCenter that does not answer. It is not called again during this search.
    pub down: Vec<Option<Error>>,
}

impl<'a> Search<'a> {
    /// Returns the machines that are still to be found, with their positions.
    pub(super) fn open(&self) -> Vec<(usize, &'a Wanted)> {
        let open = self.lookups.iter().enumerate().filter(|(_, lookup)| lookup.is_open());
        open.map(|(position, lookup)| (position, lookup.wanted)).collect()
    }

    pub(super) fn change(&mut self, position: usize, change: impl FnOnce(&mut Lookup<'a>)) {
        if let Some(lookup) = self.lookups.get_mut(position) {
            change(lookup);
        }
    }
}

// ---- known references

impl Vsphere {
    /// Reads machines that were found before.
    async fn read_known(&self, search: &mut Search<'_>) {
        let mut references = BTreeMap::<usize, Vec<(usize, ManagedObject)>>::new();
        for (position, lookup) in search.lookups.iter().enumerate() {
            let known = lookup.wanted.uuid().map(|uuid| self.known.get(uuid));
            for Reference { vcenter, object } in known.unwrap_or_default() {
                references.entry(vcenter).or_default().push((position, object));
            }
        }
        let reads = references.iter().map(async |(vcenter, wanted)| {
            let objects: Vec<_> = wanted.iter().map(|(_, object)| object.clone()).collect();
            (*vcenter, self.read(*vcenter, &objects).await)
        });
        self.in_parallel(search, reads, |search, vcenter, outcome| {
            for (position, object) in references.get(&vcenter).into_iter().flatten() {
                search.change(*position, |lookup| match &outcome {
                    Ok(read) => lookup.add_known(object, vcenter, read),
                    Err(error) => lookup.fail(error.clone()),
                });
            }
        })
        .await;
    }

    /// Reads objects of one vCenter.
    pub(super) async fn read(&self, index: usize, objects: &[ManagedObject]) -> Result<Read> {
        self.read_with(index, objects, self.config.zone_categories.is_some()).await
    }

    /// Does the same, with or without their ancestors.
    pub(super) async fn read_with(
        &self,
        index: usize,
        objects: &[ManagedObject],
        with_ancestors: bool,
    ) -> Result<Read> {
        let missing = || Error::new(ErrorKind::Unexpected, FIND, "vCenter not found");
        let vcenter = self.vcenters.get(index).ok_or_else(missing)?;
        let reads = vcenter.read(objects, with_ancestors);
        let readings = vcenter.guarded(time_limit(objects.len()), vcenter.metrics.operation("read", reads)).await?;
        Ok(Read { tree: Arc::new(readings.tree), machines: readings.machines })
    }
}

/// Machines that were read.
pub(super) struct Read {
    pub tree: Arc<Tree>,
    pub machines: HashMap<ManagedObject, Reading>,
}

impl Read {
    /// Returns a machine that could be read.
    pub(super) fn machine(&self, object: &ManagedObject) -> Option<&Machine> {
        match self.machines.get(object)? {
            Reading::Read(machine) => Some(machine),
            _ => None,
        }
    }
}
