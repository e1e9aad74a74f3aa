//! The parameters of requests.

use serde_json::{Value, json};

/// What can be said in the query of each operation, beside `pretty`.
pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];
pub(super) const LOG: &[&str] = &[
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];

/// Name, type and meaning of every parameter; `name` and `namespace` stand in the path.
const ALL: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "Send bookmarks on watches, so that the client can resume near the end."),
    ("container", "string", "Which container's log; needed if there are several."),
    ("continue", "string", "The token an earlier page ended with."),
    ("dryRun", "string", "All: check everything, store nothing."),
    ("fieldManager", "string", "Who is recorded as the owner of the changed fields."),
    ("fieldSelector", "string", "Only objects whose fields match."),
    ("fieldValidation", "string", "Unknown and doubled fields: Ignore, Warn or Strict."),
    ("follow", "boolean", "Keep sending as the log grows."),
    ("force", "boolean", "Take over fields that others own; apply patches only."),
    ("gracePeriodSeconds", "integer", "How long the object may take to end; 0 is at once."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete the object even if it cannot be read from the store.",
    ),
    ("insecureSkipTLSVerifyBackend", "boolean", "Do not check the certificate of the log's source."),
    ("labelSelector", "string", "Only objects whose labels match."),
    ("limit", "integer", "At most this many objects in one answer."),
    ("limitBytes", "integer", "At most this many bytes of log."),
    ("name", "string", "The object's name."),
    ("namespace", "string", "The object's namespace."),
    ("orphanDependents", "boolean", "Superseded by propagationPolicy."),
    ("pretty", "string", "Indent the answer."),
    ("previous", "boolean", "The log of the container before its last restart."),
    ("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
    ("resourceVersion", "string", "The state to read, or the place in history to watch from."),
    ("resourceVersionMatch", "string", "How resourceVersion binds a list: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Start a watch with the objects that are there."),
    ("shardSelector", "string", "Only objects of one shard."),
    ("sinceSeconds", "integer", "Only the last so many seconds of log."),
    ("stream", "string", "Which stream of the container: All, Stdout or Stderr."),
    ("tailLines", "integer", "Only the last so many lines of log."),
    ("timeoutSeconds", "integer", "How long the call may last."),
    ("timestamps", "boolean", "Put the time before each line of log."),
    ("watch", "boolean", "Stream changes instead of listing."),
];

/// The parameter's definition.
pub(super) fn parameter(name: &str) -> Value {
    let (ty, description) =
        ALL.iter().find(|(n, _, _)| *n == name).map_or(("string", ""), |(_, ty, description)| (*ty, *description));
    let in_path = matches!(name, "name" | "namespace");
    let mut parameter = json!({
        "name": name,
        "in": if in_path { "path" } else { "query" },
        "description": description,
        "schema": {"type": ty, "uniqueItems": true},
    });
    if in_path {
        parameter["required"] = true.into();
    }
    parameter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_an_operation_is_defined() {
        for name in [LIST, WRITE, PATCH, DELETE, DELETE_COLLECTION, LOG].concat() {
            assert!(ALL.iter().any(|(n, _, _)| *n == name), "{name}");
        }
    }
}
