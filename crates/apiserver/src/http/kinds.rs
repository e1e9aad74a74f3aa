//! All kinds that upstream registers. The error for a body of a registered kind that is not served differs from the error
//! for an unknown kind.

use std::sync::LazyLock;

/// Kinds registered in every group version.
const IN_EVERY_VERSION: [&str; 7] =
    ["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];

/// Kinds without a group, registered with the core group.
const UNVERSIONED: [&str; 6] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "List", "Status"];

struct GroupVersion {
    name: &'static str,
    kinds: Vec<&'static str>,
}

static KNOWN: LazyLock<Vec<GroupVersion>> = LazyLock::new(|| {
    let lines = include_str!("kinds.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(name, kinds)| known(name, kinds)).collect()
});

fn known(name: &'static str, kinds: &'static str) -> GroupVersion {
    GroupVersion { name, kinds: kinds.split(' ').collect() }
}

/// Whether upstream registers this kind.
pub(crate) fn is_registered(api_version: &str, kind: &str) -> bool {
    let Some(version) = KNOWN.iter().find(|version| version.name == api_version) else { return false };
    version.kinds.iter().any(|known| matches_kind(known, kind))
        || IN_EVERY_VERSION.contains(&kind)
        || (api_version == "v1" && UNVERSIONED.contains(&kind))
}

fn matches_kind(known: &str, kind: &str) -> bool {
    match known.strip_suffix('+') {
        Some(item) => kind.strip_suffix("List").unwrap_or(kind) == item,
        None => known == kind,
    }
}

/// Whether a kind is the same resource in two API versions, so that one can be converted to the other.
pub(crate) fn same_kind(kind: &str, one: &str, other: &str) -> bool {
    is_registered(one, kind) && is_registered(other, kind) && current_group(kind, one) == current_group(kind, other)
}

/// The current group of a kind. Some kinds were moved and are still served in their former group.
fn current_group<'a>(kind: &str, api_version: &'a str) -> &'a str {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, kind) {
        ("events.k8s.io", "Event") => "",
        ("extensions", "Deployment" | "DaemonSet" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        _ => group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn kinds_are_registered_whether_served_or_not() {
        for (api_version, kind, want) in [
            ("v1", "ConfigMap", true),
            ("v1", "ConfigMapList", true),
            ("v1", "PersistentVolumeClaim", true),
            ("v1", "Status", true),
            ("v1", "Binding", true),
            ("v1", "BindingList", false),
            ("v1", "configmap", false),
            ("apps/v1", "StatefulSet", true),
            ("apps/v1", "DeleteOptions", true),
            ("apps/v1", "Status", false),
            ("apps/v3", "Deployment", false),
        ] {
            assert_eq!(is_registered(api_version, kind), want, "{api_version} {kind}");
        }
        for resource in RESOURCES {
            assert!(is_registered(&resource.api_version(), resource.kind), "{resource:?}");
        }
    }

    #[test]
    fn kinds_are_the_same_in_all_versions_of_their_group() {
        assert!(same_kind("Event", "events.k8s.io/v1", "v1"));
        assert!(same_kind("Deployment", "apps/v1beta1", "apps/v1"));
        assert!(!same_kind("ConfigMap", "apps/v1", "v1"));
    }
}
