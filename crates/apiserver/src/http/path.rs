//! What a path is about.

use crate::resources::{self, RESOURCES, Resource, Subresource};

/// The meaning of a path.
#[derive(Debug)]
pub(crate) enum Target {
    /// An object, a collection, or a part of an object.
    Resource(ResourcePath),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    Resources { group: String, version: String },
    /// A known group, but no such resource: 404 as a Status.
    NoSuchResource,
    /// Everything else.
    Other,
}

/// The parts of a resource path.
#[derive(Debug, Clone)]
pub(crate) struct ResourcePath {
    pub(crate) resource: &'static Resource,
    /// Empty for cluster-scoped resources and lists over all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    pub(crate) subresource: Option<&'static Subresource>,
    /// The old `/watch/` form of the path.
    pub(crate) watch: bool,
}

/// Reads a path.
pub(crate) fn parse(path: &str) -> Target {
    // upstream: escapes are undone first, so that an escaped slash parts two segments like any other.
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let parts: Vec<&str> = decoded.split('/').filter(|s| !s.is_empty()).collect();
    match parts.as_slice() {
        ["api"] => Target::CoreVersions,
        ["apis"] => Target::Groups,
        ["api", "v1"] => Target::Resources { group: String::new(), version: "v1".into() },
        ["api", "v1", rest @ ..] => in_version("", "v1", rest),
        ["apis", group, ..] if !knows_group(group) => Target::Other,
        ["apis", group] => Target::Group((*group).into()),
        ["apis", group, version] => Target::Resources { group: (*group).into(), version: (*version).into() },
        ["apis", group, version, rest @ ..] => in_version(group, version, rest),
        _ => Target::Other,
    }
}

fn knows_group(group: &str) -> bool {
    RESOURCES.iter().any(|r| r.group == group && !r.group.is_empty())
}

fn in_version(group: &str, version: &str, rest: &[&str]) -> Target {
    let (watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        _ => (false, rest),
    };
    let (namespace, plural, name, sub) = match rest {
        ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
            ("", "namespaces", *name, Some(*sub))
        }
        ["namespaces", namespace, plural] => (*namespace, *plural, "", None),
        ["namespaces", namespace, plural, name] => (*namespace, *plural, *name, None),
        ["namespaces", namespace, plural, name, sub] => (*namespace, *plural, *name, Some(*sub)),
        [plural] => ("", *plural, "", None),
        [plural, name] => ("", *plural, *name, None),
        [plural, name, sub] => ("", *plural, *name, Some(*sub)),
        _ => return Target::NoSuchResource,
    };
    let Some(resource) = resources::find(group, version, plural) else { return Target::NoSuchResource };
    let subresource = match sub.map(|s| resource.subresource(s)) {
        Some(None) => return Target::NoSuchResource,
        Some(found) => found,
        None => None,
    };
    let placed = resource.namespaced != namespace.is_empty();
    let all_namespaces = resource.namespaced && namespace.is_empty() && name.is_empty() && !resource.is_virtual();
    if !placed && !all_namespaces {
        return Target::NoSuchResource;
    }
    if resource.is_virtual() && !name.is_empty() {
        return Target::NoSuchResource;
    }
    Target::Resource(ResourcePath { resource, namespace: namespace.into(), name: name.into(), subresource, watch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> String {
        match parse(path) {
            Target::Resource(p) => {
                format!("{:?} {:?} {:?} {:?}", p.resource, p.namespace, p.name, p.subresource.map(|s| s.name))
            }
            Target::Resources { group, version } => format!("resources {group}/{version}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths_mean_what_they_mean_upstream() {
        let cases = [
            ("/api/v1/nodes", "nodes \"\" \"\" None"),
            ("/api/v1/nodes/", "nodes \"\" \"\" None"),
            ("/api/v1/nodes/a/status", "nodes \"\" \"a\" Some(\"status\")"),
            ("/api/v1/namespaces/x/status", "namespaces \"\" \"x\" Some(\"status\")"),
            ("/api/v1/namespaces/x", "namespaces \"\" \"x\" None"),
            ("/api/v1/services", "services \"\" \"\" None"),
            ("/api/v1/services/a", "NoSuchResource"),
            ("/api/v1/namespaces/n/nodes", "NoSuchResource"),
            ("/api/v1/namespaces/n/services/a/bogus", "NoSuchResource"),
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/a%3Ab", "leases.coordination.k8s.io \"n\" \"a:b\" None"),
            ("/api/v1/namespaces/n%2Fservices/a%2fstatus", "services \"n\" \"a\" Some(\"status\")"),
            ("/api/v1/nodes/%zz", "nodes \"\" \"%zz\" None"),
            ("/apis/apps/v1", "resources apps/v1"),
            ("/apis/nope/v1", "Other"),
            ("/healthz", "Other"),
        ];
        for (path, meaning) in cases {
            assert_eq!(shown(path), meaning, "{path}");
        }
    }
}
