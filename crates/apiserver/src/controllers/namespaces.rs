//! A namespace on its way out is emptied, then let go.

use std::collections::BTreeSet;

use super::{Hands, kind, stored_resources};
use crate::resources::Resource;
use crate::store::{Change, Verb};
use crate::value::Json;
use crate::verbs::{DeleteOptions, Propagation, update_object};

/// The namespaces that are terminating.
#[derive(Default)]
pub(super) struct Namespaces {
    terminating: BTreeSet<String>,
}

impl Namespaces {
    pub(super) fn fold(&mut self, resource: &Resource, change: &Change) {
        if resource.storage != "namespaces" {
            return;
        }
        let name = change.object.key.name.to_string();
        let phase = change.object.fields.iter().find(|(label, _)| *label == "status.phase");
        match change.verb != Verb::Deleted && phase.is_some_and(|(_, p)| p == "Terminating") {
            true => self.terminating.insert(name),
            false => self.terminating.remove(&name),
        };
    }

    pub(super) fn work(&mut self, hands: &Hands) {
        for namespace in self.terminating.clone() {
            if purge(hands, &namespace) {
                let_go(hands, &namespace);
            }
        }
    }
}

/// Deletes all content; true once there is none.
fn purge(hands: &Hands, namespace: &str) -> bool {
    let mut empty = true;
    for resource in stored_resources().filter(|r| r.namespaced) {
        for object in hands.state.store.list(resource.storage, Some(namespace)).objects {
            let policy = Some(Propagation::Background);
            let options = DeleteOptions { grace: Some(0), policy, ..DeleteOptions::default() };
            let gone = matches!(hands.delete(resource, &object, &options), Ok(super::Deleted::Gone(_)));
            empty &= gone;
        }
    }
    empty
}

/// Takes our finalizer off, which removes the namespace unless somebody else holds it.
fn let_go(hands: &Hands, namespace: &str) {
    let resource = kind("v1", "Namespace");
    let Some(current) = hands.state.store.get(resource.storage, "", namespace) else { return };
    let old = current.value();
    let mut new = old.clone();
    if let Some(finalizers) = new.list_mut("spec.finalizers") {
        finalizers.retain(|f| f != "kubernetes");
    }
    if new.list("spec.finalizers").is_empty() {
        new.take_at("spec.finalizers");
    }
    let write = hands.write(resource, "", Some("finalize"));
    // A race with another writer is settled in the next pass.
    let _ = update_object(&write, &current, &old, new, false, &mut Vec::new());
}
