//! What is to be done in one namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    /// To this address, which is on a network of the namespace.
    Via(IpAddr),
    /// Nowhere.
    Blackhole,
}

/// The routes that a namespace should have, each range once.
pub(super) type Routes = BTreeMap<IpNet, Hop>;

/// A route of ours that a namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) destination: IpNet,
    /// `None` if it leads elsewhere than we ever lead one.
    pub(super) hop: Option<Hop>,
    /// The kernel can have several of a range, told apart by this.
    pub(super) priority: u32,
}

/// What goes, and then what comes.
///
/// A route that leads elsewhere now is removed and made, not replaced: what the kernel replaces is the first of the same
/// range and priority, whoever made it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) remove: Vec<Found>,
    pub(super) add: Vec<(IpNet, Hop)>,
}

/// Compares what should be with what there is of ours.
pub(super) fn diff(wanted: &Routes, found: &[Found]) -> Plan {
    let mut kept = BTreeSet::new();
    let is_right = |route: &Found| route.hop.is_some() && wanted.get(&route.destination).copied() == route.hop;
    let remove = found.iter().filter(|route| !(is_right(route) && kept.insert(route.destination))).copied().collect();
    let add =
        wanted.iter().filter(|(destination, _)| !kept.contains(destination)).map(|(to, hop)| (*to, *hop)).collect();
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
    fn what_is_missing_comes_in_both_families() {
        let wanted = Routes::from([(net("10.0.1.0/24"), via("192.0.2.1")), (net("fd00:1::/64"), via("fd00::1"))]);
        let plan = diff(&wanted, &[]);
        assert_eq!(plan.remove, []);
        assert_eq!(plan.add, [(net("10.0.1.0/24"), via("192.0.2.1")), (net("fd00:1::/64"), via("fd00::1"))]);
    }

    #[test]
    fn what_is_right_stays() {
        let wanted = Routes::from([(net("10.0.1.0/24"), via("192.0.2.1")), (net("10.0.2.0/24"), Hop::Blackhole)]);
        let there = [found("10.0.1.0/24", Some(via("192.0.2.1")), 0), found("10.0.2.0/24", Some(Hop::Blackhole), 0)];
        assert_eq!(diff(&wanted, &there), Plan::default());
    }

    #[test]
    fn what_nobody_wants_goes() {
        let there = [found("10.0.1.0/24", Some(via("192.0.2.1")), 0), found("fd00:1::/64", None, 1024)];
        assert_eq!(diff(&Routes::default(), &there), Plan { remove: there.to_vec(), add: Vec::new() });
    }

    #[test]
    fn what_leads_elsewhere_goes_and_comes_again() {
        let wanted = Routes::from([(net("10.0.1.0/24"), via("192.0.2.2"))]);
        for hop in [Some(via("192.0.2.1")), Some(Hop::Blackhole), None] {
            let there = found("10.0.1.0/24", hop, 0);
            let plan = diff(&wanted, &[there]);
            assert_eq!(plan, Plan { remove: vec![there], add: vec![(net("10.0.1.0/24"), via("192.0.2.2"))] });
        }
    }

    #[test]
    fn of_two_that_are_alike_one_stays() {
        let wanted = Routes::from([(net("10.0.1.0/24"), via("192.0.2.1"))]);
        let twice = [5, 7].map(|priority| found("10.0.1.0/24", Some(via("192.0.2.1")), priority));
        assert_eq!(diff(&wanted, &twice), Plan { remove: vec![twice[1]], add: Vec::new() });
    }

    #[test]
    fn ranges_that_hold_each_other_have_nothing_to_do_with_each_other() {
        let wanted = Routes::from([(net("10.0.0.0/16"), via("192.0.2.1"))]);
        let narrow = found("10.0.0.0/24", Some(via("192.0.2.1")), 0);
        let plan = diff(&wanted, &[narrow]);
        assert_eq!(plan, Plan { remove: vec![narrow], add: vec![(net("10.0.0.0/16"), via("192.0.2.1"))] });
    }
}
