//! Route changes in one namespace.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::kernel_routes::{Hop, Routes};

/// Route of this program in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) destination: IpNet,
    /// Next hop; `None` if it is of another kind.
    pub(super) hop: Option<Hop>,
    /// Priority, which distinguishes routes with the same destination.
    pub(super) priority: u32,
}

/// Routes to remove, and then routes to add.
///
/// A route with a new next hop is removed and added, not replaced: the kernel replaces the first route with the same destination
/// and priority, which another program may have created.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) remove: Vec<Found>,
    pub(super) add: Vec<(IpNet, Hop)>,
}

/// Compares desired and existing routes of this program.
pub(super) fn diff(desired: &Routes, found: &[Found]) -> Plan {
    let mut kept = BTreeSet::new();
    let is_correct = |route: &Found| route.hop.is_some() && desired.get(&route.destination).copied() == route.hop;
    let remove = found.iter().filter(|route| !(is_correct(route) && kept.insert(route.destination))).copied().collect();
    let add =
        desired.iter().filter(|(destination, _)| !kept.contains(destination)).map(|(to, hop)| (*to, *hop)).collect();
    Plan { remove, add }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn via(text: &str) -> Hop {
        Hop::Via(text.parse().unwrap())
    }

    fn found(destination: &str, hop: Option<Hop>, priority: u32) -> Found {
        Found { destination: net(destination), hop, priority }
    }

    #[test]
    fn missing_routes_are_added_in_both_families() {
        let desired = Routes::from([(net("10.0.1.0/24"), via("192.0.2.1")), (net("fd00:1::/64"), via("fd00::1"))]);
        let plan = diff(&desired, &[]);
        assert_eq!(plan.remove, []);
        assert_eq!(plan.add, [(net("10.0.1.0/24"), via("192.0.2.1")), (net("fd00:1::/64"), via("fd00::1"))]);
    }

    #[test]
    fn correct_routes_are_kept() {
        let desired = Routes::from([(net("10.0.1.0/24"), via("192.0.2.1")), (net("10.0.2.0/24"), Hop::Blackhole)]);
        let there = [found("10.0.1.0/24", Some(via("192.0.2.1")), 0), found("10.0.2.0/24", Some(Hop::Blackhole), 0)];
        assert_eq!(diff(&desired, &there), Plan::default());
    }

    #[test]
    fn undesired_routes_are_removed() {
        let there = [found("10.0.1.0/24", Some(via("192.0.2.1")), 0), found("fd00:1::/64", None, 1024)];
        assert_eq!(diff(&Routes::default(), &there), Plan { remove: there.to_vec(), add: Vec::new() });
    }

    #[test]
    fn a_route_with_another_next_hop_is_removed_and_added() {
        let desired = Routes::from([(net("10.0.1.0/24"), via("192.0.2.2"))]);
        for hop in [Some(via("192.0.2.1")), Some(Hop::Blackhole), None] {
            let there = found("10.0.1.0/24", hop, 0);
            let plan = diff(&desired, &[there]);
            assert_eq!(plan, Plan { remove: vec![there], add: vec![(net("10.0.1.0/24"), via("192.0.2.2"))] });
        }
    }

    #[test]
    fn one_of_two_equal_routes_is_kept() {
        let desired = Routes::from([(net("10.0.1.0/24"), via("192.0.2.1"))]);
        let twice = [5, 7].map(|priority| found("10.0.1.0/24", Some(via("192.0.2.1")), priority));
        assert_eq!(diff(&desired, &twice), Plan { remove: vec![twice[1]], add: Vec::new() });
    }

    #[test]
    fn nested_destinations_are_independent() {
        let desired = Routes::from([(net("10.0.0.0/16"), via("192.0.2.1"))]);
        let narrow = found("10.0.0.0/24", Some(via("192.0.2.1")), 0);
        let plan = diff(&desired, &[narrow]);
        assert_eq!(plan, Plan { remove: vec![narrow], add: vec![(net("10.0.0.0/16"), via("192.0.2.1"))] });
    }
}
