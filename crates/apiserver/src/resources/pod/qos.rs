//! Quality-of-service class of a Pod, from the requests and limits of its containers.

use std::cmp::Ordering;

use serde_json::Value;

use crate::quantity;
use crate::value::Json;

const GUARANTEED: &str = "Guaranteed";
const BURSTABLE: &str = "Burstable";
const BEST_EFFORT: &str = "BestEffort";

/// Returns the QoS class of a Pod with this spec.
pub(super) fn class(spec: &Value) -> &'static str {
    let pod_level = spec.at("resources");
    if pod_level.map("requests").or(pod_level.map("limits")).is_some_and(|amounts| !amounts.is_empty()) {
        return of_resources(pod_level);
    }
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| spec.list(list));
    combined(containers.map(|container| of_resources(container.at("resources")))).unwrap_or(BEST_EFFORT)
}

/// Combines classes: the common class if all are equal, else `Burstable`.
fn combined(mut classes: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let first = classes.next()?;
    Some(if classes.all(|class| class == first) { first } else { BURSTABLE })
}

fn of_resources(resources: &Value) -> &'static str {
    let of = |name: &str| of_amounts(amount(resources, "requests", name), amount(resources, "limits", name));
    let has_resources = ["requests", "limits"].iter().any(|list| resources.has(list));
    match (has_resources, combined(["cpu", "memory"].into_iter().map(of))) {
        (true, Some(class)) => class,
        _ => BEST_EFFORT,
    }
}

/// Returns the request or limit of a resource, `0` if absent.
fn amount<'a>(resources: &'a Value, list: &str, name: &str) -> &'a str {
    match resources.at(list).text(name) {
        "" => "0",
        amount => amount,
    }
}

fn of_amounts(request: &str, limit: &str) -> &'static str {
    match (quantity::compare(request, limit), quantity::sign(request)) {
        (Ordering::Equal, Ordering::Equal) => BEST_EFFORT,
        (Ordering::Equal, _) => GUARANTEED,
        _ => BURSTABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn class_follows_requests_and_limits() {
        let full = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"}});
        let table = [
            (json!([{}]), BEST_EFFORT),
            (json!([{"resources": {}}]), BEST_EFFORT),
            (json!([{"resources": full}]), GUARANTEED),
            (json!([{"resources": full}, {"resources": full}]), GUARANTEED),
            (json!([{"resources": full}, {}]), BURSTABLE),
            (json!([{"resources": {"requests": {"cpu": "1"}}}]), BURSTABLE),
            (json!([{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]), BURSTABLE),
            (json!([{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]), BEST_EFFORT),
        ];
        for (containers, expected) in table {
            assert_eq!(class(&json!({"containers": containers})), expected, "{containers}");
        }
    }

    #[test]
    fn pod_level_resources_take_precedence() {
        let spec = json!({
            "resources": {"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        });
        assert_eq!(class(&spec), GUARANTEED);
    }
}
