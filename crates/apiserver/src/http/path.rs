//! Parses request paths.

use http::Method;

use crate::auth::Attributes;
use crate::resources::{self, RESOURCES, Resource, Subresource};

/// The target of a request path.
#[derive(Debug)]
pub(crate) enum Target {
    /// An object, a collection or a subresource.
    Resource(ResourcePath),
    /// `pods/proxy`, and the path on the Pod: empty, or `/` and more.
    Proxy(ResourcePath, String),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    Resources { group: String, version: String },
    /// An unknown resource of a known group: 404 with a Status object.
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
    /// Whether the path has the deprecated `/watch/` prefix.
    pub(crate) watch: bool,
}

/// Parses a path.
pub(crate) fn parse(path: &str) -> Target {
    // Decode first, so that an escaped slash also separates segments.
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let path = path.strip_prefix('/').unwrap_or(&path);
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "v1", "namespaces", _, "pods", _, "proxy", rest @ ..] => {
            let object = &parts[2..parts.len() - rest.len()];
            match in_version("", "v1", object) {
                Target::Resource(target) => Target::Proxy(target, proxied_path(rest, path.ends_with('/'))),
                other => other,
            }
        }
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

/// The path on the proxied server, without `.` and `..`. upstream: a trailing slash is kept, other empty segments are not.
fn proxied_path(segments: &[&str], trailing_slash: bool) -> String {
    let mut kept = Vec::new();
    for segment in segments {
        match *segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let path: String = kept.iter().flat_map(|segment| ["/", *segment]).collect();
    if trailing_slash { path + "/" } else { path }
}

/// The request attributes of a path whose resource is not served: authorization runs before the 404. The verb is that of a
/// single object. Returns `None` for a path that is not a resource path.
pub(crate) fn unserved(path: &str, method: &Method) -> Option<Attributes> {
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let parts: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (verb, rest) = match rest {
        ["watch", rest @ ..] => ("watch", rest),
        _ => (verb_of_object(method), rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", name, "status" | "finalize", ..] | ["namespaces", name] => (*name, rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let part = |at: usize| rest.get(at).map(|s| (*s).to_owned()).unwrap_or_default();
    let attributes = Attributes {
        verb: verb.into(),
        group: group.into(),
        version: version.into(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
        namespace: namespace.into(),
        path: String::new(),
    };
    (!attributes.resource.is_empty()).then_some(attributes)
}

/// An error message for well-known paths that this server does not support; "not found" would suggest a client error.
pub(crate) fn unsupported(path: &str) -> Option<String> {
    let attributes = unserved(path, &Method::GET)?;
    match (attributes.group.as_str(), attributes.resource.as_str(), attributes.subresource.as_str()) {
        ("", "pods", part @ ("exec" | "attach" | "portforward")) => {
            Some(format!("pods/{part} is not supported: this API server runs no kubelets and no containers"))
        }
        ("", resource @ ("nodes" | "services"), "proxy") => {
            Some(format!("{resource}/proxy is not supported: this API server does not proxy requests"))
        }
        ("apiextensions.k8s.io", "customresourcedefinitions", _) => {
            Some("custom resources are not supported by this API server".to_owned())
        }
        _ => None,
    }
}

pub(crate) fn verb_of_object(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
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
    if watch && (sub.is_some() || !resource.allows("watch")) {
        return Target::NoSuchResource;
    }
    let scope_matches = resource.namespaced != namespace.is_empty();
    let all_namespaces = resource.namespaced && namespace.is_empty() && name.is_empty() && !resource.is_virtual();
    if !scope_matches && !all_namespaces {
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

    fn describe(path: &str) -> String {
        match parse(path) {
            Target::Resource(p) => {
                format!("{:?} {:?} {:?} {:?}", p.resource, p.namespace, p.name, p.subresource.map(|s| s.name))
            }
            Target::Resources { group, version } => format!("resources {group}/{version}"),
            Target::Proxy(p, rest) => {
                format!("{:?} {:?} {:?} {:?} {rest:?}", p.resource, p.namespace, p.name, p.subresource.map(|s| s.name))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn unserved_paths_have_request_attributes() {
        let cases = [
            ("/apis/foo.io/v1/things", Some("get foo.io things \"\" \"\" \"\"")),
            ("/apis/foo.io/v1/namespaces/n/things/a/part", Some("get foo.io things \"n\" \"a\" \"part\"")),
            ("/api/v1/namespaces/n/nodes", Some("get  nodes \"n\" \"\" \"\"")),
            ("/api/v1/watch/bogus", Some("watch  bogus \"\" \"\" \"\"")),
            ("/api/v2", None),
            ("/apis/foo.io/v1", None),
            ("/metrics", None),
        ];
        for (path, meaning) in cases {
            let description = unserved(path, &Method::GET).map(|a| {
                format!("{} {} {} {:?} {:?} {:?}", a.verb, a.group, a.resource, a.namespace, a.name, a.subresource)
            });
            assert_eq!(description.as_deref(), meaning, "{path}");
        }
    }

    #[test]
    fn unsupported_paths_have_an_error_message() {
        let cases = [
            ("/api/v1/namespaces/n/pods/p/exec", Some("pods/exec is not supported")),
            ("/api/v1/namespaces/n/pods/p/attach", Some("pods/attach is not supported")),
            ("/api/v1/namespaces/n/pods/p/portforward", Some("pods/portforward is not supported")),
            ("/api/v1/namespaces/n/services/s/proxy/a/b", Some("services/proxy is not supported")),
            ("/api/v1/nodes/n/proxy", Some("nodes/proxy is not supported")),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Some("custom resources are not supported")),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a", Some("custom resources are not supported")),
            ("/api/v1/namespaces/n/pods/p/bogus", None),
            ("/apis/foo.io/v1/things", None),
        ];
        for (path, expected) in cases {
            let message = unsupported(path);
            assert_eq!(message.is_some(), expected.is_some(), "{path}");
            assert!(message.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{path}");
        }
    }

    #[test]
    fn paths_are_parsed_as_upstream() {
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
            ("/api/v1/namespaces/n/configmaps/a%2Fb", "NoSuchResource"),
            ("/api/v1//nodes", "NoSuchResource"),
            ("//api/v1/nodes", "Other"),
            ("/api/v1/watch/nodes/a", "nodes \"\" \"a\" None"),
            ("/api/v1/watch/nodes/a/status", "NoSuchResource"),
            ("/apis/authentication.k8s.io/v1/watch/tokenreviews", "NoSuchResource"),
            ("/api/v1/namespaces/n%2Fservices/a%2fstatus", "services \"n\" \"a\" Some(\"status\")"),
            ("/api/v1/nodes/%zz", "nodes \"\" \"%zz\" None"),
            ("/api/v1/namespaces/n/pods/p/proxy", "pods \"n\" \"p\" Some(\"proxy\") \"\""),
            ("/api/v1/namespaces/n/pods/p/proxy/", "pods \"n\" \"p\" Some(\"proxy\") \"/\""),
            ("/api/v1/namespaces/n/pods/https:p:1/proxy/a//b/", "pods \"n\" \"https:p:1\" Some(\"proxy\") \"/a/b/\""),
            ("/api/v1/namespaces/n/pods/p/proxy/../a/./%2e%2e/b", "pods \"n\" \"p\" Some(\"proxy\") \"/b\""),
            ("/api/v1/namespaces/n/pods/p/proxy/pods/p/proxy", "pods \"n\" \"p\" Some(\"proxy\") \"/pods/p/proxy\""),
            ("/api/v1/namespaces//pods/p/proxy/a", "NoSuchResource"),
            ("/api/v1/watch/namespaces/n/pods/p/proxy", "NoSuchResource"),
            ("/apis/apps/v1", "resources apps/v1"),
            ("/apis/nope/v1", "Other"),
            ("/healthz", "Other"),
        ];
        for (path, meaning) in cases {
            assert_eq!(describe(path), meaning, "{path}");
        }
    }
}
