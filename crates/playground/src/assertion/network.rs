//! Assertions about pod CIDRs and routes.

use std::collections::BTreeSet;

use bowline_local::RouteRecord;
use ipnet::IpNet;
use kube::ResourceExt as _;

use super::Snapshot;
use crate::objects::Node;

/// Prefix of a provider ID, before the machine ID.
const SCHEME: &str = "local://";

/// Every Node has a pod CIDR, and no two Nodes share one.
pub(super) fn unique_pod_cidrs(snapshot: &Snapshot) -> (bool, String) {
    let mut seen = BTreeSet::new();
    for node in &snapshot.nodes {
        if node.spec.pod_cidrs.is_empty() {
            return (false, format!("{} has no pod CIDR", node.name_any()));
        }
        if let Some(shared) = node.spec.pod_cidrs.iter().find(|range| !seen.insert(range.as_str())) {
            return (false, format!("{} and another Node have the pod CIDR {shared}", node.name_any()));
        }
    }
    (!seen.is_empty(), format!("{} pod CIDRs", seen.len()))
}

/// Every pod CIDR has a route to the machine of its Node, and there are no other routes.
pub(super) fn all_routed(snapshot: &Snapshot) -> (bool, String) {
    if let (false, observed) = unique_pod_cidrs(snapshot) {
        return (false, observed);
    }
    let missing = |node: &Node| {
        let machine = node.spec.provider_id.as_deref().and_then(|id| id.strip_prefix(SCHEME)).unwrap_or_default();
        let is_missing = |range: &&String| !snapshot.routes.iter().any(|route| is_route_to(route, range, machine));
        let range = node.spec.pod_cidrs.iter().find(is_missing)?;
        Some(format!("{range} of {} has no route to {machine:?}", node.name_any()))
    };
    if let Some(missing) = snapshot.nodes.iter().find_map(missing) {
        return (false, missing);
    }
    let ranges: usize = snapshot.nodes.iter().map(|node| node.spec.pod_cidrs.len()).sum();
    (snapshot.routes.len() == ranges, format!("{} routes for {ranges} pod CIDRs", snapshot.routes.len()))
}

/// There is no route to this machine, including blackholes.
pub(super) fn no_route_to(snapshot: &Snapshot, machine: &str) -> (bool, String) {
    match snapshot.routes.iter().find(|route| route.spec.machine == machine) {
        Some(route) => (false, format!("{} has a route to it", route.spec.destination)),
        None => (true, "no route".to_owned()),
    }
}

fn is_route_to(route: &RouteRecord, range: &str, machine: &str) -> bool {
    let range: Option<IpNet> = range.parse().ok();
    !route.blackhole && route.spec.machine == machine && range == Some(route.spec.destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertion::Assertion;
    use serde_json::json;

    /// Nodes and their pod CIDRs.
    type Nodes<'a> = &'a [(&'a str, &'a [&'a str])];

    /// Destinations and the machines they are routed to.
    type Routes<'a> = &'a [(&'a str, &'a str)];

    /// Creates a snapshot of Nodes on machines of the same names, and routes.
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
    fn every_node_has_its_own_pod_cidr() {
        let cases: [(Nodes<'_>, Result<(), &str>); 4] = [
            (&[("a", &["10.0.1.0/24"]), ("b", &["10.0.2.0/24", "fd00:2::/64"])], Ok(())),
            (&[("a", &["10.0.1.0/24"]), ("b", &[])], Err("b has no pod CIDR")),
            (
                &[("a", &["10.0.1.0/24"]), ("b", &["10.0.1.0/24"])],
                Err("b and another Node have the pod CIDR 10.0.1.0/24"),
            ),
            (&[], Err("0 pod CIDRs")),
        ];
        for (nodes, outcome) in cases {
            assert_eq!(
                Assertion::UniquePodCidrs.check(&snapshot(nodes, &[])),
                outcome.map_err(str::to_owned),
                "{nodes:?}"
            );
        }
    }

    #[test]
    fn every_pod_cidr_has_a_route_to_its_node_and_there_are_no_other_routes() {
        let nodes: [(&str, &[&str]); 2] = [("a", &["10.0.1.0/24"]), ("b", &["10.0.2.0/24"])];
        let (a, b) = (("10.0.1.0/24", "a"), ("10.0.2.0/24", "b"));
        let cases: [(Routes<'_>, Result<(), &str>); 5] = [
            (&[a, b], Ok(())),
            (&[a], Err(r#"10.0.2.0/24 of b has no route to "b""#)),
            (&[a, ("10.0.2.0/24", "a")], Err(r#"10.0.2.0/24 of b has no route to "b""#)),
            (&[a, ("10.0.2.0/24", "gone")], Err(r#"10.0.2.0/24 of b has no route to "b""#)),
            (&[a, b, ("10.0.3.0/24", "gone")], Err("3 routes for 2 pod CIDRs")),
        ];
        for (routes, outcome) in cases {
            let checked = Assertion::AllRouted.check(&snapshot(&nodes, routes));
            assert_eq!(checked, outcome.map_err(str::to_owned), "{routes:?}");
        }
        assert!(Assertion::AllRouted.check(&snapshot(&[], &[])).is_err(), "fails without Nodes");
    }

    #[test]
    fn a_blackhole_counts_as_a_route_to_its_machine() {
        let snapshot = snapshot(&[], &[("10.0.3.0/24", "gone")]);
        assert_eq!(
            Assertion::NoRouteTo("gone".to_owned()).check(&snapshot),
            Err("10.0.3.0/24 has a route to it".to_owned())
        );
        assert_eq!(Assertion::NoRouteTo("other".to_owned()).check(&snapshot), Ok(()));
    }
}
