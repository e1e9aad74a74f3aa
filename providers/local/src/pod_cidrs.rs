//! Pod CIDRs that the cloud itself routes to machines, indexed by address.
//!
//! Clouds that assign a pod CIDR to every machine need no routes; they report the CIDR instead. CIDRs of different machines do not
//! overlap, so those that overlap a given one are adjacent in the index.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::cloud::{CloudError, NewMachine};

/// Name under which the assignment is counted and faults are injected.
pub(crate) const ASSIGN: &str = "assign-pod-range";

/// Pod CIDRs of all machines by network address, with the IDs of the machines.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodCidrs {
    cidrs: BTreeMap<IpAddr, (IpNet, String)>,
}

impl PodCidrs {
    /// Checks that the pod CIDRs of a machine overlap neither each other nor those of other machines.
    pub(crate) fn check(&self, machine: &NewMachine) -> Result<(), CloudError> {
        for (index, cidr) in machine.pod_ranges.iter().enumerate() {
            if let Some(twin) = machine.pod_ranges.iter().take(index).find(|other| overlap(cidr, other)) {
                let message = format!("the pod CIDRs {twin} and {cidr} of the machine {:?} overlap", machine.id);
                return Err(CloudError::Invalid(message));
            }
            if let Some((taken, holder)) = self.overlapping(cidr).find(|(_, holder)| *holder != machine.id) {
                return Err(CloudError::PodCidrTaken(*cidr, *taken, holder.clone()));
            }
        }
        Ok(())
    }

    /// Adds the pod CIDRs of a machine.
    pub(crate) fn put(&mut self, machine: &NewMachine) {
        let held = machine.pod_ranges.iter().map(|cidr| (cidr.network(), (*cidr, machine.id.clone())));
        self.cidrs.extend(held);
    }

    /// Removes the pod CIDRs of a machine.
    pub(crate) fn forget(&mut self, machine: &NewMachine) {
        for cidr in &machine.pod_ranges {
            self.cidrs.remove(&cidr.network());
        }
    }

    fn overlapping(&self, cidr: &IpNet) -> impl Iterator<Item = &(IpNet, String)> {
        let before = self.cidrs.range(..cidr.network()).next_back();
        let before = before.filter(|(_, (other, _))| other.contains(&cidr.network()));
        before.into_iter().chain(self.cidrs.range(cidr.network()..=cidr.broadcast())).map(|(_, held)| held)
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
    fn pod_cidrs_of_different_machines_do_not_overlap() {
        let mut held = PodCidrs::default();
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
        for (range, expected) in table {
            let taken = held.check(&machine("c", &[range])).err();
            let holder = taken.as_ref().map(|error| match error {
                CloudError::PodCidrTaken(_, _, holder) => holder.as_str(),
                other => panic!("{range}: {other}"),
            });
            assert_eq!(holder, expected, "{range}");
        }
        // A machine's own CIDRs are no conflict, and released ones are free.
        assert_eq!(held.check(&machine("a", &["10.1.0.0/23"])), Ok(()));
        held.forget(&machine("a", &["10.1.0.0/24", "fd00:1::/64"]));
        assert_eq!(held.check(&machine("c", &["10.1.0.0/24", "fd00:1::/64"])), Ok(()));
    }

    #[test]
    fn pod_cidrs_of_one_machine_do_not_overlap() {
        let held = PodCidrs::default();
        assert!(matches!(held.check(&machine("a", &["10.0.0.0/8", "10.1.0.0/24"])), Err(CloudError::Invalid(_))));
        assert!(matches!(held.check(&machine("a", &["10.1.0.0/24", "10.1.0.0/24"])), Err(CloudError::Invalid(_))));
        assert_eq!(held.check(&machine("a", &["10.1.0.0/24", "fd00::/64"])), Ok(()));
    }

    #[test]
    fn overlapping_pod_cidrs_are_found() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut any = || format!("10.0.{}.{}/{}", rng.u8(..4), rng.u8(..), rng.u8(16..=32)).parse::<IpNet>();
        for _ in 0..300 {
            let (mut held, mut all) = (PodCidrs::default(), Vec::<IpNet>::new());
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
