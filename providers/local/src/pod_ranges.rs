//! Which pod ranges the cloud itself leads to which machine, found by address.
//!
//! Clouds that give every machine a range of its own need no routes; they tell the range instead. No two machines have
//! addresses in common, so the ranges lie beside each other, and what a range overlaps with is found next to it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::cloud::{CloudError, NewMachine};

/// What the assignment of a range to a machine is counted as.
pub(crate) const ASSIGN: &str = "assign-pod-range";

/// The pod ranges of all machines, by their first addresses, with the machines' IDs.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodRanges {
    ranges: BTreeMap<IpAddr, (IpNet, String)>,
}

impl PodRanges {
    /// Whether a machine can have its ranges, whichever it has now.
    pub(crate) fn check(&self, machine: &NewMachine) -> Result<(), CloudError> {
        for (index, range) in machine.pod_ranges.iter().enumerate() {
            if let Some(twin) = machine.pod_ranges.iter().take(index).find(|other| overlap(range, other)) {
                let message = format!("the pod ranges {twin} and {range} of the machine {:?} overlap", machine.id);
                return Err(CloudError::Invalid(message));
            }
            if let Some((taken, holder)) = self.overlapping(range).find(|(_, holder)| *holder != machine.id) {
                return Err(CloudError::PodRangeTaken(*range, *taken, holder.clone()));
            }
        }
        Ok(())
    }

    /// It has these ranges now.
    pub(crate) fn put(&mut self, machine: &NewMachine) {
        let held = machine.pod_ranges.iter().map(|range| (range.network(), (*range, machine.id.clone())));
        self.ranges.extend(held);
    }

    /// It has none any more.
    pub(crate) fn forget(&mut self, machine: &NewMachine) {
        for range in &machine.pod_ranges {
            self.ranges.remove(&range.network());
        }
    }

    fn overlapping(&self, range: &IpNet) -> impl Iterator<Item = &(IpNet, String)> {
        let before = self.ranges.range(..range.network()).next_back();
        let before = before.filter(|(_, (other, _))| other.contains(&range.network()));
        before.into_iter().chain(self.ranges.range(range.network()..=range.broadcast())).map(|(_, held)| held)
    }
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(id: &str, ranges: &[&str]) -> NewMachine {
        let pod_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        NewMachine { id: id.to_owned(), pod_ranges, ..NewMachine::default() }
    }

    #[test]
    fn no_two_machines_have_addresses_in_common() {
        let mut held = PodRanges::default();
        held.put(&machine("a", &["10.1.0.0/24", "fd00:1::/64"]));
        held.put(&machine("b", &["10.1.4.0/22"]));
        let table = [
            ("10.1.0.0/24", Some("a")),
            ("10.1.0.0/25", Some("a")),
            ("10.1.0.128/25", Some("a")),
            ("10.1.0.0/20", Some("a")),
            ("10.1.4.0/30", Some("b")),
            ("10.1.7.255/32", Some("b")),
            ("10.1.2.0/23", None),
            ("10.1.8.0/24", None),
            ("10.0.255.0/24", None),
            ("0.0.0.0/0", Some("a")),
            ("fd00:1::8000:0/97", Some("a")),
            ("fd00:1:0:1::/64", None),
            ("::/0", Some("a")),
        ];
        for (range, wanted) in table {
            let taken = held.check(&machine("c", &[range])).err();
            let holder = taken.as_ref().map(|error| match error {
                CloudError::PodRangeTaken(_, _, holder) => holder.as_str(),
                other => panic!("{range}: {other}"),
            });
            assert_eq!(holder, wanted, "{range}");
        }
        // What is one's own is no hindrance, and what was given back is free.
        assert_eq!(held.check(&machine("a", &["10.1.0.0/23"])), Ok(()));
        held.forget(&machine("a", &["10.1.0.0/24", "fd00:1::/64"]));
        assert_eq!(held.check(&machine("c", &["10.1.0.0/24", "fd00:1::/64"])), Ok(()));
    }

    #[test]
    fn the_ranges_of_one_machine_do_not_overlap() {
        let held = PodRanges::default();
        assert!(matches!(held.check(&machine("a", &["10.0.0.0/8", "10.1.0.0/24"])), Err(CloudError::Invalid(_))));
        assert!(matches!(held.check(&machine("a", &["10.1.0.0/24", "10.1.0.0/24"])), Err(CloudError::Invalid(_))));
        assert_eq!(held.check(&machine("a", &["10.1.0.0/24", "fd00::/64"])), Ok(()));
    }

    #[test]
    fn what_overlaps_is_found_wherever_it_lies() {
        let mut chance = fastrand::Rng::with_seed(3);
        let mut any = || format!("10.0.{}.{}/{}", chance.u8(..4), chance.u8(..), chance.u8(16..=32)).parse::<IpNet>();
        for _ in 0..300 {
            let (mut held, mut all) = (PodRanges::default(), Vec::<IpNet>::new());
            for index in 0..20 {
                let range = any().unwrap().trunc();
                let machine = NewMachine { id: index.to_string(), pod_ranges: vec![range], ..NewMachine::default() };
                let free = all.iter().all(|other| !overlap(&range, other));
                assert_eq!(held.check(&machine).is_ok(), free, "{range} beside {all:?}");
                if free {
                    held.put(&machine);
                    all.push(range);
                }
            }
        }
    }
}
