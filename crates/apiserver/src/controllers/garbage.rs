//! Garbage collection by owner references.
//!
//! * Background: once an owner is deleted, dependents without another existing owner are deleted; the reference is removed
//!   from the remaining dependents.
//! * Foreground (finalizer `foregroundDeletion` on an owner being deleted): dependents without another existing owner are
//!   deleted first, then the finalizer is removed; the remaining dependents lose the reference.
//! * Orphan (finalizer `orphan` on an owner being deleted): the reference is removed from dependents, then the finalizer
//!   from the owner.
//!
//! Owners of unknown kinds, and namespaced owners of cluster-scoped objects, count as existing. Owner references of Events
//! are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::Writer;
use crate::resources::{self, Resource};
use crate::store::{Change, Key, Stored, Verb};
use crate::value::Json;
use crate::verbs::{DeleteOptions, update_object};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type ObjectKey = (&'static str, Key);

/// Index of owners and dependents.
#[derive(Default)]
pub(super) struct Garbage {
    /// UID of an owner → keys of its dependents.
    dependents: HashMap<Box<str>, BTreeSet<ObjectKey>>,
    /// Dependents whose owners have to be checked.
    unchecked: BTreeSet<ObjectKey>,
    /// Objects being deleted with the finalizer `foregroundDeletion` or `orphan`.
    waiting: BTreeMap<ObjectKey, Box<str>>,
}

impl Garbage {
    pub(super) fn on_change(&mut self, resource: &'static Resource, change: &Change) {
        if resource.storage == "events" {
            return;
        }
        let key = (resource.storage, change.object.key.clone());
        if let Some(previous) = &change.previous {
            self.remove_dependent(&key, previous);
        }
        if change.verb == Verb::Deleted {
            self.unchecked.extend(self.dependents.get(&change.object.uid).into_iter().flatten().cloned());
            self.waiting.remove(&key);
            return;
        }
        for owner in &change.object.owners {
            self.dependents.entry(owner.clone()).or_default().insert(key.clone());
        }
        if !change.object.owners.is_empty() {
            self.unchecked.insert(key.clone());
        }
        match has_gc_finalizer(&change.object) {
            true => self.waiting.insert(key, change.object.uid.clone()),
            false => self.waiting.remove(&key),
        };
    }

    fn remove_dependent(&mut self, key: &ObjectKey, object: &Stored) {
        for owner in &object.owners {
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    pub(super) fn reconcile(&mut self, writer: &Writer) {
        for key in std::mem::take(&mut self.unchecked) {
            collect(writer, &key);
        }
        for (key, uid) in &self.waiting {
            self.advance_deletion(writer, key, uid);
        }
    }

    /// Advances a foreground or orphan deletion.
    fn advance_deletion(&self, writer: &Writer, key: &ObjectKey, uid: &str) {
        let Some((resource, stored)) = find(writer, key).filter(|(_, s)| *s.uid == *uid) else { return };
        let value = stored.value();
        let dependents = self.dependents.get(uid);
        let present = || dependents.into_iter().flatten().filter_map(|key| find(writer, key));
        let blocked = match has_finalizer(&value, ORPHAN) {
            true => {
                present().for_each(|(resource, dependent)| remove_owner(writer, resource, &dependent, uid));
                // A conflicting write leaves a reference; removing the finalizer now would make that dependent garbage.
                present().any(|(_, dependent)| dependent.owners.iter().any(|owner| **owner == *uid))
            }
            false => {
                present()
                    .for_each(|(resource, dependent)| self.delete_or_remove_owner(writer, resource, &dependent, uid));
                present().any(|(_, dependent)| {
                    blocks_owner(&dependent, uid) && !self.depends_on(writer, uid, &dependent.uid)
                })
            }
        };
        if !blocked {
            remove_finalizers(writer, resource, &stored, &value);
        }
    }

    /// Whether object `uid` is object `on` or depends on it, directly or indirectly: the two would wait for each other.
    fn depends_on(&self, writer: &Writer, uid: &str, on: &str) -> bool {
        let mut visited: BTreeSet<Box<str>> = BTreeSet::new();
        let mut open: Vec<Box<str>> = vec![on.into()];
        while let Some(next) = open.pop() {
            if *next == *uid {
                return true;
            }
            let below = self.dependents.get(&next).into_iter().flatten();
            let below = below.filter_map(|key| find(writer, key)).map(|(_, stored)| stored.uid.clone());
            open.extend(below.filter(|uid| !visited.contains(uid)));
            visited.insert(next);
        }
        false
    }

    /// Deletes a dependent of an owner in foreground deletion, or removes the reference if it has another existing owner.
    fn delete_or_remove_owner(&self, writer: &Writer, resource: &'static Resource, dependent: &Arc<Stored>, uid: &str) {
        let value = dependent.value();
        let remains =
            |r: &Value| r.text("uid") != uid && owner_state(writer, r, &dependent.key.namespace) == OwnerState::Exists;
        if value.list("metadata.ownerReferences").iter().any(remains) {
            remove_owner(writer, resource, dependent, uid);
            return;
        }
        let policy = self.dependents.contains_key(&dependent.uid).then_some(crate::verbs::Propagation::Foreground);
        let options = DeleteOptions { policy, uid: Some(dependent.uid.to_string()), ..DeleteOptions::default() };
        // If the deletion fails, the owner keeps waiting and the next sync retries.
        let _ = writer.delete(resource, dependent, &options);
    }
}

fn has_gc_finalizer(object: &Stored) -> bool {
    if !object.deleting {
        return false;
    }
    let value = object.value();
    [FOREGROUND, ORPHAN].iter().any(|finalizer| has_finalizer(&value, finalizer))
}

fn has_finalizer(value: &Value, finalizer: &str) -> bool {
    value.texts("metadata.finalizers").contains(&finalizer)
}

fn find(writer: &Writer, key: &ObjectKey) -> Option<(&'static Resource, Arc<Stored>)> {
    let stored = writer.state.store.get(key.0, &key.1.namespace, &key.1.name)?;
    Some((resources::find_storage(key.0), stored))
}

/// State of the object that an owner reference names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    /// The owner exists, or this server cannot know.
    Exists,
    /// The owner exists and waits in foreground deletion for its dependents.
    WaitsForDependents,
    Absent,
}

fn owner_state(writer: &Writer, reference: &Value, namespace: &str) -> OwnerState {
    let kind = resources::find_kind(reference.text("apiVersion"), reference.text("kind"));
    let Some(resource) = kind.filter(|kind| !kind.namespaced || !namespace.is_empty()) else {
        return OwnerState::Exists;
    };
    let namespace = if resource.namespaced { namespace } else { "" };
    let owner = writer.state.store.get(resource.storage, namespace, reference.text("name"));
    match owner.filter(|owner| *owner.uid == *reference.text("uid")) {
        None => OwnerState::Absent,
        Some(owner) if owner.deleting && has_finalizer(&owner.value(), FOREGROUND) => OwnerState::WaitsForDependents,
        Some(_) => OwnerState::Exists,
    }
}

/// Deletes a dependent without existing owners, or removes its references to owners that were deleted.
fn collect(writer: &Writer, key: &ObjectKey) {
    let Some((resource, stored)) = find(writer, key) else { return };
    let value = stored.value();
    let references = value.list("metadata.ownerReferences");
    let states: Vec<OwnerState> = references.iter().map(|r| owner_state(writer, r, &stored.key.namespace)).collect();
    if !states.contains(&OwnerState::Absent) {
        return;
    }
    if !states.contains(&OwnerState::Exists) {
        let options = DeleteOptions { uid: Some(stored.uid.to_string()), ..DeleteOptions::default() };
        // If the deletion fails, the next change of the object or its owner retries it.
        let _ = writer.delete(resource, &stored, &options);
        return;
    }
    let mut states = states.into_iter();
    remove_references(writer, resource, &stored, &value, |_| states.next() != Some(OwnerState::Exists));
}

/// Removes a dependent's references to one owner.
fn remove_owner(writer: &Writer, resource: &'static Resource, dependent: &Arc<Stored>, uid: &str) {
    remove_references(writer, resource, dependent, &dependent.value(), |r| r.text("uid") == uid);
}

fn remove_references(
    writer: &Writer,
    resource: &'static Resource,
    stored: &Arc<Stored>,
    value: &Value,
    mut remove: impl FnMut(&Value) -> bool,
) {
    let mut new = value.clone();
    if let Some(references) = new.list_mut("metadata.ownerReferences") {
        references.retain(|r| !remove(r));
    }
    if new.list("metadata.ownerReferences").is_empty() {
        new.take_at("metadata.ownerReferences");
    }
    let write = writer.context(resource, &stored.key.namespace, None);
    let _ = update_object(&write, stored, value, new, false, &mut Vec::new());
}

/// Whether a dependent blocks the deletion of its owner with `blockOwnerDeletion`.
fn blocks_owner(dependent: &Stored, uid: &str) -> bool {
    let value = dependent.value();
    let references = value.list("metadata.ownerReferences");
    references.iter().any(|r| r.text("uid") == uid && r.at("blockOwnerDeletion").as_bool() == Some(true))
}

fn remove_finalizers(writer: &Writer, resource: &'static Resource, stored: &Arc<Stored>, value: &Value) {
    let mut new = value.clone();
    if let Some(finalizers) = new.list_mut("metadata.finalizers") {
        finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
    }
    if new.list("metadata.finalizers").is_empty() {
        new.take_at("metadata.finalizers");
    }
    let write = writer.context(resource, &stored.key.namespace, None);
    let _ = update_object(&write, stored, value, new, false, &mut Vec::new());
}
