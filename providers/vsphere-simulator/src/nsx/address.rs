//! Paths of the policy API.

use bowline_simulator::{Call, Operation};

/// Collections directly below `/infra`.
const TOP: [&str; 8] = [
    "lb-monitor-profiles",
    "lb-pools",
    "lb-virtual-servers",
    "lb-services",
    "lb-app-profiles",
    "ip-pools",
    "tier-0s",
    "tier-1s",
];

/// Those of a project; there are no load balancers in it.
const IN_PROJECT: [&str; 2] = ["ip-pools", "tier-1s"];

/// Collections below an object of another collection.
const NESTED: [(&str, &str); 3] =
    [("ip-pools", "ip-allocations"), ("tier-0s", "static-routes"), ("tier-1s", "static-routes")];

/// All collections.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    TOP.into_iter().chain(["ip-allocations", "static-routes"])
}

/// Address of a collection or an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Address {
    /// Name of the collection, the kind of its records.
    pub(crate) kind: &'static str,
    /// `/infra`, or the same of a project.
    pub(crate) root: String,
    /// Path of the object that the collection belongs to; `None` for a collection of the root.
    pub(crate) parent: Option<String>,
    /// ID of the object; `None` for the collection.
    pub(crate) id: Option<String>,
}

impl Address {
    /// Parses the segments of a policy path.
    pub(crate) fn parse(segments: &[&str]) -> Option<Address> {
        let (root, rest) = split_root(segments)?;
        let collections = if root == "/infra" { TOP.as_slice() } else { &IN_PROJECT };
        let top = |name: &str| collections.iter().find(|known| **known == name).copied();
        let nested = |of: &str, name: &str| {
            let nested = NESTED.into_iter().find(|known| *known == (of, name) && top(of).is_some());
            nested.map(|(_, name)| name)
        };
        let (kind, parent, id) = match rest {
            [kind] => (top(kind)?, None, None),
            [kind, id] => (top(kind)?, None, Some((*id).to_owned())),
            [of, owner, kind] => (nested(of, kind)?, Some(format!("{root}/{of}/{owner}")), None),
            [of, owner, kind, id] => (nested(of, kind)?, Some(format!("{root}/{of}/{owner}")), Some((*id).to_owned())),
            _ => return None,
        };
        Some(Address { kind, root, parent, id })
    }

    /// Parses a policy path, such as `/infra/lb-pools/web`.
    pub(crate) fn of(path: &str) -> Option<Address> {
        Address::parse(&path.strip_prefix('/')?.split('/').collect::<Vec<_>>())
    }

    /// Path of the collection's owner: an object or the root.
    pub(crate) fn owner(&self) -> &str {
        self.parent.as_deref().unwrap_or(&self.root)
    }

    /// Path of the collection or the object.
    pub(crate) fn path(&self) -> String {
        let collection = format!("{}/{}", self.owner(), self.kind);
        self.id.iter().fold(collection, |path, id| format!("{path}/{id}"))
    }
}

/// Splits a path into its root, such as `/infra` or `/orgs/<org>/projects/<project>/infra`, and the rest.
pub(crate) fn split_root<'a, 'b>(segments: &'b [&'a str]) -> Option<(String, &'b [&'a str])> {
    match segments {
        ["infra", rest @ ..] => Some(("/infra".to_owned(), rest)),
        ["orgs", org, "projects", project, "infra", rest @ ..] => {
            Some((format!("/orgs/{org}/projects/{project}/infra"), rest))
        }
        _ => None,
    }
}

/// Segments without the prefix of the policy API.
pub(crate) fn segments(call: &Call) -> Vec<&str> {
    let segments = call.segments();
    segments.strip_prefix(&["policy", "api", "v1"]).map(<[&str]>::to_vec).unwrap_or(segments)
}

/// Classifies a call: the path without the prefix, with `{id}` for IDs, as in `infra/ip-pools/{id}/ip-allocations/{id}`.
pub(crate) fn operation(call: &Call) -> Operation {
    let segments = segments(call);
    let has_ids = |name: &str| {
        TOP.contains(&name) || name == "orgs" || name == "projects" || NESTED.iter().any(|(_, kind)| *kind == name)
    };
    let mut template: Vec<&str> = Vec::new();
    for segment in &segments {
        let is_id = template.last().is_some_and(|last| has_ids(last));
        template.push(if is_id { "{id}" } else { segment });
    }
    let is_write = !call.is_read() && segments.first().is_some_and(|first| ["infra", "orgs"].contains(first));
    Operation { part: "", template: template.join("/"), path: segments.join("/"), is_write }
}
