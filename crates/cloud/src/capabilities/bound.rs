//! Capabilities as an upper bound: facts from the cloud may lower what the configuration allows, not raise it.

use serde_json::Value;

use super::Capabilities;

impl Capabilities {
    /// Returns the path of the first capability that exceeds `bound`, such as `load_balancers.kinds.internal.udp`.
    pub fn exceeds(&self, bound: &Capabilities) -> Option<String> {
        // Plain structs always serialize to JSON.
        let (claimed, bound) = (serde_json::to_value(self).ok()?, serde_json::to_value(bound).ok()?);
        first_excess("", &claimed, &bound)
    }
}

fn first_excess(path: &str, claimed: &Value, bound: &Value) -> Option<String> {
    let field = path.rsplit('.').next().unwrap_or_default();
    let is_excess = match (claimed, bound) {
        (Value::Object(claimed), Value::Object(_)) => {
            return claimed.iter().find_map(|(field, value)| first_excess(&join(path, field), value, &bound[field]));
        }
        (Value::Array(claimed), Value::Array(bound)) if field == "kinds" => {
            return excess_in_kinds(path, claimed, bound);
        }
        (Value::Array(claimed), Value::Array(bound)) => claimed.iter().any(|one| !bound.contains(one)),
        (Value::Bool(claimed), Value::Bool(bound)) => *claimed && !bound,
        (Value::Number(claimed), Value::Number(bound)) => claimed.as_u64() > bound.as_u64(),
        // A missing maximum means no limit; any other missing value means no capability.
        (Value::Null, bound) => field.starts_with("max_") && !bound.is_null(),
        (_, Value::Null) => !field.starts_with("max_"),
        (claimed, bound) => claimed != bound,
    };
    is_excess.then(|| path.to_owned())
}

fn excess_in_kinds(path: &str, claimed: &[Value], bound: &[Value]) -> Option<String> {
    claimed.iter().find_map(|kind| {
        let path = join(path, kind["name"].as_str().unwrap_or_default());
        match bound.iter().find(|other| other["name"] == kind["name"]) {
            Some(other) => first_excess(&path, kind, other),
            None => Some(path),
        }
    })
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests {
    use bowline_core::IpFamily;

    use super::*;
    use crate::{InstanceCapabilities, LoadBalancerCapabilities, LoadBalancerKind, RouteCapabilities};

    fn bound() -> Capabilities {
        let internal =
            LoadBalancerKind { name: "internal", tcp: true, max_ports: Some(10), ..LoadBalancerKind::default() };
        let external = LoadBalancerKind { name: "external", udp: true, ..internal.clone() };
        let kinds = vec![external, internal];
        Capabilities {
            instances: Some(InstanceCapabilities { list_page: Some(100), ..InstanceCapabilities::default() }),
            load_balancers: Some(LoadBalancerCapabilities {
                marks_uid: true,
                batch_observe: 5,
                fixed_kind: false,
                kinds,
            }),
            routes: None,
        }
    }

    type Change = fn(&mut Capabilities);

    fn changed(change: Change) -> Option<String> {
        let mut claimed = bound();
        change(&mut claimed);
        claimed.exceeds(&bound())
    }

    fn kinds(claimed: &mut Capabilities) -> &mut Vec<LoadBalancerKind> {
        &mut claimed.load_balancers.as_mut().unwrap().kinds
    }

    #[test]
    fn lower_capabilities_are_within_the_bound() {
        let lower: [Change; 6] = [
            |_| (),
            |claimed| *claimed = Capabilities::default(),
            |claimed| claimed.instances.as_mut().unwrap().list_page = None,
            |claimed| claimed.load_balancers.as_mut().unwrap().batch_observe = 1,
            |claimed| drop(kinds(claimed).remove(0)),
            |claimed| (kinds(claimed)[0].udp, kinds(claimed)[1].max_ports) = (false, Some(9)),
        ];
        assert!(lower.into_iter().all(|change| changed(change).is_none()));
    }

    #[test]
    fn a_higher_capability_is_reported_with_its_path() {
        let higher: [(Change, &str); 7] = [
            (|claimed| claimed.routes = Some(RouteCapabilities::default()), "routes"),
            (|claimed| claimed.instances.as_mut().unwrap().batch_lookup = 2, "instances.batch_lookup"),
            (|claimed| claimed.instances.as_mut().unwrap().zones = true, "instances.zones"),
            (|claimed| kinds(claimed)[1].udp = true, "load_balancers.kinds.internal.udp"),
            (|claimed| kinds(claimed)[0].max_ports = None, "load_balancers.kinds.external.max_ports"),
            (|claimed| kinds(claimed)[0].name = "other", "load_balancers.kinds.other"),
            (|claimed| kinds(claimed)[0].ip_families.push(IpFamily::IPv6), "load_balancers.kinds.external.ip_families"),
        ];
        for (change, path) in higher {
            assert_eq!(changed(change).as_deref(), Some(path));
        }
    }
}
