//! Deletes the content of terminating namespaces, then removes their finalizer.

use std::collections::BTreeSet;

use super::{Writer, kind, stored_resources};
use crate::resources::Resource;
use crate::store::{Change, Verb};
use crate::value::Json;
use crate::verbs::{DeleteOptions, Propagation, update_object};

/// The terminating namespaces.
#[derive(Default)]
pub(super) struct Namespaces {
    terminating: BTreeSet<String>,
}

impl Namespaces {
    pub(super) fn on_change(&mut self, resource: &Resource, change: &Change) {
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

    pub(super) fn reconcile(&mut self, writer: &Writer) {
        for namespace in self.terminating.clone() {
            if purge(writer, &namespace) {
                remove_finalizer(writer, &namespace);
            }
        }
    }
}

/// Deletes all objects of a namespace; returns true once none is left.
fn purge(writer: &Writer, namespace: &str) -> bool {
    let mut empty = true;
    for resource in stored_resources().filter(|r| r.namespaced) {
        for object in writer.state.store.list(resource.storage, Some(namespace)).objects {
            let policy = Some(Propagation::Background);
            let options = DeleteOptions { grace: Some(0), policy, ..DeleteOptions::default() };
            let gone = matches!(writer.delete(resource, &object, &options), Ok(super::Deleted::Gone(_)));
            empty &= gone;
        }
    }
    empty
}

/// Removes the finalizer `kubernetes`, which deletes the namespace unless it has other finalizers.
fn remove_finalizer(writer: &Writer, namespace: &str) {
    let resource = kind("v1", "Namespace");
    let Some(current) = writer.state.store.get(resource.storage, "", namespace) else { return };
    let old = current.value();
    let mut new = old.clone();
    if let Some(finalizers) = new.list_mut("spec.finalizers") {
        finalizers.retain(|f| f != "kubernetes");
    }
    if new.list("spec.finalizers").is_empty() {
        new.take_at("spec.finalizers");
    }
    let write = writer.context(resource, "", Some("finalize"));
    // The next sync retries after a conflict.
    let _ = update_object(&write, &current, &old, new, false, &mut Vec::new());
}
