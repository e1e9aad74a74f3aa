//! Every namespace gets a `default` ServiceAccount and the `kube-root-ca.crt` ConfigMap.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Hands, kind};
use crate::resources::Resource;
use crate::store::{Change, Verb};
use crate::value::Json;
use crate::verbs::{create_object, update_object};

const ROOT_CA: &str = "kube-root-ca.crt";

/// Which namespaces are to be looked at.
pub(super) struct Accounts {
    authority: String,
    dirty: BTreeSet<String>,
}

impl Accounts {
    pub(super) fn new(authority: String) -> Accounts {
        Accounts { authority, dirty: BTreeSet::new() }
    }

    pub(super) fn fold(&mut self, resource: &Resource, change: &Change) {
        let object = &change.object;
        match resource.storage {
            "namespaces" if change.verb != Verb::Deleted => self.dirty.insert(object.key.name.to_string()),
            "serviceaccounts" if change.verb == Verb::Deleted => self.dirty.insert(object.key.namespace.to_string()),
            "configmaps" if *object.key.name == *ROOT_CA => self.dirty.insert(object.key.namespace.to_string()),
            _ => false,
        };
    }

    pub(super) fn work(&mut self, hands: &Hands) {
        for namespace in std::mem::take(&mut self.dirty) {
            self.ensure(hands, &namespace, account());
            self.ensure(hands, &namespace, self.root_ca());
            self.restore(hands, &namespace);
        }
    }

    /// Creates the object if it is absent; a namespace that is gone or going needs none.
    fn ensure(&self, hands: &Hands, namespace: &str, object: Value) {
        let resource = kind("v1", object["kind"].as_str().unwrap_or_default());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if hands.state.store.get(resource.storage, namespace, name).is_none() {
            let outcome = create_object(&hands.write(resource, namespace, None), object, false, &mut Vec::new());
            if let Err(error) = outcome {
                tracing::debug!(namespace, kind = resource.kind, error = error.message, "not created");
            }
        }
    }

    /// Puts the authority right where somebody changed it.
    fn restore(&self, hands: &Hands, namespace: &str) {
        let resource = kind("v1", "ConfigMap");
        let Some(stored) = hands.state.store.get(resource.storage, namespace, ROOT_CA) else { return };
        let old = stored.value();
        let mut new = old.clone();
        new.put("data", self.root_ca()["data"].take());
        if new != old {
            let write = hands.write(resource, namespace, None);
            // Whoever wrote in between brings the map back here.
            let _ = update_object(&write, &stored, &old, new, false, &mut Vec::new());
        }
    }

    fn root_ca(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CA,
                "annotations": {
                    "kubernetes.io/description": "The authority that signs the API server's serving certificate.",
                },
            },
            "data": {"ca.crt": self.authority},
        })
    }
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
}
