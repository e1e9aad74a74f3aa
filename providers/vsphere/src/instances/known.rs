//! References of machines, from listings and searches. A reference is only a shortcut: the machine is read each time, and its UUID
//! compared.
//!
//! A reference that was used is kept although a listing does not show its machine: the machine may have moved to a place that is not
//! listed. It is removed when a read says that the machine is deleted or has another UUID, or when no one has asked for it for a day.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::MachineUuid;
use crate::soap::ManagedObject;

/// Time for which a reference that is not listed is kept after its last use. The machine of a Node is looked up every few minutes.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// References by UUID.
#[derive(Debug, Default)]
pub(crate) struct KnownMachines(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// References of each UUID, and their last use. There are several if machines share it.
    by_uuid: HashMap<String, HashMap<Reference, Option<Instant>>>,
    /// Number of machines in the last listing of each vCenter.
    listed: HashMap<usize, usize>,
}

/// Where a machine was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reference {
    /// Index of the vCenter.
    pub vcenter: usize,
    pub object: ManagedObject,
}

impl KnownMachines {
    /// Returns the references of a UUID, which are used now.
    pub(super) fn get(&self, uuid: &MachineUuid) -> Vec<Reference> {
        let (mut known, now) = (self.lock(), Some(Instant::now()));
        let references = known.by_uuid.get_mut(uuid.key()).into_iter().flatten();
        references.map(|(reference, used)| (reference.clone(), *used = now).0).collect()
    }

    /// Adds a reference that is used now.
    pub(super) fn insert(&self, uuid: &MachineUuid, reference: Reference) {
        self.lock().by_uuid.entry(uuid.key().to_owned()).or_default().insert(reference, Some(Instant::now()));
    }

    pub(super) fn remove(&self, uuid: &MachineUuid, reference: &Reference) {
        let mut known = self.lock();
        if let Some(references) = known.by_uuid.get_mut(uuid.key()) {
            references.remove(reference);
            if references.is_empty() {
                known.by_uuid.remove(uuid.key());
            }
        }
    }

    /// Adds the references of a listing. Removes others into this vCenter that are not in use.
    pub(super) fn merge(&self, vcenter: usize, listed: impl IntoIterator<Item = (MachineUuid, ManagedObject)>) {
        let listed = listed.into_iter().map(|(uuid, object)| (uuid.key().to_owned(), Reference { vcenter, object }));
        let listed: HashSet<_> = listed.collect();
        let (mut known, now) = (self.lock(), Instant::now());
        known.listed.insert(vcenter, listed.len());
        let is_used = |used: &Option<Instant>| used.is_some_and(|used| now.duration_since(used) < KEPT);
        known.by_uuid.retain(|_, references| {
            references.retain(|reference, used| reference.vcenter != vcenter || is_used(used));
            !references.is_empty()
        });
        for (uuid, reference) in listed {
            known.by_uuid.entry(uuid).or_default().entry(reference).or_default();
        }
    }

    /// Returns the number of machines in the last listing of a vCenter; `None` if it was never listed.
    pub(super) fn count(&self, vcenter: usize) -> Option<usize> {
        self.lock().listed.get(&vcenter).copied()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn references_that_no_one_uses_are_removed_with_the_next_listing() {
        let known = KnownMachines::default();
        let uuid = |last: u8| MachineUuid::parse(&format!("00000000-0000-0000-0000-0000000000{last:02}")).unwrap();
        let all = (0..50).map(|number| (uuid(number), ManagedObject::new("VirtualMachine", &format!("vm-{number}"))));
        known.merge(0, all.clone());
        known.merge(1, [(uuid(1), ManagedObject::new("VirtualMachine", "vm-1"))]);
        assert_eq!((known.get(&uuid(7)).len(), known.get(&uuid(1)).len(), known.count(0)), (1, 2, Some(50)));
        known.merge(0, all.clone().take(1));
        let references = || known.lock().by_uuid.values().map(HashMap::len).sum::<usize>();
        assert_eq!(references(), 4, "listed: 0, in the other vCenter: 1, in use: 1 and 7");
        known.remove(&uuid(7), &known.get(&uuid(7))[0]);
        assert_eq!(references(), 3);
        tokio::time::advance(KEPT).await;
        known.merge(0, all.take(1));
        assert_eq!((references(), known.count(0)), (2, Some(1)));
    }
}
