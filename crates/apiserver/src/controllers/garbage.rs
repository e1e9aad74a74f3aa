//! Garbage collection by owner references.
//!
//! * Background: when an owner is gone, dependents without another living owner go too; others lose the dead
//!   reference.
//! * Foreground (`foregroundDeletion` on a marked owner): dependents go first, then the finalizer.
//! * Orphan (`orphan` on a marked owner): dependents lose the reference, then the finalizer goes.
//!
//! References to kinds this server does not know are never judged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::Hands;
use crate::resources::{self, Resource};
use crate::store::{Change, Key, Stored, Verb};
use crate::value::Json;
use crate::verbs::{DeleteOptions, update_object};

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
            let dependents = self.dependents.get(uid).cloned().unwrap_or_default();
            settle(hands, place, uid, &dependents);
        }
    }
}

fn is_waiting(object: &Stored) -> bool {
    let ours = |finalizer: &&str| matches!(*finalizer, "foregroundDeletion" | "orphan");
    object.deleting && object.value().texts("metadata.finalizers").iter().any(ours)
}

fn find(hands: &Hands, place: &Place) -> Option<(&'static Resource, Arc<Stored>)> {
    let stored = hands.state.store.get(place.0, &place.1.namespace, &place.1.name)?;
    Some((resources::of_storage(place.0), stored))
}

/// Whether an owner reference points to something that is certainly gone.
fn is_dead(hands: &Hands, reference: &Value, namespace: &str) -> bool {
    let Some(resource) = resources::find_kind(reference.text("apiVersion"), reference.text("kind")) else {
        return false;
    };
    let namespace = if resource.namespaced { namespace } else { "" };
    match hands.state.store.get(resource.storage, namespace, reference.text("name")) {
        Some(owner) => *owner.uid != *reference.text("uid"),
        None => true,
    }
}

/// Deletes a dependent whose owners are all gone, or drops the references to those that are.
fn judge(hands: &Hands, place: &Place) {
    let Some((resource, stored)) = find(hands, place) else { return };
    let value = stored.value();
    let references = value.list("metadata.ownerReferences");
    let dead: Vec<bool> = references.iter().map(|r| is_dead(hands, r, &stored.key.namespace)).collect();
    if !dead.contains(&true) {
        return;
    }
    if dead.iter().all(|d| *d) {
        let options = DeleteOptions { uid: Some(stored.uid.to_string()), ..DeleteOptions::default() };
        // A failure leaves the object; its next change, or its owner's, brings it back here.
        let _ = hands.delete(resource, &stored, &options);
        return;
    }
    let mut at = 0;
    drop_references(hands, resource, &stored, &value, |_| {
        at += 1;
        dead[at - 1]
    });
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

/// Moves a foreground or orphan deletion on.
fn settle(hands: &Hands, place: &Place, uid: &str, dependents: &BTreeSet<Place>) {
    let Some((resource, stored)) = find(hands, place).filter(|(_, s)| *s.uid == *uid) else { return };
    let value = stored.value();
    let orphans = value.texts("metadata.finalizers").contains(&"orphan");
    let present: Vec<_> = dependents.iter().filter_map(|p| find(hands, p)).collect();
    for (resource, dependent) in &present {
        if orphans {
            drop_references(hands, resource, dependent, &dependent.value(), |r| r.text("uid") == uid);
        } else {
            let options = DeleteOptions {
                policy: Some(crate::verbs::Propagation::Foreground),
                uid: Some(dependent.uid.to_string()),
                ..DeleteOptions::default()
            };
            let _ = hands.delete(resource, dependent, &options);
        }
    }
    let blocked = !orphans && dependents.iter().any(|p| find(hands, p).is_some_and(|(_, d)| blocks(&d, uid)));
    if !blocked {
        drop_finalizer(hands, resource, &stored, &value);
    }
}

/// A dependent that is still there holds its owner only if it says so.
fn blocks(dependent: &Stored, uid: &str) -> bool {
    let value = dependent.value();
    let references = value.list("metadata.ownerReferences");
    references.iter().any(|r| r.text("uid") == uid && r.at("blockOwnerDeletion").as_bool() == Some(true))
}

fn drop_finalizer(hands: &Hands, resource: &'static Resource, stored: &Arc<Stored>, value: &Value) {
    let mut new = value.clone();
    if let Some(finalizers) = new.list_mut("metadata.finalizers") {
        finalizers.retain(|f| f != "orphan" && f != "foregroundDeletion");
    }
    if new.list("metadata.finalizers").is_empty() {
        new.take_at("metadata.finalizers");
    }
    let write = hands.write(resource, &stored.key.namespace, None);
    let _ = update_object(&write, stored, value, new, false, &mut Vec::new());
}
