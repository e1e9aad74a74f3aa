//! Creates the `default` ServiceAccount and the `kube-root-ca.crt` ConfigMap in every namespace.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Writer, kind};
use crate::resources::Resource;
use crate::store::{Change, Verb};
use crate::value::Json;
use crate::verbs::{create_object, update_object};

const ROOT_CA: &str = "kube-root-ca.crt";

/// The namespaces to reconcile.
pub(super) struct Accounts {
    root_ca_pem: String,
    dirty: BTreeSet<String>,
}

impl Accounts {
    pub(super) fn new(root_ca_pem: String) -> Accounts {
        Accounts { root_ca_pem, dirty: BTreeSet::new() }
    }

    pub(super) fn on_change(&mut self, resource: &Resource, change: &Change) {
        let object = &change.object;
        match resource.storage {
            "namespaces" if change.verb != Verb::Deleted => self.dirty.insert(object.key.name.to_string()),
            "serviceaccounts" if change.verb == Verb::Deleted => self.dirty.insert(object.key.namespace.to_string()),
            "configmaps" if *object.key.name == *ROOT_CA => self.dirty.insert(object.key.namespace.to_string()),
            _ => false,
        };
    }

    pub(super) fn reconcile(&mut self, writer: &Writer) {
        for namespace in std::mem::take(&mut self.dirty) {
            self.ensure(writer, &namespace, account());
            self.ensure(writer, &namespace, self.root_ca());
            self.restore(writer, &namespace);
        }
    }

    /// Creates the object if it is absent. Creation fails harmlessly in a namespace that is terminating or deleted.
    fn ensure(&self, writer: &Writer, namespace: &str, object: Value) {
        let resource = kind("v1", object["kind"].as_str().unwrap_or_default());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if writer.state.store.get(resource.storage, namespace, name).is_none() {
            let outcome = create_object(&writer.context(resource, namespace, None), object, false, &mut Vec::new());
            if let Err(error) = outcome {
                tracing::debug!(namespace, kind = resource.kind, error = error.message, "object not created");
            }
        }
    }

    /// Restores the CA certificate if a client changed it.
    fn restore(&self, writer: &Writer, namespace: &str) {
        let resource = kind("v1", "ConfigMap");
        let Some(stored) = writer.state.store.get(resource.storage, namespace, ROOT_CA) else { return };
        let old = stored.value();
        let mut new = old.clone();
        new.put("data", self.root_ca()["data"].take());
        if new != old {
            let write = writer.context(resource, namespace, None);
            // On a conflict, the other write's change event triggers another attempt.
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
                    "kubernetes.io/description": "The CA certificate that verifies the serving certificate of the API server.",
                },
            },
            "data": {"ca.crt": self.root_ca_pem},
        })
    }
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
}
