//! Which kinds exist at all. A body of a kind that exists elsewhere is refused in other words than one of no kind.

use std::sync::LazyLock;

/// Every version of every group has these.
const EVERYWHERE: [&str; 7] =
    ["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];

/// These belong to no group and stand beside those of the core group.
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

/// Whether upstream has such a kind.
pub(crate) fn is_registered(api_version: &str, kind: &str) -> bool {
    let Some(version) = KNOWN.iter().find(|version| version.name == api_version) else { return false };
    version.kinds.iter().any(|known| stands_for(known, kind))
        || EVERYWHERE.contains(&kind)
        || (api_version == "v1" && UNVERSIONED.contains(&kind))
}

fn stands_for(known: &str, kind: &str) -> bool {
    match known.strip_suffix('+') {
        Some(item) => kind.strip_suffix("List").unwrap_or(kind) == item,
        None => known == kind,
    }
}

/// Whether a kind is the same thing in two versions, so that one can be read as the other.
pub(crate) fn same_kind(kind: &str, one: &str, other: &str) -> bool {
    is_registered(one, kind) && is_registered(other, kind) && home(kind, one) == home(kind, other)
}

/// The group a kind belongs to at heart. Some were moved, and can still be had at their old address.
fn home<'a>(kind: &str, api_version: &'a str) -> &'a str {
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
    fn kinds_exist_whether_served_or_not() {
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
