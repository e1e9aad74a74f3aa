//! Garbage collection by owner references.
//!
//! * Background: when an owner is gone, dependents without another living owner go too; others lose the dead
//!   reference.
//! * Foreground (`foregroundDeletion` on a marked owner): dependents without another living owner go first, then the
//!   finalizer; others lose the reference.
//! * Orphan (`orphan` on a marked owner): dependents lose the reference, then the finalizer goes.
//!
//! References to kinds this server does not know, and from cluster-scoped objects to namespaced owners, are never
//! judged. Events have no owners here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::Hands;
use crate::resources::{self, Resource};
use crate::store::{Change, Key, Stored, Verb};
use crate::value::Json;
use crate::verbs::{DeleteOptions, update_object};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type Place = (&'static str, Key);

/// Who owns what.
#[derive(Default)]
pub(super) struct Garbage {
    /// uid of an owner → where its dependents are.
    dependents: HashMap<Box<str>, BTreeSet<Place>>,
    /// Dependents whose owners are to be checked.
    suspects: BTreeSet<Place>,
    /// Marked objects with one of our two finalizers.
    waiting: BTreeMap<Place, Box<str>>,
}

impl Garbage {
    pub(super) fn fold(&mut self, resource: &'static Resource, change: &Change) {
        if resource.storage == "events" {
            return;
        }
        let place = (resource.storage, change.object.key.clone());
        if let Some(previous) = &change.previous {
            self.forget(&place, previous);
        }
        if change.verb == Verb::Deleted {
            self.suspects.extend(self.dependents.get(&change.object.uid).into_iter().flatten().cloned());
            self.waiting.remove(&place);
            return;
        }
        for owner in &change.object.owners {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
        if !change.object.owners.is_empty() {
            self.suspects.insert(place.clone());
        }
        match is_waiting(&change.object) {
            true => self.waiting.insert(place, change.object.uid.clone()),
            false => self.waiting.remove(&place),
        };
    }

    fn forget(&mut self, place: &Place, object: &Stored) {
        for owner in &object.owners {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    pub(super) fn work(&mut self, hands: &Hands) {
        for place in std::mem::take(&mut self.suspects) {
            judge(hands, &place);
        }
        for (place, uid) in &self.waiting {
            self.settle(hands, place, uid);
        }
    }

    /// Moves a foreground or orphan deletion on.
    fn settle(&self, hands: &Hands, place: &Place, uid: &str) {
        let Some((resource, stored)) = find(hands, place).filter(|(_, s)| *s.uid == *uid) else { return };
        let value = stored.value();
        let dependents = self.dependents.get(uid);
        let present = || dependents.into_iter().flatten().filter_map(|place| find(hands, place));
        let held = match has_finalizer(&value, ORPHAN) {
            true => {
                present().for_each(|(resource, dependent)| release(hands, resource, &dependent, uid));
                // A write that lost a race leaves a reference; without the finalizer its holder would be garbage.
                present().any(|(_, dependent)| dependent.owners.iter().any(|owner| **owner == *uid))
            }
            false => {
                present().for_each(|(resource, dependent)| self.follow(hands, resource, &dependent, uid));
                present().any(|(_, dependent)| blocks(&dependent, &stored))
            }
        };
        if !held {
            drop_finalizer(hands, resource, &stored, &value);
        }
    }

    /// Lets a dependent follow an owner that waits for it.
    fn follow(&self, hands: &Hands, resource: &'static Resource, dependent: &Arc<Stored>, uid: &str) {
        let value = dependent.value();
        let stays = |r: &Value| r.text("uid") != uid && fate(hands, r, &dependent.key.namespace) == Fate::Lives;
        if value.list("metadata.ownerReferences").iter().any(stays) {
            release(hands, resource, dependent, uid);
            return;
        }
        let policy = self.dependents.contains_key(&dependent.uid).then_some(crate::verbs::Propagation::Foreground);
        let options = DeleteOptions { policy, uid: Some(dependent.uid.to_string()), ..DeleteOptions::default() };
        // A failure leaves the object, and its owner waiting: the next pass tries again.
        let _ = hands.delete(resource, dependent, &options);
    }
}

fn is_waiting(object: &Stored) -> bool {
    if !object.deleting {
        return false;
    }
    let value = object.value();
    [FOREGROUND, ORPHAN].iter().any(|finalizer| has_finalizer(&value, finalizer))
}

fn has_finalizer(value: &Value, finalizer: &str) -> bool {
    value.texts("metadata.finalizers").contains(&finalizer)
}

fn find(hands: &Hands, place: &Place) -> Option<(&'static Resource, Arc<Stored>)> {
    let stored = hands.state.store.get(place.0, &place.1.namespace, &place.1.name)?;
    Some((resources::of_storage(place.0), stored))
}

/// What is known of the object an owner reference names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is there, or nobody can tell.
    Lives,
    /// It is there, and waits for its dependents to go.
    Waits,
    Gone,
}

fn fate(hands: &Hands, reference: &Value, namespace: &str) -> Fate {
    let kind = resources::find_kind(reference.text("apiVersion"), reference.text("kind"));
    let Some(resource) = kind.filter(|kind| !kind.namespaced || !namespace.is_empty()) else {
        return Fate::Lives;
    };
    let namespace = if resource.namespaced { namespace } else { "" };
    let owner = hands.state.store.get(resource.storage, namespace, reference.text("name"));
    match owner.filter(|owner| *owner.uid == *reference.text("uid")) {
        None => Fate::Gone,
        Some(owner) if owner.deleting && has_finalizer(&owner.value(), FOREGROUND) => Fate::Waits,
        Some(_) => Fate::Lives,
    }
}

/// Deletes a dependent whose owners are all gone, or drops the references to those that are.
fn judge(hands: &Hands, place: &Place) {
    let Some((resource, stored)) = find(hands, place) else { return };
    let value = stored.value();
    let references = value.list("metadata.ownerReferences");
    let fates: Vec<Fate> = references.iter().map(|r| fate(hands, r, &stored.key.namespace)).collect();
    if !fates.contains(&Fate::Gone) {
        return;
    }
    if !fates.contains(&Fate::Lives) {
        let options = DeleteOptions { uid: Some(stored.uid.to_string()), ..DeleteOptions::default() };
        // A failure leaves the object; its next change, or its owner's, brings it back here.
        let _ = hands.delete(resource, &stored, &options);
        return;
    }
    let mut fates = fates.into_iter();
    drop_references(hands, resource, &stored, &value, |_| fates.next() != Some(Fate::Lives));
}

/// Drops a dependent's references to one owner.
fn release(hands: &Hands, resource: &'static Resource, dependent: &Arc<Stored>, uid: &str) {
    drop_references(hands, resource, dependent, &dependent.value(), |r| r.text("uid") == uid);
}

fn drop_references(
    hands: &Hands,
    resource: &'static Resource,
    stored: &Arc<Stored>,
    value: &Value,
    mut drops: impl FnMut(&Value) -> bool,
) {
    let mut new = value.clone();
    if let Some(references) = new.list_mut("metadata.ownerReferences") {
        references.retain(|r| !drops(r));
    }
    if new.list("metadata.ownerReferences").is_empty() {
        new.take_at("metadata.ownerReferences");
    }
    let write = hands.write(resource, &stored.key.namespace, None);
    let _ = update_object(&write, stored, value, new, false, &mut Vec::new());
}

/// A dependent that is still there holds its owner only if it says so, and not if it waits for that owner itself.
fn blocks(dependent: &Stored, owner: &Stored) -> bool {
    if dependent.uid == owner.uid || owner.owners.contains(&dependent.uid) {
        return false;
    }
    let value = dependent.value();
    let references = value.list("metadata.ownerReferences");
    references.iter().any(|r| *r.text("uid") == *owner.uid && r.at("blockOwnerDeletion").as_bool() == Some(true))
}

fn drop_finalizer(hands: &Hands, resource: &'static Resource, stored: &Arc<Stored>, value: &Value) {
    let mut new = value.clone();
    if let Some(finalizers) = new.list_mut("metadata.finalizers") {
        finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
    }
    if new.list("metadata.finalizers").is_empty() {
        new.take_at("metadata.finalizers");
    }
    let write = hands.write(resource, &stored.key.namespace, None);
    let _ = update_object(&write, stored, value, new, false, &mut Vec::new());
}
