//! OpenAPI v3 documents, generated from the schema and the resource table.
//!
//! kubectl reads these documents to learn whether the server validates fields, how lists merge (apply, diff), and how to
//! describe a field (explain). There is one document per group version, generated on the first request and then cached.
//! The OpenAPI v2 document is empty.
//!
//! ```text
//!  index ──► document(api/v1) ──► paths ──► components ──► schema table
//!                                                     └──► descriptions.txt
//! ```

mod components;
mod descriptions;
mod operations;
mod parameters;
pub(crate) mod v2;

use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use ring::digest::{SHA512, digest};
use serde_json::{Map, Value, json};

use crate::discovery::{GroupVersion, group_versions};
use components::Components;

/// `GET /openapi/v3`.
pub(crate) fn index() -> Bytes {
    static INDEX: LazyLock<Bytes> = LazyLock::new(|| {
        let paths: Map<String, Value> = DOCUMENTS.iter().map(|d| (d.path.clone(), index_entry(d))).collect();
        Bytes::from(json!({"paths": paths}).to_string())
    });
    INDEX.clone()
}

/// `GET /openapi/v3/PATH` (`api/v1`, `apis/apps/v1`): the JSON document and its hash.
pub(crate) fn document(path: &str) -> Option<(Bytes, &'static str)> {
    DOCUMENTS.iter().find(|d| d.path == path).map(|d| (d.bytes().clone(), d.hash()))
}

/// The document of one group version.
struct Document {
    /// `api/v1`.
    path: String,
    group_version: GroupVersion,
    bytes: OnceLock<Bytes>,
    hash: OnceLock<String>,
}

static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| {
    let document = |group_version| Document {
        path: root(group_version),
        group_version,
        bytes: OnceLock::new(),
        hash: OnceLock::new(),
    };
    group_versions().into_iter().map(document).collect()
});

impl Document {
    fn bytes(&self) -> &Bytes {
        self.bytes.get_or_init(|| Bytes::from(generate(self.group_version).to_string()))
    }

    /// Hash of the document, by which clients cache it.
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| digest(&SHA512, self.bytes()).as_ref().iter().map(|b| format!("{b:02X}")).collect())
    }
}

/// The path prefix of the group version, without the leading slash.
fn root(group_version: GroupVersion) -> String {
    let prefix = if group_version.group.is_empty() { "api" } else { "apis" };
    format!("{prefix}/{}", group_version.name())
}

fn index_entry(document: &Document) -> Value {
    json!({"serverRelativeURL": format!("/openapi/v3/{}?hash={}", document.path, document.hash())})
}

fn generate(group_version: GroupVersion) -> Value {
    let mut components = Components::new(group_version);
    let root = root(group_version);
    let paths: Map<String, Value> =
        group_version.resources().flat_map(|resource| operations::paths(resource, &root, &mut components)).collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {
            "schemas": components.finish(),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey",
                "in": "header",
                "name": "authorization",
                "description": "Bearer token: `Bearer TOKEN`.",
            }},
        },
    })
}

#[cfg(test)]
mod tests;
