//! What containers ask for and may use: `resources` and its like.

use serde_json::{Map, Value};

use crate::quantity;
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// What the names of resources may be.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Container,
    Pod,
}

pub(super) fn validate(resources: &Value, scope: Scope, at: Path<'_>, found: &mut Findings) {
    let (limits, requests) = (resources.map("limits"), resources.map("requests"));
    let (limits_at, requests_at) = (at.child("limits"), at.child("requests"));
    for (name, amount) in amounts(limits) {
        one(name, amount, scope, limits_at.key(name), found);
    }
    for (name, amount) in amounts(requests) {
        one(name, amount, scope, requests_at.key(name), found);
        let limit = limits.and_then(|l| l.get(name)).and_then(Value::as_str);
        within_limit(name, amount, limit, limits_at, requests_at, found);
    }
    let named = |wanted: fn(&str) -> bool| amounts(limits).chain(amounts(requests)).any(|(name, _)| wanted(name));
    if named(is_huge_pages) && !named(|name| matches!(name, "cpu" | "memory")) {
        found.forbidden(at, "HugePages require cpu or memory");
    }
}

/// Amounts alone, as in `overhead`: checked like limits.
pub(super) fn validate_limits(limits: &Value, at: Path<'_>, found: &mut Findings) {
    let at = at.child("limits");
    for (name, amount) in amounts(limits.as_object()) {
        one(name, amount, Scope::Container, at.key(name), found);
    }
}

fn amounts(list: Option<&Map<String, Value>>) -> impl Iterator<Item = (&str, &str)> {
    list.into_iter().flatten().map(|(name, amount)| (name.as_str(), amount.as_str().unwrap_or_default()))
}

fn one(name: &str, amount: &str, scope: Scope, at: Path<'_>, found: &mut Findings) {
    match scope {
        Scope::Container => container_resource(name, at, found),
        Scope::Pod => pod_resource(name, at, found),
    }
    if quantity::is_negative(amount) {
        found.invalid(at, amount, validation::NOT_NEGATIVE);
    }
    if validation::is_extended_resource(name) && quantity::milli(amount) % 1000 != 0 {
        found.invalid(at, amount, "must be an integer");
    }
    if is_huge_pages(name) && !is_whole_pages(name, amount) {
        found.invalid(at, amount, format!("{amount} is not positive integer multiple of {name}"));
    }
}

fn within_limit(
    name: &str,
    request: &str,
    limit: Option<&str>,
    limits_at: Path<'_>,
    requests_at: Path<'_>,
    found: &mut Findings,
) {
    let overcommit = is_native(name) && !is_huge_pages(name);
    match limit {
        None if !overcommit => found.required(limits_at, "Limit must be set for non overcommitable resources"),
        None => {}
        Some(limit) if !overcommit && quantity::compare(request, limit).is_ne() => {
            found.invalid(requests_at, request, format!("must be equal to {name} limit of {limit}"));
        }
        Some(limit) if quantity::compare(request, limit).is_gt() => {
            found.invalid(requests_at, request, format!("must be less than or equal to {name} limit of {limit}"));
        }
        Some(_) => {}
    }
}

// === Names ===

const HUGE_PAGES: &str = "hugepages-";

fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

fn is_whole_pages(name: &str, amount: &str) -> bool {
    let size = quantity::whole(name.strip_prefix(HUGE_PAGES).unwrap_or_default());
    size > 0 && quantity::whole(amount) % size == 0
}

/// Defined by Kubernetes itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Resources that quotas and nodes know, beside those of containers.
const STANDARD: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_standard_for_containers(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name)
}

/// Checks a name in general; false if there is no point in looking further.
fn general_name(name: &str, at: Path<'_>, found: &mut Findings) -> bool {
    let complaints = validation::qualified_name(name);
    let known = is_standard_for_containers(name) || STANDARD.contains(&name) || name.starts_with("requests.hugepages-");
    if complaints.is_empty() && !name.contains('/') && !known {
        found.invalid(at, name, "must be a standard resource type or fully qualified");
        return false;
    }
    let sound = complaints.is_empty();
    found.form(at, name, complaints);
    sound
}

fn container_resource(name: &str, at: Path<'_>, found: &mut Findings) {
    general_name(name, at, found);
    if !name.contains('/') {
        if !is_standard_for_containers(name) {
            found.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !validation::is_extended_resource(name) {
        found.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource(name: &str, at: Path<'_>, found: &mut Findings) {
    if general_name(name, at, found) && !is_huge_pages(name) {
        found.one_of(at, name, &["cpu", "memory"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(resources: Value) -> Vec<String> {
        let mut found = Findings::default();
        validate(&resources, Scope::Container, Path::new("r"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn requests_stay_within_limits() {
        assert_eq!(complaints(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}})), Vec::<String>::new());
        assert_eq!(
            complaints(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            ["r.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"]
        );
        assert_eq!(
            complaints(json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}})),
            ["r.requests: Invalid value: \"1\": must be equal to nvidia.com/gpu limit of 2"]
        );
        assert_eq!(
            complaints(json!({"requests": {"nvidia.com/gpu": "1"}})),
            ["r.limits: Required value: Limit must be set for non overcommitable resources"]
        );
    }

    #[test]
    fn amounts_are_checked() {
        assert_eq!(
            complaints(json!({"limits": {"cpu": "-1"}})),
            ["r.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"]
        );
        assert_eq!(
            complaints(json!({"limits": {"example.com/x": "500m"}})),
            ["r.limits[example.com/x]: Invalid value: \"500m\": must be an integer"]
        );
        assert_eq!(complaints(json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}})).len(), 1);
        assert_eq!(
            complaints(json!({"limits": {"hugepages-2Mi": "2Mi"}})),
            ["r: Forbidden: HugePages require cpu or memory"]
        );
    }

    #[test]
    fn names_are_known_or_qualified() {
        assert_eq!(
            complaints(json!({"limits": {"bogus": "1"}})),
            [
                "r.limits[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified",
                "r.limits[bogus]: Invalid value: \"bogus\": must be a standard resource for containers"
            ]
        );
        assert_eq!(
            complaints(json!({"limits": {"pods": "1"}})),
            ["r.limits[pods]: Invalid value: \"pods\": must be a standard resource for containers"]
        );
    }
}
