//! Request parameters.

use serde_json::{Value, json};

/// The query parameters of each operation, besides `pretty`.
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

/// Name, type and description of every parameter. `name` and `namespace` are path parameters.
const ALL: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "Send watch events of type BOOKMARK."),
    ("container", "string", "The container whose log is returned. Required if the pod has several containers."),
    ("continue", "string", "The continue token of the previous page."),
    ("dryRun", "string", "All: process the request without storing the result."),
    ("fieldManager", "string", "Name of the field manager that makes the changes."),
    ("fieldSelector", "string", "Field selector that restricts the returned objects."),
    ("fieldValidation", "string", "How to handle unknown and duplicate fields: Ignore, Warn or Strict."),
    ("follow", "boolean", "Follow the log stream."),
    ("force", "boolean", "Force an apply patch: take over fields owned by other field managers."),
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted. 0 deletes it immediately."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete the object even if it cannot be read from storage.",
    ),
    ("insecureSkipTLSVerifyBackend", "boolean", "Skip verification of the kubelet's serving certificate."),
    ("labelSelector", "string", "Label selector that restricts the returned objects."),
    ("limit", "integer", "Maximum number of objects in one response."),
    ("limitBytes", "integer", "Maximum number of bytes of the log."),
    ("name", "string", "Name of the object."),
    ("namespace", "string", "Namespace of the object."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("pretty", "string", "Pretty-print the response."),
    ("previous", "boolean", "Return the log of the previous, terminated container."),
    ("propagationPolicy", "string", "How dependents are garbage collected: Orphan, Background or Foreground."),
    ("resourceVersion", "string", "Constraint on the resource version the request is served from."),
    ("resourceVersionMatch", "string", "How resourceVersion is applied to a list: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Start the watch with synthetic events for all existing objects."),
    ("shardSelector", "string", "Shard selector that restricts the returned objects."),
    ("sinceSeconds", "integer", "Return only log lines of the last given number of seconds."),
    ("stream", "string", "Container log stream to return: All, Stdout or Stderr."),
    ("tailLines", "integer", "Number of lines from the end of the log to return."),
    ("timeoutSeconds", "integer", "Timeout of list and watch calls in seconds."),
    ("timestamps", "boolean", "Prefix each log line with its timestamp."),
    ("watch", "boolean", "Watch for changes and return them as a stream of events."),
];

/// The definition of a parameter.
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
