//! Fields that writes of a resource do not own: what the server sets itself, and what another address of the same
//! object is for.

use std::sync::LazyLock;

use super::set::FieldSet;
use crate::resources::Resource;

/// Nobody owns these.
static SERVER_SET: LazyLock<FieldSet> = LazyLock::new(|| {
    let metadata =
        ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];
    let mut paths: Vec<Vec<&str>> = vec![vec!["apiVersion"], vec!["kind"], vec!["metadata"]];
    paths.extend(metadata.iter().map(|name| vec!["metadata", name]));
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    FieldSet::of_names(&paths)
});

/// The fields that nobody owns; what is below them is not concerned.
pub(super) fn server_set() -> &'static FieldSet {
    &SERVER_SET
}

/// What a write to this address cannot change: `status` on the object itself, `spec` on its status.
pub(super) fn out_of_reach(resource: &Resource, subresource: Option<&str>) -> FieldSet {
    let paths: &[&[&str]] = match (subresource, resource.kind) {
        (Some("status"), "Pod") => &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        (Some("status"), "Deployment") => &[&["spec"], &["metadata", "labels"]],
        (Some("status"), _) => &[&["spec"]],
        (None | Some("finalize"), _) if resource.has_status() => &[&["status"]],
        _ => &[],
    };
    FieldSet::of_names(paths)
}
