//! Fields that a write does not own: those that the server sets, and those that only another endpoint of the same object
//! can write.

use std::sync::LazyLock;

use super::set::FieldSet;
use crate::resources::Resource;

/// Fields that no manager owns.
static STRIPPED_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    let metadata =
        ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];
    let mut paths: Vec<Vec<&str>> = vec![vec!["apiVersion"], vec!["kind"], vec!["metadata"]];
    paths.extend(metadata.iter().map(|name| vec!["metadata", name]));
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    FieldSet::of_names(&paths)
});

/// Returns the fields that no manager owns. Their children are not included.
pub(super) fn stripped_fields() -> &'static FieldSet {
    &STRIPPED_FIELDS
}

/// Returns the fields that a write to this endpoint cannot change: `status` for the object itself, `spec` for its status.
pub(super) fn reset_fields(resource: &Resource, subresource: Option<&str>) -> FieldSet {
    let paths: &[&[&str]] = match (subresource, resource.kind) {
        (Some("status"), "Pod") => &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        (Some("status"), "Deployment") => &[&["spec"], &["metadata", "labels"]],
        (Some("status"), _) => &[&["spec"]],
        (None | Some("finalize"), _) if resource.has_status() => &[&["status"]],
        _ => &[],
    };
    FieldSet::of_names(paths)
}
