//! Claims about pod ranges and routes: who has which, and where the cloud leads them.

use std::collections::BTreeSet;

use bowline_local::RouteRecord;
use ipnet::IpNet;
use kube::ResourceExt as _;

use super::Snapshot;
use crate::objects::Node;

/// What stands in front of a machine's ID in a provider ID.
const SCHEME: &str = "local://";

/// Every Node has a range, and no two have the same.
pub(super) fn own_ranges(snapshot: &Snapshot) -> (bool, String) {
    let mut seen = BTreeSet::new();
    for node in &snapshot.nodes {
        if node.spec.pod_cidrs.is_empty() {
            return (false, format!("{} has none", node.name_any()));
        }
        if let Some(shared) = node.spec.pod_cidrs.iter().find(|range| !seen.insert(range.as_str())) {
            return (false, format!("{} has {shared}, and so has another", node.name_any()));
        }
    }
    (!seen.is_empty(), format!("{} ranges", seen.len()))
}

/// Each range of each Node leads to its machine, and there are no other routes.
pub(super) fn all_led(snapshot: &Snapshot) -> (bool, String) {
    if let (false, seen) = own_ranges(snapshot) {
        return (false, seen);
    }
    let missing = |node: &Node| {
        let machine = node.spec.provider_id.as_deref().and_then(|id| id.strip_prefix(SCHEME)).unwrap_or_default();
        let is_missing = |range: &&String| !snapshot.routes.iter().any(|route| leads(route, range, machine));
        let range = node.spec.pod_cidrs.iter().find(is_missing)?;
        Some(format!("no route leads {range} to {machine:?}, which is {}", node.name_any()))
    };
    if let Some(missing) = snapshot.nodes.iter().find_map(missing) {
        return (false, missing);
    }
    let ranges: usize = snapshot.nodes.iter().map(|node| node.spec.pod_cidrs.len()).sum();
    (snapshot.routes.len() == ranges, format!("{} routes for {ranges} ranges", snapshot.routes.len()))
}

/// No route leads to this machine, nor did before it was gone.
pub(super) fn none_to(snapshot: &Snapshot, machine: &str) -> (bool, String) {
    match snapshot.routes.iter().find(|route| route.spec.machine == machine) {
        Some(route) => (false, format!("{} leads there", route.spec.destination)),
        None => (true, "none does".to_owned()),
    }
}

fn leads(route: &RouteRecord, range: &str, machine: &str) -> bool {
    let range: Option<IpNet> = range.parse().ok();
    !route.blackhole && route.spec.machine == machine && range == Some(route.spec.destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use serde_json::json;

    /// Nodes and their ranges.
    type Nodes<'a> = &'a [(&'a str, &'a [&'a str])];

    /// Ranges and the machines that they are led to.
    type Routes<'a> = &'a [(&'a str, &'a str)];

    /// Nodes on machines of the same names with these ranges, and routes from ranges to machines.
    fn snapshot(nodes: Nodes<'_>, routes: Routes<'_>) -> Snapshot {
        let node = |(name, ranges): &(&str, &[&str])| {
            let spec = json!({"providerID": format!("local://{name}"), "podCIDRs": ranges});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let route = |(range, machine): &(&str, &str)| {
            let blackhole = *machine == "gone";
            let value = json!({"id": range, "destination": range, "machine": machine, "blackhole": blackhole});
            serde_json::from_value(value).unwrap()
        };
        let (nodes, routes) = (nodes.iter().map(node).collect(), routes.iter().map(route).collect());
        Snapshot { nodes, routes, ..Snapshot::default() }
    }

    #[test]
    fn every_node_has_a_range_that_no_other_has() {
        let cases: [(Nodes<'_>, Result<(), &str>); 4] = [
            (&[("a", &["10.0.1.0/24"]), ("b", &["10.0.2.0/24", "fd00:2::/64"])], Ok(())),
            (&[("a", &["10.0.1.0/24"]), ("b", &[])], Err("b has none")),
            (&[("a", &["10.0.1.0/24"]), ("b", &["10.0.1.0/24"])], Err("b has 10.0.1.0/24, and so has another")),
            (&[], Err("0 ranges")),
        ];
        for (nodes, outcome) in cases {
            assert_eq!(Claim::OwnPodRanges.check(&snapshot(nodes, &[])), outcome.map_err(str::to_owned), "{nodes:?}");
        }
    }

    #[test]
    fn every_range_is_led_to_its_node_and_nothing_else_is() {
        let nodes: [(&str, &[&str]); 2] = [("a", &["10.0.1.0/24"]), ("b", &["10.0.2.0/24"])];
        let (a, b) = (("10.0.1.0/24", "a"), ("10.0.2.0/24", "b"));
        let cases: [(Routes<'_>, Result<(), &str>); 5] = [
            (&[a, b], Ok(())),
            (&[a], Err(r#"no route leads 10.0.2.0/24 to "b", which is b"#)),
            (&[a, ("10.0.2.0/24", "a")], Err(r#"no route leads 10.0.2.0/24 to "b", which is b"#)),
            (&[a, ("10.0.2.0/24", "gone")], Err(r#"no route leads 10.0.2.0/24 to "b", which is b"#)),
            (&[a, b, ("10.0.3.0/24", "gone")], Err("3 routes for 2 ranges")),
        ];
        for (routes, outcome) in cases {
            let checked = Claim::AllLed.check(&snapshot(&nodes, routes));
            assert_eq!(checked, outcome.map_err(str::to_owned), "{routes:?}");
        }
        assert!(Claim::AllLed.check(&snapshot(&[], &[])).is_err(), "nothing is said of no Nodes");
    }

    #[test]
    fn a_route_to_nowhere_still_leads_to_its_machine() {
        let snapshot = snapshot(&[], &[("10.0.3.0/24", "gone")]);
        assert_eq!(Claim::NoRouteTo("gone".to_owned()).check(&snapshot), Err("10.0.3.0/24 leads there".to_owned()));
        assert_eq!(Claim::NoRouteTo("other".to_owned()).check(&snapshot), Ok(()));
    }
}
