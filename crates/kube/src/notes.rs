//! Notes that a manager leaves for its successors, as annotations of one Lease.
//!
//! They are in a Lease and not in a ConfigMap, because the roles of cloud controller managers may create and update Leases.

use std::borrow::Cow;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use kube::api::{GetParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, WriteError, invalid_request};
use crate::permissions::{Permission, Scope};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "bowline-notes";

/// Maximum number of attempts when another manager writes at the same time.
const MAX_ATTEMPTS: u32 = 5;

/// Reads and writes notes with the identity of the process.
#[derive(Clone)]
pub struct Notes {
    cluster: Cluster,
}

impl Notes {
    /// Permissions that notes need.
    pub const PERMISSIONS: &[Permission] = &[
        permission(&["create"], Scope::Namespace(Cow::Borrowed(NAMESPACE))),
        permission(&["get", "update"], Scope::Named(Cow::Borrowed(NAMESPACE), Cow::Borrowed(NAME))),
    ];

    /// Notes in this cluster.
    pub fn new(cluster: Cluster) -> Notes {
        Notes { cluster }
    }

    /// Returns the note under this key, if there is one.
    pub async fn get(&self, key: &str) -> Result<Option<String>, WriteError> {
        Ok(self.lease().await?.and_then(|lease| note(&lease, key).map(str::to_owned)))
    }

    /// Replaces the note under this key with the result of `change` and leaves the other notes. After a conflict, `change` is
    /// called again with the note of the other manager, so no update is lost.
    pub async fn update(&self, key: &str, mut change: impl FnMut(Option<&str>) -> String) -> Result<(), WriteError> {
        let mut attempt = 1;
        loop {
            match self.try_update(key, &mut change).await {
                // Another manager has created or updated the Lease since it was read.
                Err(WriteError::Conflict(_)) if attempt < MAX_ATTEMPTS => attempt += 1,
                written => return written,
            }
        }
    }

    async fn try_update(&self, key: &str, change: &mut impl FnMut(Option<&str>) -> String) -> Result<(), WriteError> {
        let params = PostParams { dry_run: self.cluster.is_dry_run(), ..PostParams::default() };
        let lease = self.lease().await?;
        let text = change(lease.as_ref().and_then(|lease| note(lease, key)));
        let (verb, request) = match lease {
            Some(lease) => ("update", leases().replace(NAME, &params, with_note(lease, key, &text)?)),
            None => ("create", leases().create(&params, with_note(new_lease(), key, &text)?)),
        };
        self.cluster.write((verb, "leases"), &request.map_err(invalid_request)?).await.map(drop)
    }

    async fn lease(&self) -> Result<Option<Value>, WriteError> {
        let request = leases().get(NAME, &GetParams::default()).map_err(invalid_request)?;
        match self.cluster.send_read(&request).await {
            Ok(body) => serde_json::from_slice(&body).map(Some).map_err(unreadable),
            Err(WriteError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

const fn permission(verbs: &'static [&'static str], scope: Scope) -> Permission {
    Permission {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs,
        scope,
        why: "record deletions of Nodes, so that the limit on them survives a restart",
        without: Some("the limit on deletions of Nodes starts over when the manager restarts"),
    }
}

fn leases() -> kube::core::Request {
    kube::core::Request::new(Lease::url_path(&(), Some(NAMESPACE)))
}

fn note<'a>(lease: &'a Value, key: &str) -> Option<&'a str> {
    lease.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn new_lease() -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}})
}

/// Serializes the Lease with this note.
fn with_note(mut lease: Value, key: &str, text: &str) -> Result<Vec<u8>, WriteError> {
    let metadata = lease.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| unreadable("it has no metadata"))?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    let annotations = annotations.as_object_mut().ok_or_else(|| unreadable("its annotations are not a map"))?;
    annotations.insert(key.to_owned(), json!(text));
    Ok(lease.to_string().into_bytes())
}

fn unreadable(why: impl std::fmt::Display) -> WriteError {
    WriteError::Unavailable(format!("the API server returned an invalid Lease: {why}"))
}
